"""The Lease: one holder at a time, found free only after its time on our own clock, given back at the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.shell.fakeapi import FakeApi, FaultError, eventually

from speculative_operator.settings import Settings
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.leader import RENEW_SHARE, Leader, LostLeadershipError, identity
from speculative_operator.shell.resources import LEASE

SETTINGS = Settings(lease_duration_seconds=3)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def candidate(kube: Kube, clock: Clock, me: str) -> Leader:
    return Leader(SETTINGS, kube, "ns", me, clock)


def spec(api: FakeApi) -> dict[str, Any]:
    found: dict[str, Any] = api.find("Lease")[0]["spec"]
    return found


async def test_the_first_candidate_makes_the_lease(api: FakeApi, kube: Kube, clock: Clock) -> None:
    one = candidate(kube, clock, "one")
    assert not one.leading
    await one.acquire()
    assert one.leading
    assert spec(api)["holderIdentity"] == "one"
    assert spec(api)["leaseDurationSeconds"] == 3


async def test_a_second_candidate_waits_until_the_record_stands_still_for_the_duration(
    api: FakeApi, kube: Kube, clock: Clock
) -> None:
    one, two = candidate(kube, clock, "one"), candidate(kube, clock, "two")
    await one.acquire()
    assert not await two._attempt()
    clock.now += 2.9
    assert await one._attempt()
    clock.now += 2.9
    assert not await two._attempt(), "it was renewed since"
    clock.now += 3.0
    assert not one.leading
    assert await two._attempt()
    assert (spec(api)["holderIdentity"], spec(api)["leaseTransitions"]) == ("two", 1)
    assert not await one._attempt()


async def test_the_same_identity_goes_on_at_once(api: FakeApi, kube: Kube, clock: Clock) -> None:
    await candidate(kube, clock, "pod-1").acquire()
    again = candidate(kube, clock, "pod-1")
    assert await again._attempt()
    assert spec(api)["leaseTransitions"] == 0


async def test_a_lease_given_back_is_free_at_once(api: FakeApi, kube: Kube, clock: Clock) -> None:
    one, two = candidate(kube, clock, "one"), candidate(kube, clock, "two")
    await one.acquire()
    await one.release()
    assert not one.leading
    assert await two._attempt()
    await one.release()
    assert spec(api)["holderIdentity"] == "two", "releasing twice takes nothing from the successor"


async def test_a_renewal_cut_off_half_way_does_not_hinder_giving_back(api: FakeApi, kube: Kube, clock: Clock) -> None:
    one = candidate(kube, clock, "one")
    await one.acquire()
    lease = api.find("Lease")[0]
    await api.put(LEASE, {**lease, "spec": {**lease["spec"], "renewTime": "written, but never answered"}})
    await one.release()
    assert spec(api)["holderIdentity"] == ""


async def test_two_that_try_at_once_do_not_both_win(api: FakeApi, kube: Kube, clock: Clock) -> None:
    await api.put(LEASE, {"kind": "Lease", "metadata": {"name": SETTINGS.lease_name, "namespace": "ns"}, "spec": {}})
    won = await asyncio.gather(*(candidate(kube, clock, name)._attempt() for name in "abcde"))
    assert sum(won) == 1


async def test_a_leader_that_cannot_renew_in_time_stops_before_others_may_start_and_takes_it_again(
    api: FakeApi, kube: Kube, clock: Clock
) -> None:
    one = candidate(kube, clock, "one")
    await one.acquire()
    api.failures.append(lambda call: FaultError(503) if call.plural == "leases" else None)
    keeping = asyncio.create_task(one.keep())
    await asyncio.sleep(0.3)
    assert one.leading, "one failed renewal is no loss"
    clock.now += RENEW_SHARE * SETTINGS.lease_duration_seconds + 0.1
    assert not one.leading
    clock.now += SETTINGS.lease_duration_seconds
    await asyncio.sleep(0.3)
    assert not keeping.done(), "nobody else has it"
    api.failures.clear()
    await eventually(lambda: one.leading)
    keeping.cancel()


async def test_a_leader_ends_whose_lease_was_held_by_another_while_it_was_away(
    api: FakeApi, kube: Kube, clock: Clock
) -> None:
    one, two = candidate(kube, clock, "one"), candidate(kube, clock, "two")
    await one.acquire()
    clock.now += SETTINGS.lease_duration_seconds
    assert not await two._attempt()
    clock.now += SETTINGS.lease_duration_seconds
    assert await two._attempt()
    await two.release()
    with pytest.raises(LostLeadershipError, match="was held by another"):
        async with asyncio.timeout(20.0):
            await one.keep()


async def test_a_leader_whose_lease_was_taken_ends_at_once(api: FakeApi, kube: Kube, clock: Clock) -> None:
    one = candidate(kube, clock, "one")
    await one.acquire()
    lease = api.find("Lease")[0]
    await api.put(LEASE, {**lease, "spec": {**lease["spec"], "holderIdentity": "thief", "renewTime": "now"}})
    with pytest.raises(LostLeadershipError, match="thief"):
        async with asyncio.timeout(20.0):
            await one.keep()


async def test_renewing_keeps_the_time_of_acquisition(api: FakeApi, kube: Kube, clock: Clock) -> None:
    one = candidate(kube, clock, "one")
    await one.acquire()
    before = spec(api)
    await asyncio.sleep(0.01)
    await one._attempt()
    after = spec(api)
    assert before["acquireTime"] == after["acquireTime"]
    assert before["renewTime"] < after["renewTime"]


async def test_a_release_that_fails_is_no_harm(api: FakeApi, kube: Kube, clock: Clock) -> None:
    one = candidate(kube, clock, "one")
    await one.acquire()
    api.failures.append(lambda _: FaultError(500))
    await one.release()
    assert not one.leading


def test_identity_is_the_pod_or_unique(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "operator-abc")
    assert identity() == "operator-abc"
    monkeypatch.delenv("POD_NAME")
    assert identity() != identity()
