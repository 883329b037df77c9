"""Thousands of objects that follow a branch start a Job each every six hours, and ask a hub as often, all at once."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.reconcile.paired import serving

from speculative_operator.reconcile.pair.pairing import LOOKS_PER_DAY, RECHECK_SECONDS
from speculative_operator.reconcile.tick import tick
from speculative_operator.reconcile.world import World

OBJECTS = 5000
DAY = 86400.0
HOURS = (6, 24, *range(46, 66, 2))


def test_looks_at_branches_never_exceed_what_a_day_has_for_all_objects() -> None:
    cluster = serving()
    share = OBJECTS * DAY / LOOKS_PER_DAY
    since = cluster.now
    looks = []
    for number in range(20):
        world = cluster.world(spec=replace(cluster.spec, uid=f"uid-{number}"), objects=OBJECTS)
        looks.append(next(hour * 3600.0 for hour in HOURS if _looks(world, since + hour * 3600.0)))
    assert min(looks) >= share
    assert max(looks) - min(looks) >= share / 8, "nor do they come at once"


def test_a_small_fleet_looks_as_often_as_before() -> None:
    cluster = serving()
    world = cluster.world(objects=100)
    assert not _looks(world, cluster.now + RECHECK_SECONDS - 60.0)
    assert _looks(world, cluster.now + 1.25 * RECHECK_SECONDS)


def _looks(world: World, now: float) -> bool:
    return bool(tick(world, None, None, now).actions)
