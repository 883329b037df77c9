"""The operator's own metrics: the page lists every one, with its type and labels."""

from __future__ import annotations

import re
from pathlib import Path

from speculative_operator.shell.telemetry import PREFIX, Telemetry

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `([a-z_]+)` \| (\w+)(?:, 1)? \|([^|]*)\|", re.MULTILINE)


def test_the_page_lists_every_series() -> None:
    _, _, section = PAGE.read_text(encoding="utf-8").partition("## The operator's own\n")
    told = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in ROW.findall(section)}
    telemetry = Telemetry()
    # Labels are in the exposition only once there is a value.
    telemetry.seen("Pod", 0.0)
    telemetry.unwatched("pods", fails=True)
    telemetry.tick("done")
    telemetry.api_request("GET", 200, 0.1)
    telemetry.query(0.1)
    telemetry.gap("Idle")
    telemetry.action("apply", "Deployment")
    telemetry.decision("Tuned")
    telemetry.event("Normal", "Created")
    with telemetry.phase("read"):
        pass
    exported = {}
    for family in telemetry.registry.collect():
        if family.name.startswith(f"{PREFIX}_"):
            name = family.name.removeprefix(f"{PREFIX}_") + ("_total" if family.type == "counter" else "")
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            exported[name] = (family.type, labels)
    assert told == exported
