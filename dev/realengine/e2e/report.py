"""What was asserted and what was measured, as it comes: lines on the terminal, rows of the report, one line of JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Check:
    """One assertion with its numbers."""

    part: str
    claim: str
    ok: bool
    numbers: str


@dataclass
class Report:
    """Collects; never raises. `figures` are the values of the last line, by its names."""

    checks: list[Check] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, list[list[str]]] = field(default_factory=dict)
    """Title -> rows, the head first."""
    part: str = ""
    started: float = field(default_factory=time.monotonic)
    """By the machine's monotonic clock, which all processes share: lines of both tell seconds of one run."""
    _begun: float = 0.0

    def begin(self, part: str) -> None:
        """What the checks and the seconds from here on belong to."""
        self.end()
        self.part = part
        self._begun = time.monotonic()
        self.say(part)

    def end(self) -> None:
        """Note how long the part took."""
        if self.part:
            rows = self.tables.setdefault("Seconds by part", [["part", "seconds"]])
            rows.append([self.part, f"{time.monotonic() - self._begun:.0f}"])
            self.part = ""

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.started:6.1f} s] {text}", flush=True)

    def check(self, claim: str, ok: bool, numbers: str) -> bool:
        self.checks.append(Check(self.part, claim, bool(ok), numbers))
        self.say(f"  {'yes' if ok else 'NO '} {claim}: {numbers}")
        return ok

    def table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self.tables[title] = [list(head), *([str(cell) for cell in row] for row in rows)]

    @property
    def ok(self) -> bool:
        return bool(self.checks) and all(check.ok for check in self.checks)

    def save(self, path: Path) -> None:
        """For the process outside."""
        self.end()
        content = {"checks": [asdict(check) for check in self.checks], "figures": self.figures, "tables": self.tables}
        path.write_text(json.dumps(content))

    def load(self, path: Path) -> None:
        """What a process inside has saved, added to what is here."""
        content = json.loads(path.read_text())
        self.checks += [Check(**check) for check in content["checks"]]
        self.figures |= content["figures"]
        for title, rows in content["tables"].items():
            self.tables.setdefault(title, rows[:1]).extend(rows[1:])


def markdown(report: Report, summary: Mapping[str, Any], head: Sequence[str]) -> str:
    """The whole report."""
    lines = ["# The operator with the real vLLM", "", *head, "", "```json", json.dumps(summary), "```", ""]
    part = ""
    for check in report.checks:
        if check.part != part:
            part = check.part
            lines += ["", f"## {part}", "", "| | assertion | measured |", "| --- | --- | --- |"]
        lines.append(f"| {'yes' if check.ok else '**NO**'} | {check.claim} | {check.numbers} |")
    for title, (columns, *rows) in report.tables.items():
        lines += ["", f"## {title}", "", _row(columns), _row(["---"] * len(columns)), *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
