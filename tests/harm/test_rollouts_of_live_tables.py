"""The harm: a release of the operator that can change K live, where the one before could not, replaces pods for it.

Pods of such an engine were made for rollouts. Under the release that knows better they stay what they are, through the
tuner's own rollouts, the way back from them and repairs, until somebody asks for other pods. The judge is the release
before: what it did in each story is what the next one does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.unit.reconcile import worlds
from tests.unit.reconcile.paired import LOOKING, PAIRED, Paired, advance
from tests.unit.reconcile.releases import install
from tests.unit.reconcile.scripted import REMOVABLE, Tuner, active_table
from tests.unit.reconcile.worlds import Cluster, observed, template

from speculative_operator.domain import names
from speculative_operator.domain.actions import Action
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.resolved import ResolvedSpec, resolve
from speculative_operator.domain.spec import DeploymentSpec, Mode, OffPolicy, Speculation
from speculative_operator.domain.table import KTable
from speculative_operator.engines.base import Engine
from speculative_operator.engines.registry import engine_for
from speculative_operator.reconcile import tick
from speculative_operator.reconcile.table import deciding

STALLED = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}


def of_0_31(spec: DeploymentSpec = worlds.SPEC, **change: Any) -> DeploymentSpec:
    return replace(spec, engine=replace(spec.engine, version="0.31.0", version_named=True), **change)


def without_live_tables(engine: Engine) -> Engine:
    def told(spec: DeploymentSpec) -> ResolvedSpec:
        found = resolve(spec)
        return replace(found, engine=replace(found.engine, live=False))

    return replace(
        engine, notices=lambda spec: engine.notices(told(spec)), knobs=lambda spec: engine.knobs(told(spec)),
        container=lambda spec, table: engine.container(told(spec), table),
    )  # fmt: skip


@contextmanager
def release_before() -> Iterator[None]:
    """The operator that changes K by rollouts."""
    with pytest.MonkeyPatch.context() as before:
        before.setattr(tick, "engine_for", lambda spec: without_live_tables(engine_for(spec)))
        yield


@dataclass
class Mirrored(Cluster):
    """A webhook has images pulled from a mirror."""

    def carry_out(self, action: Action) -> None:
        super().carry_out(action)
        found = self.children.get(("Deployment", "demo"))
        for one in template(found)["spec"]["containers"] if found is not None else ():
            one["image"] = "mirror/" + one["image"].removeprefix("mirror/")


def settle(cluster: Cluster) -> Cluster:
    cluster.settle()
    return cluster


def read_later() -> Cluster:
    cluster = Paired(of_0_31(PAIRED), capabilities=replace(LOOKING, check_pairs=False))
    cluster.settle()
    cluster.capabilities = LOOKING
    advance(cluster)
    return settle(cluster)


def strip(cluster: Cluster) -> None:
    del cluster.children["Deployment", "demo"]["metadata"]["annotations"][names.ANNOTATION_MADE_OF]


def set_image(cluster: Cluster) -> None:
    cluster.tick()
    template(cluster.children["Deployment", "demo"])["spec"]["containers"][0]["image"] = "by-hand:1"


def pause(cluster: Cluster) -> None:
    cluster.edit(paused=True)
    cluster.tick()
    cluster.edit(paused=False)


def turn_skipping_on(cluster: Cluster) -> None:
    cluster.edit(speculation=replace(cluster.spec.speculation, off_policy=OffPolicy.SKIP))


def write_out_a_default(cluster: Cluster) -> None:
    cluster.tick()
    cluster.edit(verifier=replace(cluster.spec.verifier, max_num_seqs=256))


def stall(cluster: Cluster) -> None:
    found = cluster.children["Deployment", "demo"]
    found["status"] |= {
        "observedGeneration": found["metadata"]["generation"], "updatedReplicas": 0, "replicas": 3,
        "conditions": [STALLED],
    }  # fmt: skip


def without_size() -> Cluster:
    return Cluster(of_0_31(verifier=replace(worlds.SPEC.verifier, max_num_seqs=None)))


def lose_status(cluster: Cluster) -> None:
    cluster.status = {}


def lose_block(cluster: Cluster) -> None:
    cluster.status["speculation"] = {}


def nothing(cluster: Cluster) -> None:
    del cluster


def plain() -> Cluster:
    return Cluster(of_0_31())


def mirrored() -> Cluster:
    return Mirrored(of_0_31())


SCHEDULED = Speculation(mode=Mode.STATIC, schedule=KTable.from_rows([[1, 32, 3], [33, 256, 0]]))
STORIES: dict[str, tuple[Callable[[], Cluster], Callable[[Cluster], None]]] = {
    "nothing else": (plain, nothing),
    "Recommend": (lambda: Cluster(of_0_31(speculation=Speculation(mode=Mode.RECOMMEND))), nothing),
    "a schedule": (lambda: Cluster(of_0_31(speculation=SCHEDULED)), nothing),
    "a lost status": (plain, lose_status),
    "a lost block of status": (plain, lose_block),
    "a lost annotation": (plain, strip),
    "a webhook's mirror": (mirrored, nothing),
    "a webhook's mirror and more replicas": (mirrored, lambda one: one.edit(replicas=3)),
    "more replicas": (plain, lambda one: one.edit(replicas=3)),
    "an edit by hand": (plain, set_image),
    "a pause": (plain, pause),
    "skipping in the spec": (plain, turn_skipping_on),
    "a default that is written out": (without_size, write_out_a_default),
    "a pair that is read later": (read_later, nothing),
}


@pytest.mark.parametrize("story", STORIES)
def test_pods_are_replaced_only_where_the_release_before_would(story: str) -> None:
    make, happens = STORIES[story]

    def start() -> Cluster:
        with release_before():
            cluster = settle(make())
        assert "--scheduler-cls" not in args(cluster)
        cluster.upgraded = True
        cluster.forget()
        return cluster

    def run(cluster: Cluster) -> tuple[int, Any]:
        happens(cluster)
        for _ in range(5):
            cluster.tick()
        return cluster.templates, template(cluster.children["Deployment", "demo"])

    with release_before():
        expected = run(start())
    assert run(start()) == expected


class TestOwnRollouts:
    """Those of the tuner go on as they were, with the permission and the way back that they need."""

    @staticmethod
    def tuned(monkeypatch: pytest.MonkeyPatch, spec: DeploymentSpec) -> tuple[Cluster, Tuner]:
        tuner = Tuner()
        monkeypatch.setattr(deciding, "decide", tuner)
        with release_before():
            cluster = settle(Cluster(spec))
        cluster.upgraded = True
        return cluster, tuner

    def test_a_rollout_of_the_tuner_is_watched(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cluster, tuner = self.tuned(monkeypatch, of_0_31(replicas=1))
        cluster.forget()
        tuner.wishes = [{"table": KTable.constant(1, 256), "reason": Reason.FASTER, "changed": True}]
        cluster.tick(observed(cluster))
        assert cluster.templates == 2
        assert "--scheduler-cls" not in args(cluster)
        assert "last" in cluster.status["rollout"]

    def test_one_that_stalls_goes_back_to_the_pods_that_were(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cluster, tuner = self.tuned(monkeypatch, of_0_31(replicas=1))
        first = deepcopy(template(cluster.children["Deployment", "demo"]))
        with release_before():
            tuner.wishes = [{"table": KTable.constant(1, 256), "reason": Reason.FASTER, "changed": True}]
            cluster.tick(observed(cluster))
        assert cluster.templates == 2
        stall(cluster)
        cluster.forget()
        for _ in range(4):
            cluster.tick()
        assert template(cluster.children["Deployment", "demo"]) == first
        assert "heldUntil" in cluster.status["rollout"]
        assert cluster.children["Deployment", "demo"]["spec"]["strategy"]["type"] != "Recreate"

    def test_one_is_the_tuners_too_where_an_edit_that_changes_no_pod_comes_with_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster, tuner = self.tuned(monkeypatch, without_size().spec)
        write_out_a_default(cluster)
        tuner.wishes = [{"table": KTable.constant(1, 256), "reason": Reason.FASTER, "changed": True}]
        cluster.tick(observed(cluster))
        assert cluster.templates == 2
        assert "--scheduler-cls" not in args(cluster)

    def test_pods_without_their_drafter_stay_without(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cluster, tuner = self.tuned(monkeypatch, of_0_31(REMOVABLE))
        with release_before():
            tuner.remove(active_table(cluster))
            cluster.tick(observed(cluster))
            cluster.settle()
        assert cluster.status["speculation"]["speculatorRemoved"] is True
        before = cluster.templates
        cluster.forget()
        for _ in range(4):
            cluster.tick(observed(cluster))
        assert cluster.templates == before

    def test_pods_without_their_drafter_are_not_made_anew_for_a_flag(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cluster, tuner = self.tuned(monkeypatch, of_0_31(REMOVABLE))
        with release_before():
            tuner.remove(active_table(cluster))
            cluster.tick(observed(cluster))
            cluster.settle()
        before = cluster.templates
        cluster.forget()
        install(monkeypatch, "--anew")
        for _ in range(4):
            cluster.tick(observed(cluster))
        assert cluster.templates == before


class TestAskedFor:
    def test_a_warning_says_what_pods_could_do_by_now(self) -> None:
        cluster = upgraded()
        cluster.tick()
        (warning,) = cluster.status["warnings"]
        assert warning["reason"] == "UpgradeWaits"
        assert "without a rollout" in warning["message"]

    def test_a_new_value_of_adopt_replaces_them(self) -> None:
        cluster = upgraded()
        cluster.annotate(adopt="live")
        assert_live(cluster)

    def test_an_edit_that_makes_other_pods_does(self) -> None:
        cluster = upgraded()
        cluster.edit(verifier=replace(cluster.spec.verifier, max_num_seqs=64))
        assert_live(cluster)

    def test_an_edit_in_which_a_table_changes_does(self) -> None:
        cluster = upgraded()
        cluster.edit(speculation=SCHEDULED)
        assert_live(cluster)

    def test_an_operator_that_is_killed_before_it_writes_status_goes_on(self) -> None:
        cluster = upgraded()
        cluster.annotate(adopt="live")
        status = deepcopy(cluster.status)
        cluster.tick()
        cluster.tick()
        cluster.status = status
        cluster.forget()
        before = cluster.templates
        assert_live(cluster)
        assert cluster.templates == before


def upgraded(**change: Any) -> Cluster:
    with release_before():
        cluster = settle(Cluster(of_0_31(**change)))
    cluster.upgraded = True
    cluster.forget()
    return cluster


def assert_live(cluster: Cluster) -> None:
    for _ in range(5):
        cluster.tick()
    assert "--scheduler-cls" in args(cluster)
    assert cluster.status["speculation"]["actuator"] == "Live"
    assert not any(one["reason"] == "UpgradeWaits" for one in cluster.status.get("warnings", ()))


def args(cluster: Cluster) -> list[str]:
    found: list[str] = template(cluster.children["Deployment", "demo"])["spec"]["containers"][0]["args"]
    return found
