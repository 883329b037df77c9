"""A change, split by the API server's audit log."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from demo.figures import unix
from realengine.e2e.latency import calls, split

USER = "system:serviceaccount:speculative-system:speculative-operator"


def event(user: str, resource: str, name: str, received: str, answered: str, **more: Any) -> str:
    return json.dumps(
        {
            "verb": "patch",
            "user": {"username": user},
            "objectRef": {"resource": resource, "name": name, **more},
            "responseStatus": {"code": 200},
            "requestReceivedTimestamp": f"2026-01-01T00:00:{received}Z",
            "stageTimestamp": f"2026-01-01T00:00:{answered}Z",
        },
        separators=(",", ":"),
    )


START = unix("2026-01-01T00:00:00Z")
EDIT = event("admin", "speculativedeployments", "tiny", "01.000000", "01.010000")
TABLE = event(USER, "configmaps", "tiny-table", "01.110000", "01.130000")
POKE = event(USER, "pods", "tiny-1", "01.230000", "01.240000")


def about(seconds: float) -> Any:
    """Unix seconds as floats are exact to a fraction of a microsecond."""
    return pytest.approx(seconds, abs=1e-5)


def test_every_part_and_their_sum() -> None:
    found = split(calls([POKE, TABLE, EDIT]), "tiny", START + 1, START + 1.3, START + 1.5, START + 1.6)
    assert found is not None
    assert asdict(found) == {
        "operator": about(0.2),
        "server": about(0.03),
        "node": about(0.06),
        "engine": about(0.2),
        "total": about(0.49),
        "counted": about(0.59),
    }
    assert found.operator + found.server + found.node + found.engine == about(found.total)


def test_without_a_poke_the_table_is_the_last_write() -> None:
    found = split(calls([EDIT, TABLE]), "tiny", START + 1, START + 1.3, START + 1.5, START + 1.6)
    assert found is not None
    assert (found.server, found.node) == (about(0.02), about(0.17))


def test_what_came_before_the_change_does_not_count() -> None:
    assert split(calls([EDIT, TABLE, POKE]), "tiny", START + 1.05, START + 1.3, START + 1.5, START + 1.6) is None


def test_a_change_whose_table_is_missing_is_no_split() -> None:
    assert split(calls([EDIT, POKE]), "tiny", START + 1, START + 1.3, START + 1.5, START + 1.6) is None


def test_status_failures_reads_and_other_objects_are_left_out() -> None:
    lines = [
        event(USER, "speculativedeployments", "tiny", "01.0", "01.1", subresource="status"),
        event(USER, "deployments", "tiny", "01.0", "01.1"),
        TABLE.replace('"code":200', '"code":409').replace('"code": 200', '"code": 409'),
        TABLE.replace('"patch"', '"get"'),
        TABLE,
    ]
    (found,) = calls(lines)
    assert (found.who, found.resource, found.name) == ("speculative-operator", "configmaps", "tiny-table")
    assert (found.received, found.answered) == (about(START + 1.11), about(START + 1.13))
