"""The table of docs/reliability.md, made from one run. Written by `make chaos`, never by hand."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from chaos.faults.fault import Fault
from chaos.run import Outcome, Report
from generate.pages import placed

WIDTH = 120
BEGIN = "<!-- chaos: written by `make chaos`, do not edit; its words are beside each fault in dev/chaos/faults -->"
END = "<!-- end of chaos -->"


def page(before: str, report: Report, faults: Sequence[type[Fault]]) -> str:
    """The page `before` with what one run found between its marks. Raises ValueError where a mark is missing."""
    return placed(before, BEGIN, "\n".join([BEGIN, "", *_lines(report, faults), END]), END)


def _lines(report: Report, faults: Sequence[type[Fault]]) -> Iterator[str]:
    """What the run was, a row for each fault, and harm that was not done on purpose."""
    kinds = {fault.name: fault for fault in faults}
    starts = sum(outcome.operator_starts for outcome in report.outcomes)
    summary = report.summary()["requests"]
    text = (
        f"One run with seed {report.seed}, {report.kills} kills, {report.seconds / 60:.0f} minutes on two cores that"
        f" other work may have shared: {summary['failed']} of {summary['answered'] + summary['failed']:,} requests"
        f" failed in all, the control's included; the operator was started again {starts} times. Steps that only read"
        " prompts count as K 0."
    )
    yield from (textwrap.fill(text, WIDTH), "", *_TABLE)
    yield from (_row(outcome, kinds[outcome.name]) for outcome in report.outcomes)
    yield from ("", *_harms(report))


_TABLE = (
    "| fault | what is done | what you see and do | conditions in this run | requests failed | K that ran | back after"
    " | outcome |",
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
)


def _row(outcome: Outcome, fault: type[Fault]) -> str:
    good = "harm found, as it must be" if outcome.expects_harm and outcome.good else "no harm"
    cells = (
        outcome.name,
        fault.does,
        fault.remedy,
        ", ".join(f"`{one}`" for one in outcome.told) or "as before",
        f"{outcome.failed} of {outcome.answered + outcome.failed}",
        ", ".join(map(str, outcome.ks)),
        _back(outcome),
        good if outcome.good else "**harm**",
    )
    return f"| {' | '.join(cells)} |"


def _back(outcome: Outcome) -> str:
    if outcome.expects_harm:
        return "not awaited"
    return "never" if outcome.settled_seconds is None else f"{outcome.settled_seconds:.0f} s"


def _harms(report: Report) -> list[str]:
    """Sentences on all harm that was not done on purpose."""
    found = [f"- {one.name}: {harm.text}" for one in report.outcomes if not one.good for harm in one.harms]
    lines = [line for text in found for line in textwrap.wrap(text, WIDTH, subsequent_indent="  ")]
    return [*lines, ""] if lines else []
