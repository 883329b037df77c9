"""Room for one more pod: what counts is what the scheduler counts, and every doubt counts against it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_operator.reconcile.room import Need, fits, is_large_enough, may_run_on, most, need_of, request_of

GPU = "nvidia.com/gpu"
Json = dict[str, Any]


def container(**amounts: Any) -> Json:
    return {
        "name": "engine",
        "resources": {"limits": {GPU if name == "gpu" else name: one for name, one in amounts.items()}},
    }


def template(*containers: Json, **spec: Any) -> Json:
    return {"metadata": {}, "spec": {"containers": list(containers or [container(gpu=1)]), **spec}}


def pod(gpus: Any = 1, phase: str = "Running", **meta: Any) -> Json:
    return {
        "metadata": {"name": "p", **meta},
        "status": {"phase": phase},
        **{"spec": template(container(gpu=gpus))["spec"]},
    }


def node(gpus: Any = 8, name: str = "n1", **change: Any) -> Json:
    found: Json = {
        "metadata": {"name": name, "labels": {"zone": "a", "rank": "5"}},
        "spec": {},
        "status": {
            "allocatable": {GPU: str(gpus), "cpu": "64", "memory": "512Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    for path, value in change.items():
        *parents, last = path.split("__")
        part = found
        for parent in parents:
            part = part[parent]
        part[last] = value
    return found


def need(*containers: Json, **spec: Any) -> Need:
    found = need_of(template(*containers, **spec))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("running", "asked", "room"),
    [
        ([], 8, True),
        ([pod(4)], 4, True),
        ([pod(4), pod(1)], 4, False),
        ([pod(8)], 1, False),
        ([pod(8, phase="Succeeded")], 1, True),
        ([pod(8, phase="Failed")], 1, True),
        ([pod(8, deletionTimestamp="2026-11-22T10:00:00Z")], 1, False),
        ([pod(8, phase="Pending")], 1, False),
        ([pod("eight")], 1, False),
        ([], 9, False),
    ],
)
def test_accelerators_are_counted_on_one_node(running: list[Json], asked: int, room: bool) -> None:
    assert fits(need(container(gpu=asked)), node(), running, ()) is room


def test_two_halves_on_two_nodes_are_no_whole() -> None:
    wanted = need(container(gpu=8))
    assert not any(fits(wanted, node(name=name), [pod(4)], ()) for name in ("n1", "n2"))


@pytest.mark.parametrize(
    ("waiting", "room"),
    [([], True), ([pod(1)], True), ([pod(4)], False), ([pod(1)] * 4, False), ([pod(16)], True), ([pod("x")], False)],
    ids=["none", "beside it", "in its place", "many small ones", "too large for the node", "unreadable"],
)
def test_pods_that_wait_may_take_the_place_first(waiting: list[Json], room: bool) -> None:
    assert fits(need(container(gpu=1)), node(4), (), waiting) is room


def test_processors_and_memory_count_where_they_are_asked_for() -> None:
    busy = {
        "metadata": {},
        "status": {"phase": "Running"},
        "spec": template(container(cpu="60", memory="100Gi"))["spec"],
    }
    assert fits(need(container(gpu=1, cpu="4000m", memory="412Gi")), node(), [busy], ())
    assert not fits(need(container(gpu=1, cpu="4001m")), node(), [busy], ())
    assert not fits(need(container(gpu=1, memory="413Gi")), node(), [busy], ())


def test_a_node_with_as_many_pods_as_it_may_have_is_full() -> None:
    full = [{"metadata": {}, "status": {"phase": "Running"}, "spec": {"containers": [{}]}}] * 110
    assert not fits(need(container(cpu="1m")), node(), full, ())
    assert fits(need(container(cpu="1m")), node(), full[1:], ())


def test_what_a_pod_asks_for_is_counted_as_the_scheduler_does() -> None:
    found = request_of(
        template(
            container(cpu=2), container(cpu="500m"),
            initContainers=[container(cpu=3), {**container(cpu=1), "restartPolicy": "Always"}],
            overhead={"cpu": "250m"},
        )
    )  # fmt: skip
    assert found is not None
    assert found["cpu"] == Decimal("4.25"), "the first init container beside the one that stays, and the overhead"
    both = request_of(template({"resources": {"limits": {"cpu": 8}, "requests": {"cpu": 1}}}))
    assert both is not None
    assert both["cpu"] == 1


TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("there", "asked", "may"),
    [
        ({}, {}, True),
        ({"spec__unschedulable": True}, {}, False),
        ({"status__conditions": [{"type": "Ready", "status": "Unknown"}]}, {}, False),
        ({"status__conditions": []}, {}, False),
        ({"metadata__deletionTimestamp": "2026-11-22T10:00:00Z"}, {}, False),
        ({"spec__taints": [TAINT]}, {}, False),
        ({"spec__taints": [{**TAINT, "effect": "PreferNoSchedule"}]}, {}, True),
        ({"spec__taints": [TAINT]}, {"tolerations": [{"operator": "Exists"}]}, True),
        ({"spec__taints": [TAINT]}, {"tolerations": [{"key": "gpu", "operator": "Exists"}]}, True),
        ({"spec__taints": [TAINT]}, {"tolerations": [{"key": "gpu", "value": "yes"}]}, True),
        ({"spec__taints": [TAINT]}, {"tolerations": [{"key": "gpu", "value": "no"}]}, False),
        ({"spec__taints": [TAINT]}, {"tolerations": [{"key": "gpu", "value": "yes", "effect": "NoExecute"}]}, False),
        ({"spec__taints": [TAINT]}, {"tolerations": [{"value": "yes"}]}, False),
        ({}, {"nodeSelector": {"zone": "a"}}, True),
        ({}, {"nodeSelector": {"zone": "b"}}, False),
        ({}, {"nodeName": "n2"}, False),
    ],
)
def test_where_a_pod_may_run(there: Json, asked: Json, may: bool) -> None:
    assert may_run_on(need(**asked), node(**there)) is may


@pytest.mark.parametrize(
    ("requirement", "may"),
    [
        (("zone", "In", ["a", "b"]), True),
        (("zone", "In", ["b"]), False),
        (("zone", "NotIn", ["b"]), True),
        (("zone", "NotIn", ["a"]), False),
        (("zone", "Exists", []), True),
        (("rack", "Exists", []), False),
        (("rack", "DoesNotExist", []), True),
        (("rank", "Gt", ["4"]), True),
        (("rank", "Lt", ["4"]), False),
        (("zone", "Gt", ["4"]), False),
        (("zone", "Like", ["a"]), False),
    ],
)
def test_required_affinity_to_nodes(requirement: tuple[str, str, list[str]], may: bool) -> None:
    key, operator, values = requirement
    terms = [{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    assert may_run_on(need(affinity={"nodeAffinity": required}), node()) is may
    named = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    by_name = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": named}}
    assert may_run_on(need(affinity={"nodeAffinity": by_name}), node())
    assert not may_run_on(need(affinity={"nodeAffinity": by_name}), node(name="n2"))


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "h"}]}}},
        {"topologySpreadConstraints": [{"maxSkew": 1}]},
        {"hostNetwork": True},
        {"schedulerName": "volcano"},
        {"resourceClaims": [{"name": "gpu"}]},
        {"containers": [{"ports": [{"containerPort": 1, "hostPort": 1}]}]},
        {"containers": [{"resources": {"limits": {GPU: "many"}}}]},
    ],
)
def test_what_cannot_be_judged_proves_nothing(spec: Json) -> None:
    assert need_of({"spec": {**template()["spec"], **spec}}) is None


def test_nodes_with_most_accelerators_come_first() -> None:
    wanted = need(container(gpu=1))
    assert most(node(8), wanted) > most(node(2), wanted) > most(node("x"), wanted)
    assert [is_large_enough(need(container(gpu=4)), node(count)) for count in (2, 4)] == [False, True]


COUNTS = st.lists(st.integers(0, 8), max_size=12)


@pytest.mark.parametrize(
    ("spec", "counts"),
    [({}, True), ({"nodeSelector": {"zone": "b"}}, False), ({"topologySpreadConstraints": [{"maxSkew": 1}]}, True)],
    ids=["may run there", "chooses other nodes", "cannot be judged"],
)
def test_a_pod_that_waits_counts_where_it_may_run(spec: Json, counts: bool) -> None:
    waits = {**pod(), "spec": template(container(gpu=1), **spec)["spec"]}
    assert fits(need(container(gpu=1)), node(1), (), [waits]) is not counts


@given(st.integers(0, 16), COUNTS, COUNTS, st.integers(1, 8))
def test_room_is_never_found_twice(allocatable: int, running: list[int], waiting: list[int], asked: int) -> None:
    """What was found, placed beside all that run and all that waits and fits by itself, never asks for more than is
    there; and one more pod that runs never makes room."""
    there, wanted = node(allocatable), need(container(gpu=asked))
    beside, before = [pod(count) for count in running], [pod(count) for count in waiting]
    left = allocatable - sum(running)
    ahead = sum(count for count in waiting if count <= left)
    assert fits(wanted, there, beside, before) is (asked + ahead <= left and len(running) + len(waiting) < 110)
    assert fits(wanted, there, beside, ()) or not fits(wanted, there, [*beside, pod(1)], ())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["spec", "containers", "resources", "limits", "status", "allocatable", "taints", "labels",
                             "metadata", "conditions", "tolerations", "affinity", "initContainers", GPU]),
            inner, max_size=4,
        ),
        max_leaves=12,
    )
)  # fmt: skip
def test_garbled_objects_are_no_room_and_no_error(body: Any) -> None:
    given_node = body if isinstance(body, dict) else {}
    assert not fits(need(container(gpu=1)), given_node, (), ())
    assert not may_run_on(need(), given_node)
    fits(need(container(gpu=1)), node(), [given_node], [given_node])
    need_of(given_node)
