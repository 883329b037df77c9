"""The harm: the operator's token in the wrong hands, or a mistake of the operator, changes what is not the operator's.

The admission policy of the chart on a real API server, by requests in the name of the operator's ServiceAccount. What
the operator itself writes passes it in every other test here that installs the manifests.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import kserve, lws
from tests.cluster.operatorlab import until
from tests.cluster.test_install import ACCOUNT, CHART, IMAGE, INSTALL, NAMESPACE

from devcluster import Cluster
from speculative_operator.domain import names
from speculative_operator.render import payload

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "expected"
OURS = {names.LABEL_MANAGED_BY: names.OPERATOR}
OWNER: Json = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": "demo", "uid": "u-1", "controller": True}
"""The fixture puts in the uid of the object: the garbage collector deletes children of owners that there are not."""
OBJECT = {
    "apiVersion": names.API_VERSION,
    "kind": names.KIND,
    "metadata": {"name": "demo", "namespace": "default"},
    "spec": {"verifier": {"model": "hf://Qwen/Qwen3-8B"}},
}


@pytest.fixture(scope="module")
def guarded(cluster: Cluster) -> Iterator[Cluster]:
    """The manifests, once their policy is in force."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(INSTALL.parent))
    cluster.wait_for_kinds()
    made = cluster.kubectl("apply", "-f", "-", "-o", "json", input=yaml.safe_dump(OBJECT)).stdout
    OWNER["uid"] = json.loads(made)["metadata"]["uid"]
    in_force(cluster)
    yield cluster
    cluster.kubectl("delete", "--ignore-not-found", "--timeout=300s", "-f", str(INSTALL))


def in_force(cluster: Cluster, who: str = ACCOUNT) -> None:
    """Wait until a policy refuses what is no child; before its roles are in force, somebody may not even try."""

    def refused() -> bool:
        return "may not CREATE" in writes(cluster, config("probe", labels={}), "create", who=who).stderr

    until("the policy is in force", refused)


def writes(cluster: Cluster, manifest: Json, verb: str = "apply", *, who: str = ACCOUNT) -> Any:
    """One request in somebody's name, tried only."""
    how = ("--server-side", "--force-conflicts") if verb == "apply" else ()
    return cluster.kubectl(
        verb, *how, "--dry-run=server", "--as", who, "-f", "-", input=yaml.safe_dump(manifest), check=False
    )


def config(name: str, *, namespace: str = "default", labels: Json | None = None, owned: bool = True) -> Json:
    metadata: Json = {"name": name, "namespace": namespace, "labels": OURS if labels is None else labels}
    if owned:
        metadata["ownerReferences"] = [OWNER]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}}


def deployment(pod: Json | None = None, engine: Json | None = None, **where: Any) -> Json:
    labels = {**OURS, names.LABEL_DEPLOYMENT: "demo"}
    container = {"name": "engine", "image": "engine:1", **(engine or {})}
    spec = {"automountServiceAccountToken": False, "containers": [container], **(pod or {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": config("demo", **where)["metadata"],
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


def claim(**where: Any) -> Json:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = config("speculative-weights", owned=False, **where)["metadata"]
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def cache(path: str, name: str = "weights") -> Json:
    return {"volumes": [{"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}]}


PAYLOAD = payload.payload_config("default")
ALLOWED: dict[str, Json] = {
    "a table": config("demo-table"),
    "pods": deployment(),
    "pods with a cache on their node": deployment(cache("/var/lib/speculative-cache")),
    "a claim that outlives its objects": claim(),
    "the plug-in's files": PAYLOAD,
}
REFUSED: dict[str, tuple[Json, str]] = {
    "pods of the system's": (deployment(namespace="kube-system"), "the namespace is the system's"),
    "a ConfigMap of nobody's": (config("aws-auth", owned=False), "no SpeculativeDeployment is its controller"),
    "files of the plug-in that could be changed": (PAYLOAD | {"immutable": False}, "no SpeculativeDeployment is its"),
    "files of the plug-in without our label": (
        PAYLOAD | {"metadata": {**PAYLOAD["metadata"], "labels": {}}},
        "it does not bear the label",
    ),
    "a ConfigMap without our label": (config("demo-table", labels={}), "it does not bear the label"),
    "pods of another's": (
        deployment() | {"metadata": {**deployment()["metadata"], "ownerReferences": [{**OWNER, "kind": "ReplicaSet"}]}},
        "no SpeculativeDeployment is its controller",
    ),
    "another ServiceAccount": (deployment({"serviceAccountName": "deployer"}), "templatePrivileges"),
    "a token": (deployment({"automountServiceAccountToken": True}), "templatePrivileges"),
    "a projected token": (
        deployment({"volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}),
        "templatePrivileges",
    ),
    "the node's network": (deployment({"hostNetwork": True}), "templatePrivileges"),
    "the node's folders": (deployment(cache("/", "root")), "templatePrivileges"),
    "the node's ports": (deployment(engine={"ports": [{"containerPort": 80, "hostPort": 80}]}), "templatePrivileges"),
    "the node itself": (deployment(engine={"securityContext": {"privileged": True}}), "templatePrivileges"),
    "capabilities": (
        deployment(engine={"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}),
        "templatePrivileges",
    ),
}


@pytest.mark.parametrize("what", ALLOWED)
def test_the_operator_writes_what_is_its_own(guarded: Cluster, what: str) -> None:
    done = writes(guarded, ALLOWED[what])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("what", REFUSED)
def test_the_operator_cannot_write_what_it_does_not_own(guarded: Cluster, what: str) -> None:
    manifest, said = REFUSED[what]
    done = writes(guarded, manifest)
    assert done.returncode != 0
    assert said in done.stderr
    assert "the speculative operator may not CREATE" in done.stderr


def test_nor_change_or_delete_what_others_made(guarded: Cluster) -> None:
    """Not even by putting its own label on it."""
    foreign = config("theirs", labels={"app": "theirs"}, owned=False)
    guarded.kubectl("apply", "-f", "-", input=yaml.safe_dump(foreign))
    done = writes(guarded, config("theirs"))
    assert done.returncode != 0
    assert "may not UPDATE configmaps default/theirs: no SpeculativeDeployment is its controller" in done.stderr
    done = guarded.kubectl("delete", "configmap", "theirs", "--dry-run=server", "--as", ACCOUNT, check=False)
    assert done.returncode != 0
    assert "may not DELETE configmaps default/theirs" in done.stderr
    assert writes(guarded, foreign, who="system:serviceaccount:default:somebody").returncode != 0, "no right of theirs"
    guarded.kubectl("delete", "configmap", "theirs")


def test_a_child_whose_label_was_taken_away_is_put_right(guarded: Cluster) -> None:
    guarded.kubectl("apply", "-f", "-", input=yaml.safe_dump(config("demo-table", labels={"app": "mine"})))
    done = writes(guarded, config("demo-table"))
    assert done.returncode == 0, done.stderr
    assert writes(guarded, config("demo-table", labels={"app": "mine"})).returncode != 0
    guarded.kubectl("delete", "configmap", "demo-table")


def test_nor_a_claim_that_is_not_its_own(guarded: Cluster) -> None:
    guarded.kubectl("apply", "-f", "-", input=yaml.safe_dump(claim(labels={"app": "theirs"})))
    done = writes(guarded, claim())
    assert "persistentvolumeclaims default/speculative-weights: it does not bear the label" in done.stderr
    guarded.kubectl("delete", "pvc", "speculative-weights", "--wait=false")


def test_of_pods_it_changes_one_annotation(guarded: Cluster) -> None:
    labels = {**OURS, names.LABEL_DEPLOYMENT: "demo"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "demo-1", "namespace": "default", "labels": labels, "annotations": {"a": "b"}},
        "spec": {"serviceAccountName": "default", "containers": [{"name": "engine", "image": "engine:1"}]},
    }
    guarded.kubectl("create", "serviceaccount", "default", "-n", "default", check=False)
    guarded.kubectl("apply", "-f", "-", input=yaml.safe_dump(pod))

    def patched(change: Json) -> Any:
        return guarded.kubectl(
            "patch",
            "pod",
            "demo-1",
            "--dry-run=server",
            "--type=merge",
            "-p",
            json.dumps(change),
            "--as",
            ACCOUNT,
            "--as-group",
            "system:masters",
            check=False,
        )  # fmt: skip  kubectl reads first, which the roles do not allow: here the policy is judged alone

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
        done = patched(change)
        assert done.returncode != 0, change
        assert "of pods it changes one annotation" in done.stderr, change
    guarded.kubectl("delete", "pod", "demo-1", "--wait=false", "--grace-period=0", "--force")


def test_what_pods_had_before_does_not_hinder_an_update(guarded: Cluster) -> None:
    """Pods of an earlier release, or a field that somebody set by hand: replicas and tables must still follow."""
    guarded.kubectl("apply", "-f", "-", input=yaml.safe_dump(deployment({"hostIPC": True})))
    changed = deployment({"hostIPC": True})
    changed["spec"]["replicas"] = 2
    done = writes(guarded, changed)
    assert done.returncode == 0, done.stderr
    more = deployment({"hostIPC": True, "hostPID": True})
    assert writes(guarded, more).returncode != 0
    guarded.kubectl("delete", "deployment", "demo")


def serving(kind: str, spec: Json) -> Json:
    version = {"InferenceService": "v1beta1", "LLMInferenceService": "v1alpha2"}.get(kind, "v1alpha1")
    return {
        "apiVersion": f"serving.kserve.io/{version}",
        "kind": kind,
        "metadata": config("demo")["metadata"],
        "spec": spec,
    }


CONFINED: Json = {"automountServiceAccountToken": False, "model": {"modelFormat": {"name": "vLLM"}}}
LLM: Json = {
    "model": {"uri": "hf://a/b"},
    "template": {"automountServiceAccountToken": False, "containers": [{"name": "main", "image": "engine:1"}]},
}
ENGINE: Json = {"name": "kserve-container", "image": "engine:1"}
ROOT: Json = {"securityContext": {"privileged": True}}
NODE: Json = {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}


@pytest.fixture(scope="module")
def kserved(guarded: Cluster) -> Iterator[Cluster]:
    """With KServe's kinds, of which KServe makes pods with rights of its own."""
    kserve.install(guarded)
    yield guarded
    guarded.kubectl("delete", "crd", *(one["metadata"]["name"] for one in kserve.definitions()))


def test_pods_of_kserve_are_held_to_the_same_privileges(kserved: Cluster) -> None:
    for allowed in (
        serving("InferenceService", {"predictor": CONFINED}),
        serving("ServingRuntime", {"containers": [ENGINE]}),
        serving("LLMInferenceService", LLM),
    ):
        done = writes(kserved, allowed)
        assert done.returncode == 0, done.stderr
    for refused in (
        serving("LLMInferenceService", {**LLM, "template": {**LLM["template"], "hostNetwork": True}}),
        serving("LLMInferenceService", {**LLM, "template": {**LLM["template"], "serviceAccountName": "deployer"}}),
        serving("LLMInferenceService", {**LLM, "template": {**LLM["template"], **NODE}}),
        serving("LLMInferenceService", {**LLM, "template": {**LLM["template"], "containers": [{**ENGINE, **ROOT}]}}),
        serving("InferenceService", {"predictor": {**CONFINED, "hostNetwork": True}}),
        serving("InferenceService", {"predictor": {**CONFINED, "serviceAccountName": "deployer"}}),
        serving("InferenceService", {"predictor": {**CONFINED, "serviceAccount": "deployer"}}),
        serving("InferenceService", {"predictor": {**CONFINED, "model": {**CONFINED["model"], **ROOT}}}),
        serving("ServingRuntime", {"containers": [{**ENGINE, **ROOT}]}),
    ):
        answer = writes(kserved, refused)
        assert answer.returncode != 0, refused
        assert "templatePrivileges" in answer.stderr


@pytest.mark.parametrize(
    ("kind", "field", "spec"),
    [
        ("ServingRuntime", "volumes", {"containers": [ENGINE], **NODE}),
        ("ServingRuntime", "hostIPC", {"containers": [ENGINE], "hostIPC": True}),
        ("ServingRuntime", "workerSpec", {"containers": [ENGINE], "workerSpec": {"containers": [{**ENGINE, **ROOT}]}}),
        ("InferenceService", "transformer", {"predictor": CONFINED, "transformer": {"containers": [ENGINE], **NODE}}),
        ("InferenceService", "explainer", {"predictor": CONFINED, "explainer": {"containers": [ENGINE], **NODE}}),
        (
            "InferenceService",
            "workerSpec",
            {"predictor": {**CONFINED, "workerSpec": {"containers": [{**ENGINE, **ROOT}]}}},
        ),
        ("InferenceService", "pytorch", {"predictor": {**CONFINED, "pytorch": ROOT}}),
        ("LLMInferenceService", "worker", {**LLM, "worker": {"containers": [{**ENGINE, **ROOT}]}}),
        ("LLMInferenceService", "prefill", {**LLM, "prefill": {"template": {"containers": [ENGINE], **NODE}}}),
        ("LLMInferenceService", "baseRefs", {**LLM, "baseRefs": [{"name": "of-somebody"}]}),
        ("LLMInferenceService", "scheduler", {**LLM, "router": {"scheduler": {"template": {"containers": [ENGINE]}}}}),
    ],
)
def test_kserve_makes_no_further_pods_for_the_operator(kserved: Cluster, kind: str, field: str, spec: Json) -> None:
    """Neither in a new object nor in one that is there; what somebody else put there stays, and hinders no update."""
    kinds = {"ServingRuntime": {"containers": [ENGINE]}, "LLMInferenceService": LLM}
    plain = serving(kind, kinds.get(kind, {"predictor": CONFINED}))
    more = serving(kind, spec)
    said = f"it never sets {field}"
    created = writes(kserved, more)
    assert said in created.stderr
    kserved.kubectl("apply", "-f", "-", input=yaml.safe_dump(plain))
    changed = writes(kserved, more)
    assert said in changed.stderr
    kserved.kubectl("apply", "--server-side", "--field-manager=platform", "--force-conflicts", "-f", "-",
                    input=yaml.safe_dump(more))  # fmt: skip
    labelled = serving(kind, plain["spec"])
    labelled["metadata"] = {**labelled["metadata"], "annotations": {"a": "b"}}
    done = writes(kserved, labelled, "apply")
    assert done.returncode == 0, done.stderr
    kserved.kubectl("delete", kind, "demo")


def test_a_platform_may_say_where_pods_of_kserve_run(kserved: Cluster) -> None:
    """Its webhooks fill that in within the operator's own request."""
    where: Json = {"nodeSelector": {"gpu": "h100"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}
    for allowed in (
        serving("ServingRuntime", {"containers": [ENGINE], **where, "imagePullSecrets": [{"name": "a"}]}),
        serving("InferenceService", {"predictor": {**CONFINED, **where, "timeout": 60}}),
        serving("LLMInferenceService", {**LLM, "template": {**LLM["template"], **where}}),
    ):
        done = writes(kserved, allowed)
        assert done.returncode == 0, done.stderr


def test_pods_of_a_group_are_held_to_the_same_privileges(guarded: Cluster) -> None:
    lws.install(guarded)
    (rendered,) = (
        one
        for one in yaml.safe_load_all((GOLDEN / "leader-worker-set.yaml").read_text())
        if one["kind"] == "LeaderWorkerSet"
    )
    rendered["metadata"] |= {"namespace": "default", "ownerReferences": [OWNER]}
    done = writes(guarded, rendered)
    assert done.returncode == 0, done.stderr
    for part in ("leaderTemplate", "workerTemplate"):
        for what in ({"hostNetwork": True}, NODE, {"containers": [{**ENGINE, **ROOT}]}):
            more = copy.deepcopy(rendered)
            more["spec"]["leaderWorkerTemplate"][part]["spec"] |= what
            answer = writes(guarded, more)
            assert answer.returncode != 0, (part, what)
            assert "templatePrivileges" in answer.stderr
    guarded.kubectl("delete", "crd", lws.definition()["metadata"]["name"])


def test_values_narrow_and_widen_it(guarded: Cluster) -> None:
    """Of a second release, whose ServiceAccount the test takes."""
    who = "system:serviceaccount:default:second-speculative-operator"
    settings = ("nodeFolders={/mnt/models}", "templatePrivileges={hostPID}", "admissionPolicy.namespaces={payments}")
    options = [option for one in settings for option in ("--set", one)]
    text = guarded.helm(
        "template", "second", CHART, "-n", "default", *options, "--set", f"crds.install=false,{IMAGE}"
    ).stdout
    guarded.kubectl("apply", "--server-side", "-f", "-", input=text)
    in_force(guarded, who)
    assert writes(guarded, deployment({"hostPID": True}), who=who).returncode == 0
    assert writes(guarded, deployment(cache("/mnt/models/a")), who=who).returncode == 0
    for other in (deployment(cache("/mnt/other")), deployment(cache("/mnt/models-2")), deployment({"hostIPC": True})):
        assert "templatePrivileges" in writes(guarded, other, who=who).stderr
    guarded.kubectl("create", "namespace", "payments")
    assert "admissionPolicy.namespaces" in writes(guarded, config("a", namespace="payments"), who=who).stderr
    guarded.kubectl("delete", "-f", "-", "--ignore-not-found", "--wait=false", input=text)


def test_it_can_be_switched_off(cluster: Cluster) -> None:
    text = cluster.helm(
        "template", "a", CHART, "-n", NAMESPACE, "--set", f"admissionPolicy.enabled=false,{IMAGE}"
    ).stdout
    assert "ValidatingAdmissionPolicy" not in text
