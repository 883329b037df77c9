"""What no API server refuses, the operator's first tick does: with field, value and remedy, and without children."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.refused_engines import COMBINATIONS, TICK, WITHOUT, Combination

from speculative_operator.api.convert import to_domain
from speculative_operator.domain.spec import EngineType
from speculative_operator.reconcile.tick import World, tick

NOW = 1_800_000_000.0


def said_by_tick(body: dict[str, Any]) -> tuple[str, list[str]]:
    """Reason and messages of Ready after the first tick of an object that the API server took."""
    outcome = tick(World(to_domain(body), {}, {}, ()), None, None, NOW)
    assert outcome.actions == (), "a refused spec makes no children"
    ready = [one for one in outcome.status["conditions"] if one["type"] == "Ready"]
    assert [one["status"] for one in ready] == ["False"]
    assert any(event.type == "Warning" for event in outcome.events)
    return ready[0]["reason"], [ready[0]["message"]]


def said_of_drafts(body: dict[str, Any]) -> tuple[str, str]:
    """Reason and message of SpeculationActive of an object that is served without a speculator."""
    outcome = tick(World(to_domain(body), {}, {}, ()), None, None, NOW)
    assert outcome.actions, "it is served"
    (active,) = [one for one in outcome.status["conditions"] if one["type"] == "SpeculationActive"]
    assert active["status"] == "False"
    return active["reason"], active["message"]


def hold(case: Combination, reason: str, message: str) -> None:
    """Reason, field, value and remedy are as the case wants."""
    assert reason == case.reason
    assert case.field in message
    for part in case.parts:
        assert part in message


@pytest.mark.parametrize("case", [case for case in COMBINATIONS if case.by == TICK], ids=lambda case: case.name)
def test_first_tick_refuses(case: Combination) -> None:
    reason, (message,) = said_by_tick(case.body())
    hold(case, reason, message)


@pytest.mark.parametrize("case", [case for case in COMBINATIONS if case.by == WITHOUT], ids=lambda case: case.name)
def test_a_release_older_than_the_method_serves_without_a_speculator(case: Combination) -> None:
    hold(case, *said_of_drafts(case.body()))


def test_every_engine_is_among_them() -> None:
    kinds = {case.changes.get("engine.type", "vLLM") for case in COMBINATIONS}
    assert kinds == set(EngineType)
    assert len({case.name for case in COMBINATIONS}) == len(COMBINATIONS) >= 25
