"""Whole ticks against a cluster in a dictionary: edits, what stands in the way, pausing, restarts."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.worlds import (
    KEPT,
    SPEC,
    Cluster,
    applies,
    observed,
    plain,
    reasons,
    restart,
    retuned,
    settled,
)

from speculative_operator.api.status import Status
from speculative_operator.domain import names
from speculative_operator.domain.actions import ApplyChild, Condition, DeleteChild, PokePod, Truth
from speculative_operator.domain.reasons import NOT_ALWAYS, ConditionType, Reason
from speculative_operator.domain.spec import (
    EngineSettings,
    EngineType,
    Method,
    Mode,
    ModelSource,
    Scheme,
    Speculation,
    Speculator,
    Target,
)
from speculative_operator.domain.table import KTable
from speculative_operator.reconcile.snapshot.writing import should_write
from speculative_operator.reconcile.tick import invalid
from speculative_operator.render import Capabilities
from speculative_operator.render.podspec import table_name

PAUSED = replace(SPEC, paused=True)

DRAFT_MODEL = Speculator(Method.DRAFT_MODEL, ModelSource(Scheme.HF, "Qwen/Qwen3-0.6B"))

# -- spec edits


def test_an_edit_reaches_the_pods_and_is_named() -> None:
    cluster = settled()
    cluster.edit(engine=EngineSettings(args=("--seed=1",)))
    outcome = cluster.tick()
    assert applies(outcome) == [("Deployment", "demo", Reason.SPEC_CHANGED)]
    (action,) = outcome.actions
    assert isinstance(action, ApplyChild)
    assert "args" in action.why
    assert cluster.templates == 2
    assert cluster.condition("Progressing")["status"] == "True"
    assert cluster.status["observedGeneration"] == 2


def test_a_smaller_engine_gets_a_smaller_table() -> None:
    cluster = retuned()
    before = KTable.from_rows(cluster.table["rows"])
    cluster.edit(verifier=replace(SPEC.verifier, max_num_seqs=64))
    outcome = cluster.tick()
    assert [event.reason for event in outcome.events].count(Reason.SPEC_CHANGED) >= 1
    after = KTable.from_rows(cluster.table["rows"])
    assert after == before.resize(64)
    assert cluster.table["version"] == 3
    assert cluster.status["decisions"][0]["reason"] == "SpecChanged"


def test_fewer_drafts_allowed_lowers_every_k() -> None:
    cluster = settled(spec=KEPT)
    assert max(row[2] for row in cluster.table["rows"]) == 3
    cluster.edit(speculation=replace(KEPT.speculation, max_speculative_tokens=1))
    cluster.tick()
    assert {row[2] for row in cluster.table["rows"]} == {1}


def test_another_pair_starts_from_the_prior() -> None:
    cluster = retuned()
    fresh = settled().table["rows"]
    assert cluster.table["rows"] != fresh
    speculator = Speculator(Method.DRAFT_MODEL, ModelSource(Scheme.HF, "Qwen/Qwen3-0.6B", "other"))
    cluster.edit(speculator=speculator)
    outcome = cluster.tick()
    assert outcome.memory is not None
    assert outcome.memory.windows == 0
    cluster.tick()
    assert cluster.table["rows"] == fresh
    assert cluster.templates == 2, "verifier and speculator roll as one"


def test_turning_it_off_removes_what_only_speculation_needs_and_only_then() -> None:
    cluster = settled()
    cluster.edit(speculation=Speculation(mode=Mode.DISABLED))
    outcome = cluster.tick()
    assert not any(isinstance(action, DeleteChild) for action in outcome.actions), "old pods still mount it"
    cluster.roll()
    outcome = cluster.tick()
    assert {plain(action.name) for action in outcome.actions if isinstance(action, DeleteChild)} == {"demo-table"}
    assert cluster.look().actions == ()
    assert cluster.condition("SpeculationActive")["reason"] == "Disabled"
    assert cluster.status["decisions"][0]["to"] == "none"


def test_versions_grow_over_off_and_on() -> None:
    cluster = retuned()
    cluster.edit(speculation=Speculation(mode=Mode.DISABLED))
    cluster.settle()
    assert cluster.status["speculation"]["tableVersion"] == 2
    cluster.edit(speculation=Speculation())
    cluster.settle()
    assert cluster.table["version"] == 3


def test_a_foreign_child_of_an_unwanted_kind_is_never_deleted() -> None:
    cluster = settled()
    stranger = {
        "kind": "Secret",
        "metadata": {"name": "x", "uid": "u", "ownerReferences": [{"uid": "uid-1", "controller": True}]},
    }
    cluster.children["Secret", "x"] = stranger
    cluster.children["Service", "other"] = {"kind": "Service", "metadata": {"name": "other", "uid": "v"}}
    assert cluster.look().actions == ()


def test_pod_monitor_comes_with_its_kind_and_is_never_deleted() -> None:
    """Where the kind is gone, so are its objects."""
    cluster = settled()
    cluster.capabilities = Capabilities(pod_monitor=True)
    assert applies(cluster.tick()) == [("PodMonitor", "demo", Reason.CREATED)]
    cluster.capabilities = Capabilities()
    assert cluster.tick().actions == ()


# -- accelerators and autoscalers


def test_a_strategy_edited_by_hand_is_put_back() -> None:
    cluster = settled()
    cluster.children["Deployment", "demo"]["spec"]["strategy"] = {"type": "Recreate"}
    (action,) = cluster.look().actions
    assert isinstance(action, ApplyChild)
    assert action.manifest["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_replicas_are_left_to_an_autoscaler() -> None:
    cluster = settled()
    deployment = cluster.children["Deployment", "demo"]
    deployment["spec"]["replicas"] = 5
    deployment["metadata"]["managedFields"] = [
        {"manager": "kube-controller-manager", "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    ]
    (action,) = cluster.look().actions
    assert isinstance(action, ApplyChild)
    assert "replicas" not in action.manifest["spec"]


# -- what stands in the way


def test_a_taken_name_is_left_alone_and_said() -> None:
    cluster = Cluster()
    cluster.children["Service", "demo"] = {"kind": "Service", "metadata": {"name": "demo", "uid": "theirs"}}
    outcome = cluster.tick()
    assert ("Service", "demo", Reason.CREATED) not in applies(outcome)
    assert ("Deployment", "demo", Reason.CREATED) in applies(outcome)
    ready = cluster.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "NameConflict")
    assert "Service demo exists and has no owner" in ready["message"]
    assert Reason.NAME_CONFLICT in reasons(outcome)


def test_pods_never_mount_a_strangers_config() -> None:
    cluster = Cluster()
    owner = {"kind": "Thing", "name": "boss", "uid": "x", "controller": True}
    table = table_name(SPEC)
    cluster.children["ConfigMap", table] = {"metadata": {"name": table, "ownerReferences": [owner]}}
    outcome = cluster.look()
    assert not {"Deployment"} & {kind for kind, _, _ in applies(outcome)}
    assert "belongs to Thing boss" in outcome.status["conditions"][0]["message"]


V2 = {"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "1"}
HEAD = Speculator(Method.EAGLE3, ModelSource(Scheme.HF, "RedHatAI/Qwen3-8B-speculator.eagle3"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"target": Target.INFERENCE_SERVICE}, Reason.UNSUPPORTED_TARGET),
        *(
            ({"speculator": replace(HEAD, method=method), "engine": EngineSettings(engine, version)}, reason)
            for engine, version, method, reason in (
                (EngineType.SGLANG, "0.5.23", Method.SUFFIX, Reason.UNSUPPORTED_BY_ENGINE),
                (EngineType.TENSORRT_LLM, "1.2.0", Method.DSPARK, Reason.UNSUPPORTED_BY_ENGINE),
            )
        ),
        ({"verifier": replace(SPEC.verifier, source=ModelSource(Scheme.S3, "b/m"))}, Reason.UNSUPPORTED_SOURCE),
    ],
)
def test_a_refused_object_renders_nothing_and_says_why(change: dict[str, Any], reason: Reason) -> None:
    outcome = Cluster(spec=replace(SPEC, **change)).look()
    assert outcome.actions == ()
    ready = outcome.status["conditions"][0]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "False", reason.value)
    assert reason in reasons(outcome)
    Status.model_validate(outcome.status)


def arguments(cluster: Cluster) -> str:
    """Of the engine, as the Deployment has them."""
    pod = cluster.children["Deployment", "demo"]["spec"]["template"]["spec"]
    return " ".join(pod["containers"][0]["args"])


def test_a_release_older_than_the_method_serves_without_a_speculator() -> None:
    """As a platform's image may be: its user is served, told why nothing drafts, and gets it with a newer release."""
    older = EngineSettings(version="0.11.0+rhai5", image="registry.example.com/vllm:3", version_named=True)
    cluster = settled(spec=replace(SPEC, speculator=DRAFT_MODEL, engine=older))
    assert "speculative" not in arguments(cluster)
    assert cluster.condition("Ready")["status"] == "True"
    for kind in ("SpeculationActive", "TuningConverged"):
        assert cluster.condition(kind)["reason"] == "UnsupportedByEngine"
    for part in ("pods serve without a speculator", "draft_model", "0.15.0", "0.11.0"):
        assert part in cluster.condition("SpeculationActive")["message"]
    (warning,) = [one for one in cluster.status["warnings"] if one["reason"] == "UnsupportedByEngine"]
    assert "pods serve without a speculator" in warning["message"]
    cluster.edit(replicas=3)
    assert applies(cluster.tick()) == [("Deployment", "demo", Reason.SPEC_CHANGED)]
    cluster.edit(engine=replace(older, version="0.32.0"))
    cluster.settle()
    assert "--speculative-config" in arguments(cluster)
    for kind in ("SpeculationActive", "TuningConverged"):
        assert cluster.condition(kind)["reason"] != "UnsupportedByEngine"
    assert "warnings" not in cluster.status


def test_pods_that_speculate_stay_when_the_release_is_edited_to_one_older_than_the_method() -> None:
    cluster = settled(spec=replace(SPEC, speculator=DRAFT_MODEL))
    before = arguments(cluster)
    cluster.edit(engine=EngineSettings(version="0.11.0", version_named=True))
    assert cluster.tick().actions == ()
    assert arguments(cluster) == before
    assert cluster.condition("Ready")["reason"] == "UnsupportedByEngine"


@pytest.mark.parametrize(
    "change",
    [
        {"engine": EngineSettings(version="0.10.0", version_named=True)},
        {"engine": EngineSettings(version="0.11.0", version_named=True, args=("--model=x",))},
        {"speculator": Speculator(Method.MEDUSA, HEAD.source), "engine": EngineSettings(env=(V2,))},
    ],
    ids=["the release cannot serve at all", "something else is wrong too", "no release has the method on that runner"],
)
def test_what_a_newer_release_would_not_mend_is_refused(change: dict[str, Any]) -> None:
    assert Cluster(spec=replace(SPEC, **{"speculator": DRAFT_MODEL, **change})).look().actions == ()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"engine": EngineSettings(EngineType.TENSORRT_LLM, "0.20.0")}, "UnsupportedByEngine"),
        ({"engine": EngineSettings(version="0.9.0")}, "UnsupportedByEngine"),
    ],
)
def test_a_refused_edit_leaves_the_serving_pods_alone(change: dict[str, Any], reason: str) -> None:
    cluster = retuned()
    before = {name: getattr(cluster.spec, name) for name in change}
    children, block = deepcopy(cluster.children), cluster.status["speculation"]
    cluster.edit(**change)
    outcome = cluster.tick(observed(cluster, batch=200, survival=0.2))
    assert outcome.actions == ()
    assert cluster.children == children
    assert cluster.status["speculation"] == block
    assert cluster.condition("Ready")["reason"] == reason
    assert cluster.condition("Available")["status"] == "True"
    assert cluster.tick().events == (), "told once"
    cluster.edit(**before)
    assert [type(action) for action in cluster.tick().actions] == [PokePod, PokePod], "nothing was lost"
    assert cluster.condition("Ready")["reason"] == "AllReady"


def test_an_override_that_cannot_be_rendered_changes_nothing() -> None:
    cluster = settled()
    status = deepcopy(cluster.status)
    cluster.edit(template={"metadata": {"labels": {names.LABEL_DEPLOYMENT: "x"}}})
    outcome = cluster.tick()
    assert outcome.actions == ()
    assert cluster.condition("Ready")["reason"] == "RenderInvalid"
    assert "spec.template.metadata.labels" in cluster.condition("Ready")["message"]
    assert cluster.status["pair"] == status["pair"]
    assert cluster.status["speculation"] == status["speculation"]


def test_what_the_api_server_refused_is_shown() -> None:
    cluster = settled()
    cluster.problems = (Condition(ConditionType.READY, Truth.FALSE, Reason.FORBIDDEN, "may not patch services"),)
    outcome = cluster.tick()
    assert cluster.condition("Ready") | {"lastTransitionTime": ""} == {
        "type": "Ready", "status": "False", "reason": "Forbidden", "message": "may not patch services",
        "lastTransitionTime": "", "observedGeneration": 1,
    }  # fmt: skip
    assert reasons(outcome) == [Reason.FORBIDDEN]


def test_an_invalid_object_is_told_and_nothing_else_is_touched() -> None:
    cluster = settled()
    owner = {"metadata": {"generation": 9}, "status": deepcopy(cluster.status)}
    outcome = invalid(owner, "spec.replicas: -1; use 0 or more", cluster.now)
    assert outcome.actions == ()
    assert reasons(outcome) == [Reason.SPEC_INVALID]
    conditions = {one["type"]: one for one in outcome.status["conditions"]}
    assert conditions["Ready"]["message"] == "spec.replicas: -1; use 0 or more"
    assert conditions["Available"]["status"] == "True"
    assert outcome.status["speculation"] == cluster.status["speculation"]
    assert outcome.status["observedGeneration"] == 9
    Status.model_validate(outcome.status)
    again = invalid({**owner, "status": outcome.status}, "spec.replicas: -1; use 0 or more", cluster.now + 5)
    assert again.events == ()
    assert again.status == outcome.status


def test_an_invalid_new_object_has_every_condition_of_its_kind() -> None:
    outcome = invalid({"metadata": {"generation": 1}, "spec": {"replicas": 3}}, "bad", 0.0)
    assert outcome.status["ready"] == "0/3"
    assert {one["type"] for one in outcome.status["conditions"]} == {*ConditionType} - NOT_ALWAYS
    Status.model_validate(outcome.status)


# -- pausing


def test_paused_from_the_start_nothing_is_made() -> None:
    outcome = Cluster(spec=PAUSED).look()
    assert outcome.actions == ()
    assert Reason.PAUSED in reasons(outcome)


def test_paused_nothing_is_repaired_decided_or_rolled() -> None:
    cluster = settled()
    cluster.tick(observed(cluster))
    cluster.children.pop(("Service", "demo"))
    cluster.edit(paused=True, engine=EngineSettings(args=("--seed=1",)))
    block = cluster.status["speculation"]
    for _ in range(30):
        assert cluster.tick(observed(cluster, batch=250, survival=0.01)).actions == ()
    assert cluster.condition("Progressing")["reason"] == "Paused"
    assert cluster.status["speculation"] == block
    cluster.spec = replace(cluster.spec, paused=False)
    assert applies(cluster.tick()) == [
        ("Deployment", "demo", Reason.SPEC_CHANGED),
        ("Service", "demo", Reason.REPAIRED),
    ]


# -- restarts


def test_a_restart_changes_nothing() -> None:
    cluster = retuned()
    cluster.tick()
    before = deepcopy(cluster.status)
    cluster.forget()
    outcome = cluster.tick()
    assert outcome.actions == ()
    assert outcome.memory is not None
    assert outcome.memory.table == KTable.from_rows(before["speculation"]["table"])
    assert cluster.templates == 1
    assert not should_write(before, cluster.status, 0.0, cluster.now)


@pytest.mark.parametrize("spec", [SPEC, restart()])
@pytest.mark.parametrize("done", range(7))
def test_killed_between_any_two_writes_it_converges_to_the_same_world(spec: Any, done: int) -> None:
    whole = settled(spec=spec)
    cluster = Cluster(spec=spec)
    for action in cluster.look().actions[:done]:
        cluster.carry_out(action)
    cluster.forget()
    cluster.roll()
    cluster.settle()
    assert cluster.templates == 1
    assert {key: one["metadata"]["annotations"] for key, one in cluster.children.items()} == {
        key: one["metadata"]["annotations"] for key, one in whole.children.items()
    }


def test_killed_after_a_new_table_was_applied_it_is_found_again() -> None:
    cluster = settled()
    while True:
        seen = observed(cluster, batch=200, survival=0.2)
        outcome = cluster.look(seen)
        if outcome.actions:
            break
        cluster.tick(seen)
    cluster.carry_out(outcome.actions[0])
    table = cluster.table
    cluster.forget()
    again = cluster.tick()
    assert cluster.table == table
    assert cluster.status["speculation"]["tableVersion"] == table["version"] == 2
    assert [type(action) for action in again.actions] == [PokePod, PokePod]
    assert cluster.status["speculation"]["table"] == table["rows"]


def test_a_wiped_status_is_rebuilt_from_the_cluster() -> None:
    cluster = retuned()
    table = cluster.table
    cluster.status = {}
    cluster.forget()
    cluster.tick()
    assert cluster.table == table
    assert cluster.status["speculation"]["tableVersion"] == table["version"]
