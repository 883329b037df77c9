"""What holds for every world, however garbled."""

import math
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.reconcile.worlds import NOW, SPEC, Cluster, observed, window

from speculative_operator.domain.observation import Gap, Observation, PodWindow
from speculative_operator.domain.reasons import NOT_ALWAYS, ConditionType, Reason
from speculative_operator.domain.spec import (
    Method,
    Mode,
    ModelSource,
    OffPolicy,
    RolloutStrategy,
    Scheme,
    Speculation,
    Speculator,
)
from speculative_operator.domain.table import KTable
from speculative_operator.reconcile.snapshot.writing import should_write
from speculative_operator.reconcile.turn import invalid

SLOW = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
WORDS = st.sampled_from(
    ["conditions", "type", "status", "reason", "Ready", "True", "speculation", "table", "tableVersion", "decisions",
     "memory", "pair", "hash", "metadata", "annotations", "spec", "replicas", "data", "table.json", "state", "time",
     "engine", "warnings", "asked", "vLLM 0.32.0", "version", "live", "since", "tableSince", "message",
     "2027-01-15T08:00:00Z", "tableVersionInPods"]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=15,
)
OBJECTS = st.dictionaries(WORDS, JSON, max_size=5)
SETTLED = Cluster()
SETTLED.settle()
DRAFT = ModelSource(Scheme.HF, "Qwen/Qwen3-0.6B")
KEYS = sorted(SETTLED.children)
FLOATS = st.floats() | st.floats(0, 1e6)
WINDOWS = st.builds(
    PodWindow,
    **{one.name: FLOATS for one in fields(PodWindow) if one.type == "float"},
    drafts=st.none() | FLOATS,
    draft_tokens=st.none() | FLOATS,
    accepted_tokens=st.none() | FLOATS,
    accepted_per_position=st.lists(FLOATS, max_size=4).map(tuple),
    table_version=st.none() | st.integers(-1, 5),
    live=st.none() | st.booleans(),
    engine_version=st.sampled_from(["", "0.32.0", "0.34.1", "0.1.dev1"]) | st.text(max_size=400),
)
OBSERVATIONS = st.builds(
    Observation,
    time=st.just(NOW) | st.floats(),
    pods=st.dictionaries(
        st.sampled_from(["demo-t1-0", "demo-t1-1", "x"]),
        WINDOWS | st.builds(Gap, st.sampled_from(list(Reason)), st.text(max_size=5)) | st.just(window(NOW)),
    ),
    gap=st.none() | st.builds(Gap, st.sampled_from(list(Reason)), st.text(max_size=5)),
)
SPECS = st.builds(
    lambda mode, method, maximum, start, policy, replicas, strategy: replace(
        SPEC,
        replicas=replicas,
        rollout_strategy=strategy,
        speculator=Speculator(method, None if method.draft_free else DRAFT),
        speculation=Speculation(
            mode=mode, max_speculative_tokens=maximum, num_speculative_tokens=min(start, maximum), off_policy=policy
        ),
    ),
    st.sampled_from(Mode),
    st.sampled_from([Method.DRAFT_MODEL, Method.EAGLE3, Method.NGRAM, Method.SUFFIX]),
    st.integers(1, 8),
    st.integers(1, 8),
    st.sampled_from(OffPolicy),
    st.integers(0, 3),
    st.sampled_from(RolloutStrategy),
)


@SLOW
@given(part=OBSERVATIONS)
def test_absurd_observations_replace_no_pod_and_keep_the_table_legal(part: Observation) -> None:
    cluster = deepcopy(SETTLED)
    for _ in range(3):
        cluster.tick(part)
    assert cluster.templates == 1
    table = KTable.from_rows(cluster.table["rows"])
    assert table.max_batch == 256
    for value in cluster.status["speculation"].values():
        assert not isinstance(value, float)
        assert str(value).lower() not in ("nan", "inf", "-inf", "nan%", "+nan%", "inf%", "nanms", "infms")


GAPS = st.builds(Gap, st.sampled_from(list(Reason)), st.text(max_size=5))
BLIND = st.builds(Observation, time=st.just(NOW), gap=GAPS) | st.builds(
    Observation, time=st.just(NOW), pods=st.dictionaries(st.sampled_from(["demo-t1-0", "demo-t1-1"]), GAPS, min_size=1)
)


@SLOW
@given(blind=BLIND, times=st.integers(1, 5))
def test_who_sees_nothing_changes_nothing(blind: Observation, times: int) -> None:
    cluster = deepcopy(SETTLED)
    for _ in range(3):
        cluster.tick(observed(cluster))
    cluster.tick()
    table, decisions = cluster.table, cluster.status["decisions"]
    for _ in range(times):
        assert cluster.tick(blind).actions == ()
    assert (cluster.table, cluster.status["decisions"]) == (table, decisions)


@SLOW
@given(spec=SPECS)
def test_carrying_out_the_plan_leaves_nothing_to_do(spec: Any) -> None:
    cluster = Cluster(spec=spec)
    cluster.settle()
    assert cluster.look().actions == ()
    templates = cluster.templates
    cluster.forget()
    cluster.settle()
    assert cluster.templates == templates <= 1


@SLOW
@given(first=SPECS, second=SPECS)
def test_any_edit_settles_and_costs_at_most_one_rollout(first: Any, second: Any) -> None:
    cluster = Cluster(spec=first)
    cluster.settle()
    cluster.edit(
        **{name: getattr(second, name) for name in ("speculator", "speculation", "replicas", "rollout_strategy")}
    )
    cluster.settle()
    assert cluster.look().actions == ()
    assert cluster.templates <= 2
    fresh = Cluster(spec=second)
    fresh.settle()
    # What the namespace shares is no child: the shell collects it.
    assert cluster.world().children.keys() == fresh.world().children.keys()


@SLOW
@given(spec=SPECS, batches=st.lists(st.floats(0.5, 250), min_size=1, max_size=6), restarts=st.sets(st.integers(0, 5)))
def test_versions_only_grow_and_pods_always_learn_of_the_newest(
    spec: Any, batches: list[float], restarts: set[int]
) -> None:
    cluster = Cluster(spec=spec)
    cluster.settle()
    last = 0
    for place, batch in enumerate(batches):
        if place in restarts:
            cluster.forget()
        cluster.tick(observed(cluster, batch=batch, survival=0.3))
        cluster.roll()
        version = cluster.status["speculation"].get("tableVersion", 0)
        assert version >= last
        last = version
    cluster.settle()
    if cluster.config("table") in cluster.children:
        assert cluster.table["version"] == last
        assert cluster.table["rows"] == cluster.status["speculation"]["table"]


@given(old=OBJECTS, new=OBJECTS, at=st.floats())
def test_should_write_never_fails_and_is_quiet_about_the_same(
    old: dict[str, Any], new: dict[str, Any], at: float
) -> None:
    assert should_write(old, new, at, NOW) in (True, False)
    clean = {key: value for key, value in old.items() if "nan" not in repr(value)}
    assert should_write(clean, deepcopy(clean), at, NOW) is False or math.isnan(at)


@given(owner=OBJECTS, message=st.text(max_size=20))
def test_invalid_never_fails(owner: dict[str, Any], message: str) -> None:
    outcome = invalid(owner, message, NOW)
    assert outcome.actions == ()
    told = {one["type"] for one in outcome.status["conditions"]}
    assert told | NOT_ALWAYS == {*ConditionType}
