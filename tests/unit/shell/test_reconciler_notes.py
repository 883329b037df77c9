"""The ConfigMap of notes: written before the status that rests on it, seldom, and never where it is somebody else's."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.shell.fakeapi import FakeApi, FaultError
from tests.unit.shell.scene import KEY
from tests.unit.shell.test_reconciler import Rig

from speculative_operator.reconcile.snapshot import notes
from speculative_operator.reconcile.snapshot.notes import FIRST_SECONDS, NOTES_SECONDS
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.resources import CONFIG_MAP, OWNER
from speculative_operator.shell.telemetry import Telemetry

HASH = "0123456789"
NAME = f"{KEY[1]}-notes"


class Clock:
    """Unix seconds, as far as a reconcile knows."""

    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def rig(api: FakeApi, kube: Kube, telemetry: Telemetry) -> Rig:
    return Rig(api, kube, telemetry)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("time.time", found)
    return found


def learned(number: int, table: int = 3) -> dict[str, Any]:
    return {"memory": {"table": [[1, 8, table]], "load": str(number)}, "pair": HASH}


def written(rig: Rig) -> list[str]:
    """What was written since the last question, status for status."""
    found = [call.subresource or call.plural for call in rig.api.writes()]
    rig.api.calls.clear()
    return found


def kept(rig: Rig) -> Any:
    (config,) = rig.api.find("ConfigMap")
    return notes.read(config, rig.api.find(OWNER.kind)[0]["metadata"]["uid"])


async def look(rig: Rig, wanted: Any, says: str, clock: Clock, seconds: float = 40.0) -> list[str]:
    """One reconcile, after which the figures of the status say another thing."""
    rig.notes = wanted
    rig.plan = lambda _: ((), {"speculation": {"k": says}}, ())
    clock.now += seconds
    await rig.reconciler.reconcile(KEY)
    return written(rig)


async def test_facts_are_written_before_the_pins_of_the_status(rig: Rig, clock: Clock) -> None:
    of = await rig.begin()
    assert await look(rig, {"facts": ["z:1"]}, "1", clock) == ["configmaps", "status"]
    assert kept(rig) == {"facts": ["z:1"]}
    (config,) = rig.api.find("ConfigMap")
    assert config["metadata"]["ownerReferences"][0]["uid"] == of["metadata"]["uid"]
    assert await look(rig, {"facts": ["z:2", "z:1"]}, "2", clock) == ["configmaps", "status"]
    assert await look(rig, {"facts": ["z:2"]}, "3", clock) == ["status"], "nothing is lost by what is too much"


async def test_nothing_is_written_at_rest_whatever_the_tuner_learns(rig: Rig, clock: Clock) -> None:
    await rig.begin()
    await look(rig, learned(0), "1", clock)
    for number in range(1, 20):
        assert await look(rig, learned(number), "1", clock, 10 * NOTES_SECONDS) == []


async def test_an_hour_of_moving_figures_costs_few_writes_more(rig: Rig, clock: Clock) -> None:
    await rig.begin()
    found: list[str] = []
    for number in range(90):
        found += await look(rig, learned(number), str(1 + number % 2), clock)
    assert found.count("status") == 90
    assert found.count("configmaps") <= 1 + 90 * 40.0 / NOTES_SECONDS
    assert 40.0 < FIRST_SECONDS < 2 * 40.0
    assert found[:4] == ["status", "status", "configmaps", "status"], "then there is something to be explained"


async def test_another_table_is_noted_with_the_status_that_tells_it(rig: Rig, clock: Clock) -> None:
    await rig.begin()
    await look(rig, learned(0), "1", clock, 2 * FIRST_SECONDS)
    await look(rig, learned(0), "2", clock, 2 * FIRST_SECONDS)
    assert await look(rig, learned(0, table=1), "3", clock) == ["configmaps", "status"]
    assert kept(rig)["memory"]["table"] == [[1, 8, 1]]


async def test_notes_that_cannot_be_written_keep_no_status_back(rig: Rig, clock: Clock) -> None:
    await rig.begin()
    rig.api.failures.append(
        lambda call: FaultError(403, "exceeded quota", "Forbidden") if call.plural == "configmaps" else None
    )
    assert "status" in await look(rig, {"facts": ["z:1"]}, "1", clock)
    assert rig.status == {"speculation": {"k": "1"}}
    await look(rig, {"facts": ["z:1"]}, "2", clock)
    assert rig.seen[-1][0].notes == {"facts": ["z:1"]}, "the process knows them"


@pytest.mark.parametrize("labelled", [True, False])
async def test_a_config_map_of_somebody_else_is_left_alone(rig: Rig, clock: Clock, labelled: bool) -> None:
    of = await rig.begin()
    metadata = {"name": NAME, "namespace": of["metadata"]["namespace"]}
    theirs = await rig.api.put(CONFIG_MAP, {"metadata": metadata, "data": {"mine": "x"}})
    if labelled:
        theirs = {**theirs, "kind": "ConfigMap", "apiVersion": "v1"}
        theirs["metadata"]["labels"] = {"serving.speculative.dev/deployment": KEY[1]}
        rig.cache.put(theirs)
    assert (await look(rig, {"facts": ["z:1"]}, "1", clock))[-1] == "status"
    (config,) = rig.api.find("ConfigMap")
    assert config["data"] == {"mine": "x"}
    assert rig.api.find(OWNER.kind)[0]["status"] == {"speculation": {"k": "1"}}
