"""Whatever others wrote is read without a failure, and costs no pod and no object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.reconcile.observed.test_inference_service import serve as serve_by_kserve
from tests.unit.reconcile.observed.test_leader_worker_set import serve as serve_by_group
from tests.unit.reconcile.observed.test_llm_inference_service import serve as serve_by_llm
from tests.unit.reconcile.paired import serving
from tests.unit.reconcile.worlds import Cluster, retuned, settled

from speculative_operator.domain.actions import Action, ApplyChild, DeleteChild
from speculative_operator.reconcile.observed.drift import first_difference

SLOW = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.just("2027-01-15T08:00:00Z"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
CLUSTERS = {
    "settled": settled(),
    "retuned": retuned(),
    "paired": serving(),
    "InferenceService": serve_by_kserve(),
    "LLMInferenceService": serve_by_llm(),
    "LeaderWorkerSet": serve_by_group(),
}


@st.composite
def paths(draw: st.DrawFn, value: Any) -> tuple[Any, ...]:
    """A way to some value within, or to the whole: short ones more often, for they take more away."""
    path: list[Any] = []
    while value and isinstance(value, dict | list) and draw(st.integers(0, 3)):
        path.append(draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value)))))
        value = value[path[-1]]
    return tuple(path)


def damaged(value: Any, path: tuple[Any, ...], damage: Any) -> Any:
    """A copy of `value` with `damage` at the end of `path`."""
    if not path:
        return damage
    copy = deepcopy(value)
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = damage
    return copy


def bodies(cluster: Cluster) -> dict[Any, Any]:
    """All that is read, by its place."""
    found: dict[Any, Any] = {"status": cluster.status, "notes": cluster.remembered or {}}
    return found | cluster.children | dict(enumerate(cluster.pods))


@SLOW
@pytest.mark.parametrize("name", CLUSTERS)
@given(data=st.data())
def test_any_damage_is_read_without_a_failure_and_means_no_harm(name: str, data: st.DataObject) -> None:
    cluster = deepcopy(CLUSTERS[name])
    every = bodies(cluster)
    place = data.draw(st.sampled_from(sorted(every, key=str)))
    found = damaged(every[place], data.draw(paths(every[place])), data.draw(ANYTHING))
    body = found if isinstance(found, dict) else {}
    if place in ("status", "notes"):
        setattr(cluster, {"status": "status", "notes": "remembered"}[place], body)
    elif isinstance(place, int):
        cluster.pods[place] = body
    else:
        cluster.children[place] = body
    actions = cluster.look().actions
    assert not [one for one in actions if isinstance(one, DeleteChild) and one.kind != "Job"]
    if isinstance(place, tuple):
        return  # what somebody changed in a child is put back
    before = deepcopy(cluster.children)
    assert remade(before, actions) == [], "a damaged word replaced pods"
    if place == "status":
        cluster.forget()
        cluster.upgraded = True
        for _ in range(3):
            assert remade(before, cluster.tick().actions) == [], "a damaged word replaced pods"


def remade(children: Mapping[tuple[str, str], Any], actions: Iterable[Action]) -> list[str]:
    """Where the spec of an object is applied otherwise than it is."""
    applied = [one.manifest for one in actions if isinstance(one, ApplyChild) and "spec" in one.manifest]
    pairs = ((one["spec"], children.get((one["kind"], one["metadata"]["name"]))) for one in applied)
    return [where for new, old in pairs if old is not None and (where := first_difference(new, old["spec"]))]


def test_what_is_read_is_what_was_written() -> None:
    found = CLUSTERS["settled"].snapshot()
    status = CLUSTERS["settled"].status
    assert found.workload.exists
    assert found.workload.resolved is not None
    assert found.rollout.complete
    assert [pod.ready for pod in found.pods] == [True, True]
    assert found.status.speculation.version == status["speculation"]["tableVersion"]
    assert found.status.pair.hash == status["pair"]["hash"] == found.workload.pair
    assert found.status.memory
    assert all(child.owned for child in found.children.values())
