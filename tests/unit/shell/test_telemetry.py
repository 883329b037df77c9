"""The operator's own metrics: the page lists every one, with its type and labels."""

from __future__ import annotations

import asyncio
import errno
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.reconcile.observed import test_series

from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.reconcile.observed.series import FAMILIES, MOST_LOADS, Recent, measured, steady
from speculative_operator.reconcile.snapshot.status import read_status
from speculative_operator.shell import telemetry as telemetry_module
from speculative_operator.shell.telemetry import PREFIX, Endpoints, Telemetry

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"
CANARY = {"name": "next", "of": "a", "phase": "Promoted", "weight": 100, "reason": "CanaryPromoted"}
STATUS, NOW = read_status(test_series.STATUS | {"canary": CANARY}), test_series.NOW
EVERY = [
    *steady(test_series.spec(speculation={"objective": {"tpotP99": "25ms"}}), STATUS),
    *measured(STATUS, Recent().after(test_series.BOTH, test_series.ESTIMATE), NOW, 60.0),
]
"""Of an object that has all there is."""
ROW = re.compile(r"^\| `([a-z0-9_]+)` \| (\w+)(?:, 1)? \|([^|]*)\|", re.MULTILINE)


@pytest.mark.parametrize("kernel", ["both", "no IPv6", "IPv6 turned off"])
async def test_the_operator_answers_on_every_address_that_there_is(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = socket.create_server

    def create(address: tuple[str, int], **words: Any) -> socket.socket:
        if kernel == "IPv6 turned off" and words["family"] is socket.AF_INET6:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        return made(address, **words)

    monkeypatch.setattr(socket, "create_server", create)
    if kernel == "no IPv6":
        monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    endpoints = Endpoints("", 0, Telemetry(), lambda: "", lambda: "")
    await endpoints.start()
    try:
        for host in ("127.0.0.1", "::1") if kernel == "both" and socket.has_dualstack_ipv6() else ("127.0.0.1",):
            reader, writer = await asyncio.open_connection(host, endpoints.port)
            writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert (await reader.readline()).split()[1] == b"200", host
            writer.close()
    finally:
        await endpoints.stop()


def test_every_reason_for_missing_metrics_is_counted_from_0_on() -> None:
    """Prometheus sees no increase in a counter's first value, and a dashboard without a gap shows 0 and not nothing."""
    source = Path(telemetry_module.__file__).parents[1]
    raised = re.compile(r"\b(?:Gap|UnreadableError|_gap)\(\s*Reason\.(\w+)")
    reasons = {one for file in source.rglob("*.py") for one in raised.findall(file.read_text(encoding="utf-8"))}
    told = Telemetry().render().decode()
    assert len(reasons) > 9
    assert not [one for one in reasons if f'speculative_operator_gaps_total{{reason="{Reason[one]}"}} 0.0' not in told]


def test_the_page_lists_every_series() -> None:
    _, _, section = PAGE.read_text(encoding="utf-8").partition("## The operator's own\n")
    told = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in ROW.findall(section)}
    telemetry = Telemetry()
    # Labels are in the exposition only once there is a value.
    telemetry.note_event("Pod", 0.0)
    telemetry.note_watch("pods", fails=True)
    telemetry.tick("done")
    telemetry.api_request("GET", 200, 0.1)
    telemetry.query(0.1)
    telemetry.gap(Reason.METRICS_STALE)
    telemetry.action("apply", "Deployment")
    telemetry.decision("Tuned")
    telemetry.event("Normal", "Created")
    with telemetry.phase("read"):
        pass
    telemetry.of_objects.put(("models", "demo"), EVERY, (), 0.0)
    telemetry.of_objects.count(("models", "demo"), "FasterTable")
    exported = {}
    for family in text_string_to_metric_families(telemetry.render().decode()):
        if family.name.startswith(f"{PREFIX}_"):
            name = family.name.removeprefix(f"{PREFIX}_") + ("_total" if family.type == "counter" else "")
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            if name.startswith("object_"):
                assert {"namespace", "name"} <= labels
                labels -= {"namespace", "name"}  # the page says it once
            exported[name] = (family.type, labels)
    assert told == exported
    assert {name for name, _, _ in EVERY} == set(FAMILIES)


def test_the_page_bounds_the_series_of_an_object() -> None:
    most = int(re.findall(r"at most (\d+) series per object", PAGE.read_text(encoding="utf-8"))[0])
    conditions, loads, states, bounds, latencies, reasons = len(ConditionType), MOST_LOADS, 3, 3, 2, 16
    several = {
        "object_condition": conditions, "object_k": loads, "object_replicas": states, "object_gain_ratio": bounds,
        "object_p99_seconds": 2 * latencies, "object_target_seconds": latencies,
    }  # fmt: skip
    assert sum(several.get(name, 1) for name in FAMILIES) + reasons <= most
