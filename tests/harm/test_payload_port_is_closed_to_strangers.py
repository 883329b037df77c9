"""Whoever may reach the port of step telemetry can load the engine's process: those who scrape it can be named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.render.test_manifests import CONTAINER, INPUT, by_kind

from speculative_operator.domain import names
from speculative_operator.render import Capabilities

PEER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}


def rules(*peers: dict[str, Any]) -> list[dict[str, Any]]:
    counted = replace(CONTAINER, payload=True)
    asked = replace(INPUT, container=counted, capabilities=Capabilities(step_metrics_from=peers))
    return list(by_kind(asked)["NetworkPolicy", "demo"]["spec"]["ingress"])


def test_only_named_peers_reach_the_port_of_step_telemetry() -> None:
    serving, telemetry = rules(PEER)
    assert [one["port"] for one in serving["ports"]] == [names.SERVING_PORT, names.AMBIENT_PORT]
    assert "from" not in serving
    assert [one["port"] for one in telemetry["ports"]] == [names.TELEMETRY_PORT]
    assert telemetry["from"] == [PEER]


def test_nobody_is_shut_out_who_was_not_told_of() -> None:
    (everybody,) = rules()
    assert [one["port"] for one in everybody["ports"]] == [
        names.SERVING_PORT, names.TELEMETRY_PORT, names.AMBIENT_PORT,
    ]  # fmt: skip
    assert "from" not in everybody
