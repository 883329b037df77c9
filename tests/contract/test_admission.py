"""The harm: the operator's token in the wrong hands, or a mistake of the operator, changes what is not the operator's.

Who owns what, and what pods may do, by the admission policy of the manifests; `test_admission_shapes` has the shapes.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.contract.conftest import ROOT
from tests.contract.test_admission_shapes import (
    ACCOUNT,
    FOLDER,
    GOLDEN,
    OWNER,
    POLICY,
    Json,
    deployment,
    guarded,
    made,
    on_node,
    tried,
)
from tests.unit.training.seen import TRAINING

from devcluster import Cluster
from speculative_operator.domain import names
from speculative_operator.render import payload
from speculative_operator.training.jobs import Known, Means, train_job

pytestmark = pytest.mark.cluster
__all__ = ["guarded"]

CHART = str(ROOT / "charts" / "speculative-operator")
IMAGE = "image.repository=a"
PAYLOAD = payload.payload_config("models")
THEIRS = {"app": "theirs"}


def config(labels: Json | None = None, **metadata: Any) -> Json:
    found = made("v1", "ConfigMap", labels={names.LABEL_MANAGED_BY: names.OPERATOR} if labels is None else labels)
    return {**found, "metadata": {**found["metadata"], **metadata}, "data": {"a": "b"}}


def claim(labels: Json | None = None) -> Json:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = config(labels, name="speculative-weights", ownerReferences=[])["metadata"]
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def owned(one: Json, **metadata: Any) -> Json:
    return {**one, "metadata": {**one["metadata"], **metadata}}


def volumes(**source: Any) -> Json:
    return {"volumes": [{"name": "v", **source}]}


NOBODY, UNLABELLED = "no object of the operator is its controller", "it does not bear the label"
TOKEN = {"sources": [{"serviceAccountToken": {"path": "t"}}]}
ALLOWED: dict[str, Json] = {
    "a table": config(),
    "pods": deployment(),
    "a claim that outlives its objects": claim(),
    "the plug-in's files": PAYLOAD,
}
REFUSED: dict[str, tuple[Json, str]] = {
    "pods of the system's": (owned(deployment(), namespace="kube-system"), "the namespace is the system's"),
    "a ConfigMap of nobody's": (config(ownerReferences=[]), NOBODY),
    "files of the plug-in that could be changed": (PAYLOAD | {"immutable": False}, NOBODY),
    "files of the plug-in without our label": (owned(PAYLOAD, labels={}), UNLABELLED),
    "a ConfigMap without our label": (config(labels={}), UNLABELLED),
    "pods of another's": (owned(deployment(), ownerReferences=[{**OWNER, "kind": "ReplicaSet"}]), NOBODY),
}
PRIVILEGED: dict[str, Json] = {
    "another ServiceAccount": deployment({"serviceAccountName": "deployer"}),
    "a token": deployment({"automountServiceAccountToken": True}),
    "a projected token": deployment(volumes(projected=TOKEN)),
    "the node's network": deployment({"hostNetwork": True}),
    "the node's folders": deployment(volumes(hostPath={"path": "/"})),
    "the node's ports": deployment(ports=[{"containerPort": 80, "hostPort": 80}]),
    "the node itself": deployment(securityContext={"privileged": True}),
    "capabilities": deployment(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
}
REFUSED |= {what: (one, "templatePrivileges") for what, one in PRIVILEGED.items()}


@pytest.mark.parametrize("what", ALLOWED)
def test_the_operator_writes_what_is_its_own(guarded: Cluster, what: str) -> None:
    done = tried(guarded, ALLOWED[what])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("what", REFUSED)
def test_the_operator_cannot_write_what_it_does_not_own(guarded: Cluster, what: str) -> None:
    manifest, said = REFUSED[what]
    done = tried(guarded, manifest)
    assert done.returncode != 0
    assert said in done.stderr
    assert "the speculative operator may not CREATE" in done.stderr


def stored(cluster: Cluster, one: Json, manager: str = "theirs") -> None:
    """Have somebody else write an object."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", f"--field-manager={manager}", "-f", "-",
                    input=yaml.safe_dump(one))  # fmt: skip


def test_nor_change_or_delete_what_others_made(guarded: Cluster) -> None:
    """Not even by putting its own label on it."""
    stored(guarded, config(THEIRS, ownerReferences=[]))
    assert f"may not UPDATE configmaps models/demo: {NOBODY}" in tried(guarded, config()).stderr
    who = ("--as", ACCOUNT, "--as-group", "system:masters")
    done = guarded.kubectl("delete", "configmap", "demo", "-n", "models", "--dry-run=server", *who, check=False)
    assert "may not DELETE configmaps models/demo" in done.stderr
    guarded.kubectl("delete", "configmap", "demo", "-n", "models")


def test_a_child_whose_label_was_taken_away_is_put_right(guarded: Cluster) -> None:
    stored(guarded, config(THEIRS))
    done = tried(guarded, config())
    assert done.returncode == 0, done.stderr
    assert tried(guarded, config(THEIRS)).returncode != 0
    guarded.kubectl("delete", "configmap", "demo", "-n", "models")


def test_nor_a_claim_that_is_not_its_own(guarded: Cluster) -> None:
    stored(guarded, claim(THEIRS))
    said = f"persistentvolumeclaims models/speculative-weights: {UNLABELLED}"
    assert said in tried(guarded, claim()).stderr
    guarded.kubectl("delete", "pvc", "speculative-weights", "-n", "models", "--wait=false")


def test_of_pods_it_changes_one_annotation(guarded: Cluster) -> None:
    pod = made("v1", "Pod", {"serviceAccountName": "default", "containers": [{"name": "engine", "image": "engine:1"}]})
    pod = owned(pod, annotations={"a": "b"}, ownerReferences=[])
    guarded.kubectl("create", "serviceaccount", "default", "-n", "models", check=False)
    stored(guarded, pod)

    def patched(change: Json) -> Any:
        who = ("--as", ACCOUNT, "--as-group", "system:masters")  # kubectl reads first, which the roles do not allow
        how = ("--dry-run=server", "--type=merge", "-p", json.dumps(change))
        return guarded.kubectl("patch", "pod", "demo", "-n", "models", *how, *who, check=False)

    done = patched({"metadata": {"annotations": {names.ANNOTATION_POKE: "7"}}})
    assert done.returncode == 0, done.stderr
    refused: list[Json] = [
        {"metadata": {"annotations": {"a": "c"}}},
        {"metadata": {"annotations": {"a": None}}},
        {"metadata": {"annotations": {"other": "c"}}},
        {"metadata": {"labels": {"app": "c"}}},
        {"metadata": {"finalizers": ["example.com/kept"]}},
        {"spec": {"activeDeadlineSeconds": 60}},
    ]
    for change in refused:
        assert "of pods it changes one annotation" in patched(change).stderr, change
    guarded.kubectl("delete", "pod", "demo", "-n", "models", "--wait=false", "--grace-period=0", "--force")


def test_what_pods_had_before_does_not_hinder_an_update(guarded: Cluster) -> None:
    """Pods of an earlier release, or a field that somebody set by hand: replicas and tables must still follow."""
    stored(guarded, deployment({"hostIPC": True}))
    changed = deployment({"hostIPC": True})
    changed["spec"]["replicas"] = 2
    done = tried(guarded, changed)
    assert done.returncode == 0, done.stderr
    assert tried(guarded, deployment({"hostIPC": True, "hostPID": True})).returncode != 0
    guarded.kubectl("delete", "deployment", "demo", "-n", "models")


def serving(kind: str, spec: Json) -> Json:
    version = {"InferenceService": "v1beta1", "LLMInferenceService": "v1alpha2"}.get(kind, "v1alpha1")
    return made(f"serving.kserve.io/{version}", kind, spec)


CONFINED: Json = {"automountServiceAccountToken": False, "model": {"modelFormat": {"name": "vLLM"}}}
TEMPLATE: Json = {"automountServiceAccountToken": False, "containers": [{"name": "main", "image": "engine:1"}]}
LLM: Json = {"model": {"uri": "hf://a/b"}, "template": TEMPLATE}
ENGINE: Json = {"name": "kserve-container", "image": "engine:1"}
AS_ROOT: Json = {"securityContext": {"privileged": True}}
NODE: Json = volumes(hostPath={"path": "/"})
WHERE: Json = {"nodeSelector": {"gpu": "h100"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}
PLAIN: dict[str, Json] = {
    "ServingRuntime": {"containers": [ENGINE]},
    "LLMInferenceService": LLM,
    "InferenceService": {"predictor": CONFINED},
}


TRAINER: Json = {**OWNER, "kind": names.TRAINING_KIND}


def training(*, labels: Json | None = None, **container: Any) -> Json:
    """The Job of a training, with fields of its first container changed."""
    found = owned(train_job(TRAINING, Known("c" * 40, 36), 3600, Means("operator:1")), ownerReferences=[TRAINER])
    del found["spec"]["podFailurePolicy"]  # which names containers
    pod = found["spec"]["template"]
    pod["spec"]["initContainers"][0] |= container
    pod["metadata"]["labels"] |= labels or {}
    return found


def test_of_trainings_it_makes_nothing_but_their_jobs(guarded: Cluster) -> None:
    for name in ("answers", "prompts", "copy"):
        done = tried(guarded, training(name=name))
        assert done.returncode == 0, done.stderr
    refused = {
        "a Job of other programs": (training(name="shell"), training(labels={names.LABEL_DEPLOYMENT: "demo"})),
        NOBODY: (owned(deployment(), ownerReferences=[TRAINER]), owned(config(), ownerReferences=[TRAINER])),
        "templatePrivileges": (training(securityContext={"privileged": True}),),
    }
    for said, manifests in refused.items():
        for manifest in manifests:
            assert said in tried(guarded, manifest).stderr


def test_pods_of_kserve_are_held_to_the_same_privileges(guarded: Cluster) -> None:
    for kind, spec in PLAIN.items():
        done = tried(guarded, serving(kind, spec))
        assert done.returncode == 0, done.stderr
    for refused in (
        serving("LLMInferenceService", {**LLM, "template": {**TEMPLATE, "hostNetwork": True}}),
        serving("LLMInferenceService", {**LLM, "template": {**TEMPLATE, "serviceAccountName": "deployer"}}),
        serving("LLMInferenceService", {**LLM, "template": {**TEMPLATE, **NODE}}),
        serving("LLMInferenceService", {**LLM, "template": {**TEMPLATE, "containers": [{**ENGINE, **AS_ROOT}]}}),
        serving("InferenceService", {"predictor": {**CONFINED, "hostNetwork": True}}),
        serving("InferenceService", {"predictor": {**CONFINED, "serviceAccountName": "deployer"}}),
        serving("InferenceService", {"predictor": {**CONFINED, "serviceAccount": "deployer"}}),
        serving("InferenceService", {"predictor": {**CONFINED, "model": {**CONFINED["model"], **AS_ROOT}}}),
        serving("ServingRuntime", {"containers": [{**ENGINE, **AS_ROOT}]}),
    ):
        answer = tried(guarded, refused)
        assert answer.returncode != 0, refused
        assert "templatePrivileges" in answer.stderr


@pytest.mark.parametrize(
    ("kind", "field", "more"),
    [
        ("ServingRuntime", "volumes", NODE),
        ("ServingRuntime", "hostIPC", {"hostIPC": True}),
        ("ServingRuntime", "workerSpec", {"workerSpec": {"containers": [{**ENGINE, **AS_ROOT}]}}),
        ("InferenceService", "transformer", {"transformer": {"containers": [ENGINE], **NODE}}),
        ("InferenceService", "explainer", {"explainer": {"containers": [ENGINE], **NODE}}),
        ("InferenceService", "workerSpec", {"predictor": {**CONFINED, "workerSpec": {"containers": [ENGINE]}}}),
        ("InferenceService", "pytorch", {"predictor": {**CONFINED, "pytorch": AS_ROOT}}),
        ("LLMInferenceService", "worker", {"worker": {"containers": [{**ENGINE, **AS_ROOT}]}}),
        ("LLMInferenceService", "prefill", {"prefill": {"template": {"containers": [ENGINE], **NODE}}}),
        ("LLMInferenceService", "baseRefs", {"baseRefs": [{"name": "of-somebody"}]}),
        ("LLMInferenceService", "scheduler", {"router": {"scheduler": {"template": {"containers": [ENGINE]}}}}),
    ],
)
def test_kserve_makes_no_further_pods_for_the_operator(guarded: Cluster, kind: str, field: str, more: Json) -> None:
    """Neither in a new object nor in one that is there; what somebody else put there stays, and hinders no update."""
    plain, wanted = serving(kind, PLAIN[kind]), serving(kind, {**PLAIN[kind], **more})
    assert f"it never sets {field}" in tried(guarded, wanted).stderr
    stored(guarded, plain, "speculative-operator")
    assert f"it never sets {field}" in tried(guarded, wanted).stderr
    stored(guarded, wanted, "platform")
    done = tried(guarded, owned(plain, annotations={"a": "b"}))
    assert done.returncode == 0, done.stderr
    guarded.kubectl("delete", kind, "demo", "-n", "models")


def test_a_platform_may_say_where_pods_of_kserve_run(guarded: Cluster) -> None:
    """Its webhooks fill that in within the operator's own request."""
    for allowed in (
        serving("ServingRuntime", {"containers": [ENGINE], **WHERE, "imagePullSecrets": [{"name": "a"}]}),
        serving("InferenceService", {"predictor": {**CONFINED, **WHERE, "timeout": 60}}),
        serving("LLMInferenceService", {**LLM, "template": {**TEMPLATE, **WHERE}}),
    ):
        done = tried(guarded, allowed)
        assert done.returncode == 0, done.stderr


def test_pods_of_a_group_are_held_to_the_same_privileges(guarded: Cluster) -> None:
    documents = yaml.safe_load_all((GOLDEN / "expected" / "leader-worker-set.yaml").read_text())
    (rendered,) = (one for one in documents if one["kind"] == "LeaderWorkerSet")
    rendered["metadata"] |= {"namespace": "models", "ownerReferences": [OWNER]}
    for part in ("leaderTemplate", "workerTemplate"):
        for what in ({"hostNetwork": True}, NODE, {"containers": [{**ENGINE, **AS_ROOT}]}):
            more = copy.deepcopy(rendered)
            more["spec"]["leaderWorkerTemplate"][part]["spec"] |= what
            answer = tried(guarded, more)
            assert answer.returncode != 0, (part, what)
            assert "templatePrivileges" in answer.stderr


@pytest.fixture
def second(guarded: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A second release with values of its own; the account of its operator, which the test takes."""
    who, values = ACCOUNT.replace(names.OPERATOR, "second"), ("--set", f"fullnameOverride=second,{IMAGE}")
    more = ("--namespace", "speculative-system", *values, *request.param)
    text = guarded.helm("template", "second", CHART, *more).stdout
    policy = yaml.safe_dump_all([one for one in yaml.safe_load_all(text) if one and one["kind"] in POLICY])
    guarded.kubectl("apply", "--server-side", "-f", "-", input=policy)
    for _ in range(100):
        if "may not CREATE" in tried(guarded, made("v1", "ConfigMap", labels={}), who=who).stderr:
            break
        time.sleep(0.2)
    yield who
    guarded.kubectl("delete", "-f", "-", input=policy)


NARROW = "nodeFolders={/mnt/models},templatePrivileges={hostPID},admissionPolicy.namespaces={payments}"


@pytest.mark.parametrize("second", [("--set", NARROW)], indirect=True)
def test_values_narrow_and_widen_it(guarded: Cluster, second: str) -> None:
    def refusal(one: Json) -> str:
        return str(tried(guarded, one, who=second).stderr)

    for allowed in (deployment({"hostPID": True}), deployment(on_node("/mnt/models/a"))):
        assert refusal(allowed) == ""
    for other in (on_node("/mnt/other"), on_node("/mnt/models-2"), {"hostIPC": True}):
        assert "templatePrivileges" in refusal(deployment(other))
    guarded.kubectl("create", "namespace", "payments", check=False)
    assert "admissionPolicy.namespaces" in refusal(config(namespace="payments"))


@pytest.mark.parametrize(
    "second", [("--set-json", "nodeFolders=[]"), ("--set-json", "nodeFolders=null")], indirect=True
)
def test_by_no_folder_allowed_none_is_meant(guarded: Cluster, second: str) -> None:
    assert "templatePrivileges" in tried(guarded, deployment(on_node(f"{FOLDER}/team")), who=second).stderr
    done = tried(guarded, deployment(), who=second)
    assert done.returncode == 0, done.stderr


def test_it_can_be_switched_off(guarded: Cluster) -> None:
    text = guarded.helm("template", "a", CHART, "--set", f"admissionPolicy.enabled=false,{IMAGE}").stdout
    assert "ValidatingAdmissionPolicy" not in text
