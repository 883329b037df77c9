"""What vLLM's releases can turn for each method on each model runner: rows of the capability matrix, made of
`forms.FORMS`. Asked by `plan` and `checks`; `speculative engines` and docs/engines.md show it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from speculative_operator.domain.spec import EngineType, Method
from speculative_operator.domain.table import Actuator
from speculative_operator.engines.matrix.cell import Cell, Extent, Figure, Question, Variant, find
from speculative_operator.engines.matrix.vendors import GENTLEST, platform_of
from speculative_operator.engines.vllm.forms import FORMS, SCHEDULE_SINCE, UNPROVEN, V2_SCHEDULE_SINCE, Form, Runner

LIVE_PROVEN = tuple((0, minor) for minor in range(SCHEDULE_SINCE[1], UNPROVEN[1]))
"""Release lines on which the plug-in was run. The payload holds the same list, for its label `proven`."""
SKIPPED = frozenset(
    {Method.DRAFT_MODEL, Method.NGRAM, Method.EAGLE, Method.EAGLE3, Method.MTP, Method.DFLASH, Method.DSPARK}
)
"""Methods whose speculator the plug-in's worker on the V2 runner can skip, and makes follow K where vLLM does not. The
payload holds the same list."""
_TRUSTED = frozenset({Figure.ACCEPTED, Figure.PER_POSITION, Figure.DRAFTED, Figure.STEP_TIME})
_DEADLOCK = "Under data parallelism the engine drops a schedule; 0.24 to 0.27 take it and may deadlock."


def _rows(form: Form) -> Iterator[Cell]:
    """The row of a form whose K is fixed; or that of the releases that lack a schedule, then with and without data
    parallelism."""
    fixed = Cell(
        engine=EngineType.VLLM,
        method=form.method,
        since=form.since,
        actuator=Actuator.RESTART,
        source=form.source,
        runner=form.runner,
        variant=form.variant,
        passes_at_zero=0.0,
        drafts_blocks=form.block,
        pipelined_since=form.pipelined_since,
        metrics=_TRUSTED - ({Figure.DRAFTED} if form.diluted else set()),
        note=form.note,
    )
    if not form.scheduled:
        yield fixed
        return
    since = max(form.since, form.runner.schedule_since)
    if form.since < since:
        yield replace(fixed, before=since)
    yield replace(
        fixed,
        since=since,
        actuator=Actuator.LIVE,
        data=Extent.ONE,
        passes_at_zero=form.passes_at_zero,
        follows_k=form.follows,
        metrics=fixed.metrics | {Figure.ACTIVE_K},
        skips=form.runner is Runner.V2 and form.variant is Variant.PLAIN and form.method in SKIPPED,
    )
    source = "vLLM 0.32.0 config/vllm.py; vllm#44185, vllm#45963"
    yield replace(fixed, since=since, data=Extent.MANY, note=_DEADLOCK, source=source)


CELLS: tuple[Cell, ...] = tuple(cell for form in FORMS for cell in _rows(form))
"""Every row of vLLM."""


SERVED = frozenset(form.method for form in FORMS)
"""Methods that some model runner has."""
BLOCK_METHODS = frozenset(form.method for form in FORMS if form.block and form.variant is Variant.PLAIN)
"""Methods whose plain form drafts all K tokens in one pass."""


@lru_cache(1024)
def row_of(asked: Question) -> Cell | None:
    """The row of `CELLS` that answers the question, kept: each reconcile asks a dozen times for the same ones."""
    return find(CELLS, asked)


def runner_under_schedule(asked: Question) -> Runner:
    """The runner that serves the method best when K may change, whatever runner and parallelism are asked for.

    The gentlest actuator counts first, then that a smaller K drafts less (a block is one pass at every K), then what
    the release takes by itself: V2 from 0.32 on, V1 before.
    """
    platform = platform_of(asked.engine, asked.vendor, asked.version)
    order = (Runner.V2, Runner.V1) if asked.version >= V2_SCHEDULE_SINCE else (Runner.V1, Runner.V2)
    served: list[tuple[int, bool, Runner]] = []
    for runner in order:
        cell = row_of(replace(asked, runner=runner, data_parallel_size=1))
        if cell is not None and (platform is None or platform.runner in ("", runner)):
            served.append((GENTLEST.index(cell.actuator), not (cell.follows_k or cell.drafts_blocks), runner))
    return min(served, key=lambda one: one[:2])[2] if served else Runner.V1
