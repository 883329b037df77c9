"""Combinations whose output was reported wrong (`data/wrong_outputs.csv`), or that were reported to reuse fewer cached
prompts (column `wrong`), with the issues and when they were read.

Asked by `engines.pairs`. A row without `before` is not known to be cured. It says what others reported, so it warns and
refuses nothing; `speculative verify` tells whether it is so in one's own pods.
"""

from __future__ import annotations

from dataclasses import dataclass

from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.engines.matrix.rows import Row, Version, row_fields, rows_of
from speculative_operator.pairing.pair import Wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class _Combination(Row):
    methods: frozenset[str]
    turned_on_by: str
    """Argument of the engine without which the row says nothing; empty: it needs none."""
    turned_off_by: str
    wrong: Wrong


_ROWS = tuple(
    _Combination(
        **row_fields(row),
        methods=frozenset(row["methods"].split()),
        turned_on_by=row["turned_on_by"],
        turned_off_by=row["turned_off_by"],
        wrong=Wrong(
            row["verifier"],
            f"{row['effect']} ({row['source']}; read {row['read']})",
            row["remedy"],
            of_reuse=row["wrong"] == "reuse",
        ),
    )
    for row in rows_of("wrong_outputs")
)


def wrong_outputs(spec: DeploymentSpec, version: Version) -> tuple[Wrong, ...]:
    """What was reported of the engine, release, method and arguments of `spec`; nothing where it drafts nothing."""
    if spec.speculator is None or not spec.speculates:
        return ()
    given = {argument.partition("=")[0].replace("_", "-") for argument in spec.engine.args}
    return tuple(
        row.wrong
        for row in _ROWS
        if row.engine is spec.engine.type
        and row.holds(version)
        and spec.speculator.method.value in row.methods
        and row.turned_on_by in {"", *given}
        and row.turned_off_by not in given
    )
