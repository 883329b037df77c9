"""How many Jobs read at a time, and in which order objects have theirs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_operator.domain import names
from speculative_operator.shell.bodies import Key
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.resources import OWNER
from speculative_operator.shell.turns import FORGOTTEN, Turns, reading

NOW = 1_700_000_000.0
AT, LONG_AGO = "2023-11-14T22:13:10Z", "2023-11-14T22:00:00Z"


class Scene:
    """Objects that ask every few seconds; a Job runs until it is told to end."""

    def __init__(self, most: int = 2) -> None:
        self.now = 0.0
        self.turns = Turns(most, lambda: self.now)
        self.running: list[str] = []

    def ask(self, name: str, *, at_ease: bool = False) -> bool:
        may = self.turns.take(key(name), {key(one) for one in self.running}, at_ease=at_ease)
        if may:
            self.running.append(name)
        self.turns.release(key(name))
        return may

    def ends(self, name: str) -> None:
        self.running.remove(name)


def key(name: str) -> Key:
    return ("ns", name)


def test_so_many_at_a_time_and_the_others_in_the_order_they_came() -> None:
    scene = Scene(most=2)
    assert [scene.ask(name) for name in "abcd"] == [True, True, False, False]
    scene.ends("a")
    assert [scene.ask(name) for name in "dc"] == [False, True], "c asked before d"
    scene.ends("b")
    assert scene.ask("d")


def test_who_waits_goes_before_who_serves_already() -> None:
    scene = Scene(most=1)
    scene.ask("first")
    scene.now = 10.0
    assert not scene.ask("serves", at_ease=True)
    scene.now = 20.0
    assert not scene.ask("waits")
    scene.ends("first")
    assert [scene.ask("serves", at_ease=True), scene.ask("waits")] == [False, True]


def test_who_does_not_come_back_holds_up_nobody() -> None:
    scene = Scene(most=1)
    scene.ask("first")
    scene.ask("gone")
    scene.ends("first")
    assert not scene.ask("next")
    scene.now += FORGOTTEN / 2
    scene.ask("next")
    scene.now += FORGOTTEN / 2 + 1.0
    assert scene.ask("next")


def test_who_wants_none_any_more_leaves_its_place() -> None:
    scene = Scene(most=1)
    scene.ask("first")
    scene.ask("second")
    scene.ends("first")
    scene.turns.leave(key("second"))
    assert scene.turns.waiting_seconds(key("second")) is None
    assert scene.ask("third")


def test_a_job_on_its_way_to_the_api_server_counts() -> None:
    turns = Turns(1, lambda: 0.0)
    assert turns.take(key("a"), (), at_ease=False)
    assert not turns.take(key("b"), (), at_ease=False)
    turns.release(key("a"))
    assert not turns.take(key("b"), {key("a")}, at_ease=False)
    assert turns.take(key("b"), (), at_ease=False)


def test_the_wait_is_told_from_the_first_asking_on() -> None:
    scene = Scene(most=1)
    scene.ask("a")
    scene.ask("b")
    scene.now = 40.0
    scene.ask("b", at_ease=True)
    assert scene.turns.waiting_seconds(key("b")) == 40.0
    assert scene.turns.waiting_seconds(key("a")) is None


@given(
    most=st.integers(1, 4),
    steps=st.lists(st.tuples(st.integers(0, 7), st.booleans(), st.sampled_from(["ask", "end", "leave"])), max_size=60),
)
def test_never_more_than_allowed_and_everybody_has_a_turn(most: int, steps: Iterable[tuple[int, bool, str]]) -> None:
    scene = Scene(most)
    for number, at_ease, what in steps:
        scene.now += 1.0
        name = f"o{number}"
        if what == "ask" and name not in scene.running:
            scene.ask(name, at_ease=at_ease)
        elif what == "end" and name in scene.running:
            scene.ends(name)
        elif what == "leave":
            scene.turns.leave(key(name))
        assert len(scene.running) <= most
    left = {f"o{number}" for number in range(8)} - set(scene.running)
    for _ in range(1000):
        scene.now += 10.0
        left -= set(scene.running)
        scene.running.clear()
        for name in sorted(left):
            scene.ask(name, at_ease=name in ("o1", "o2"))
        if not left:
            break
    assert not left


# -- which Jobs count


def job(name: str = "a", purpose: str = "inspect", at: str = AT, **more: Any) -> dict[str, Any]:
    owner = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": name, "uid": f"of {name}"}
    meta = {
        "name": f"{name}-{purpose}",
        "namespace": "ns",
        "uid": more.pop("uid", f"uid-{name}"),
        "resourceVersion": more.pop("version", "1"),
        "creationTimestamp": at,
        "labels": {names.LABEL_JOB: purpose},
        "ownerReferences": [owner],
        **more.pop("meta", {}),
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": more.pop("spec", {}), "status": more}


@pytest.mark.parametrize(
    ("one", "counts"),
    [
        (job(), True),
        (job(at=LONG_AGO, ready=1), True),
        (job(at=LONG_AGO, active=1), False),
        (job(spec={"suspend": True}), False),
        (job(meta={"deletionTimestamp": AT}), False),
        (job(meta={"creationTimestamp": None}), True),
    ],
)
def test_a_job_counts_while_it_starts_and_while_its_pod_runs(one: dict[str, Any], counts: bool) -> None:
    """One that waits for room, an image or a queue loads nobody: others do not wait for it."""
    assert reading({key("a"): one}, NOW) == ({key("a")} if counts else set())


def test_the_cache_knows_the_jobs_that_read_until_they_have_ended() -> None:
    cache = Cache()
    for name in "ab":
        cache.put({"kind": OWNER.kind, "metadata": {"name": name, "namespace": "ns", "uid": f"of {name}"}})
    cache.put(job("a"))
    cache.put(job("b", "fetch"))
    assert set(cache.inspections()) == {key("a")}
    failed = [{"type": "Failed", "status": "True"}]
    cache.put(job("a", version="2", conditions=failed))
    assert not cache.inspections()
    cache.put(job("a", uid="another", version="3"))
    assert cache.inspections()[key("a")]["metadata"]["uid"] == "another"
    cache.remove(job("a", version="2"))
    assert set(cache.inspections()) == {key("a")}, "an old one is gone, the new one is not"
    cache.remove(job("a", uid="another", version="4"))
    assert not cache.inspections()
