"""`speculative doctor` beside a real API server and a real operator, with twenty troubles that users meet at once: it
names each, with what to do next. No node runs a pod: what a kubelet would say of one is written into its status.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests import definitions
from tests.cluster.operatorlab import LONG, OperatorLab, spec, until

from devcluster import Cluster
from speculative_operator.domain import names

pytestmark = pytest.mark.cluster

CRD = f"{names.PLURAL}.{names.GROUP}"
STARTUP = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/startup"

BLIND, FULL = "doctor-blind", "doctor-full"
"""Namespaces: one that the operator is told not to watch, one whose quota has no pod left."""


@dataclass(frozen=True)
class Trouble:
    """An object, or none, what is wrong with it, and words that a line of `doctor` about it must have."""

    name: str
    said: tuple[str, ...]
    changes: dict[str, Any] | None = None
    container: dict[str, Any] | None = None
    """State of its engine's container, as a kubelet would write it."""
    before: Callable[[OperatorLab], None] | None = None
    """What is done to the cluster before the object is applied."""
    namespace: str = ""
    """Default: the test's."""


def waiting(reason: str, message: str = "", code: int | None = None) -> dict[str, Any]:
    state: dict[str, Any] = {"state": {"waiting": {"reason": reason, "message": message}}}
    if code is not None:
        last = {"exitCode": code, "reason": "OOMKilled" if code == 137 else "Error"}
        state |= {"restartCount": 3, "lastState": {"terminated": last}}
    return state


def foreign_service(lab: OperatorLab) -> None:
    port = {"port": 80, "targetPort": 80}
    meta = {"name": "taken", "namespace": lab.namespace}
    lab.apply({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [port]}})


def refusing_policy(lab: OperatorLab) -> None:
    """A rule of the cluster that takes no Deployment named `refused`."""
    kind = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"]}
    rule = {"expression": "object.metadata.name != 'refused'", "message": "images must be signed"}
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [kind | {"resources": ["deployments"]}]},
        "validations": [rule],
    }
    api = {"apiVersion": "admissionregistration.k8s.io/v1"}
    lab.apply({**api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "doctor-signed"}, "spec": policy})
    bound = {"policyName": "doctor-signed", "validationActions": ["Deny"]}
    binding = {"kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "doctor-signed"}, "spec": bound}
    lab.apply({**api, **binding})


def lonely_monitor(lab: OperatorLab) -> None:
    """A server that takes only PodMonitors with a value of a label that those of the operator cannot have."""
    meta = {"name": "k8s", "namespace": lab.namespace}
    rule = {"matchLabels": {names.LABEL_MANAGED_BY: "Helm"}}
    server = {"apiVersion": f"{definitions.MONITORING}/v1", "kind": "Prometheus", "metadata": meta}
    lab.apply({**server, "spec": {"podMonitorSelector": rule}})


def full_namespace(lab: OperatorLab) -> None:
    lab.cluster.kubectl("create", "quota", "none", "--hard=pods=0", "-n", FULL)


def older_definition(lab: OperatorLab) -> None:
    """The CRD of a release whose status had no field `startup`."""
    patch_definition(lab, {"op": "remove", "path": STARTUP})


def patch_definition(lab: OperatorLab, change: dict[str, Any]) -> None:
    lab.cluster.kubectl("patch", "crd", CRD, "--type=json", "-p", json.dumps([change]))


def operator_without_a_right(lab: OperatorLab) -> None:
    """A Deployment whose ServiceAccount may do nothing, and whose pod never starts."""
    account = {"serviceAccountName": "nobody", "containers": [{"name": "operator", "image": "absent"}]}
    labels = {"app.kubernetes.io/name": names.OPERATOR, "doctor": "test"}
    template = {"metadata": {"labels": labels}, "spec": {**account, "nodeSelector": {"a": "b"}}}
    meta = {"name": "operator", "namespace": lab.namespace, "labels": labels}
    wanted = {"selector": {"matchLabels": {"doctor": "test"}}, "template": template}
    lab.cluster.kubectl("create", "serviceaccount", "nobody", "-n", lab.namespace)
    lab.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": wanted})


def pod_spec(**fields: Any) -> dict[str, Any]:
    """Changes of a spec: fields of its pods, which take any node, also one that nobody keeps alive."""
    return {"template": {"spec": {"tolerations": [{"operator": "Exists"}], **fields}}}


TROUBLES = (
    Trouble("no-room", ("no-room", "64 nvidia.com/gpu", "no node has as many free"),
            {"verifier": {"model": "hf://Qwen/Qwen3-8B", "tensorParallelSize": 64}}),
    Trouble("no-image", ("PodsNotReady", "ErrImagePull", "manifest unknown"), {},
            waiting("ErrImagePull", "manifest unknown")),
    Trouble("no-secret", ("PodsNotReady", "CreateContainerConfigError", 'secret "hf" not found'), {},
            waiting("CreateContainerConfigError", 'secret "hf" not found')),
    Trouble("crashes", ("PodsNotReady", "CrashLoopBackOff", "Error, exit code 1"), {},
            waiting("CrashLoopBackOff", "back-off", 1)),
    Trouble("out-of-memory", ("PodsNotReady", "OOMKilled", "exit code 137"), {},
            waiting("CrashLoopBackOff", "back-off", 137)),
    Trouble("wrong-node", ("wrong-node", "didn't match Pod's node affinity/selector"),
            pod_spec(nodeSelector={"a": "b"})),
    Trouble("no-claim", ("no-claim", 'persistentvolumeclaim "absent" not found'),
            {"verifier": {"model": "pvc://absent/llama"}}),
    Trouble("no-class", ("no-class", "no PriorityClass with name absent"), pod_spec(priorityClassName="absent")),
    Trouble("no-account", ("no-account", "SpecInvalid", "templatePrivileges"), pod_spec(serviceAccountName="absent")),
    Trouble("full", ("full", "exceeded quota: none"), {}, before=full_namespace, namespace=FULL),
    Trouble("taken", ("NameConflict", "taken"), {}, before=foreign_service),
    Trouble("refused", ("RenderInvalid", "images must be signed"), {}, before=refusing_policy),
    Trouble("no-such-field", ("RenderInvalid", "imagee"), pod_spec(containers=[{"name": "engine", "imagee": "x"}])),
    Trouble("unknown-card", ("AcceleratorUnknown", "A1000"), {"accelerator": {"product": "A1000"}}),
    Trouble("old-engine", ("UnsupportedByEngine", "0.11.0 or newer"), {"engine": {"version": "0.6.0"}}),
    Trouble("no-kserve", ("UnsupportedTarget", "InferenceService"), {"target": "InferenceService"}),
    Trouble("no-gateway", ("RouteUnsupported",), {"route": {"gateway": {"name": "public"}}}),
    Trouble("blind", (BLIND, "has no status", "watchNamespaces"), {}, namespace=BLIND),
    Trouble("no-prometheus", ("no-prometheus", "PrometheusError"), {}, {"ready": True, "state": {"running": {}}}),
    Trouble("monitor", ("no Prometheus selects the PodMonitors",), before=lonely_monitor),
    Trouble("definition", ("it does not declare status.startup",), before=older_definition),
    Trouble("operator", ("has no ready pod",), before=operator_without_a_right),
    Trouble("rights", ("system:serviceaccount:", "may not list speculativedeployments"), before=lambda _: None),
)  # fmt: skip


@pytest.fixture(scope="module")
def lab(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorLab]:
    lab = OperatorLab(cluster, tmp_path_factory.mktemp("doctor"))
    lab.install()
    made = [*definitions.read("monitoring"), definitions.PROMETHEUS]
    definitions.install(cluster, made)
    lab.enter()
    for namespace in (BLIND, FULL):
        cluster.kubectl("create", "namespace", namespace)
    room = {"cpu": "64", "memory": "512Gi", "pods": "100", "ephemeral-storage": "4Ti", "nvidia.com/gpu": "30"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "doctor"}}
    lab.apply({**node, "spec": {}})
    lab.patch("node", "doctor", {"status": {"capacity": room, "allocatable": room}}, "--subresource=status")
    version = json.loads(cluster.kubectl("get", "crd", CRD, "-o", "json").stdout)["spec"]["versions"][0]
    startup = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["startup"]
    yield lab
    patch_definition(lab, {"op": "add", "path": STARTUP, "value": startup})
    cluster.kubectl("delete", "node", "doctor")
    for namespace in (lab.namespace, BLIND, FULL):
        cluster.kubectl("delete", "namespace", namespace, "--wait=false")
    cluster.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "doctor-signed")
    cluster.kubectl("delete", "crd", *(one["metadata"]["name"] for one in made))


def diagnose(lab: OperatorLab) -> list[str]:
    """What `speculative doctor` calls wrong: the message of each line with what to do next."""
    argv = [str(Path(sys.executable).parent / "speculative"), "doctor", "-o", "json"]
    env = {**os.environ, "KUBECONFIG": str(lab.cluster.kubeconfig)}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LONG, check=False, env=env)
    assert done.returncode == 1, done.stderr
    wrong = [one for one in json.loads(done.stdout)["checks"] if one["result"] == "wrong"]
    assert all(one["next"] for one in wrong), "a finding without a remedy"
    return [f"{one['message']} >> {one['next']}" for one in wrong]


def unnamed(lab: OperatorLab, found: list[str]) -> list[str]:
    """The troubles that no line names."""
    return [one.name for one in TROUBLES if not any(all(word in line for word in one.said) for line in found)]


def test_twenty_troubles_are_named(lab: OperatorLab) -> None:
    for one in TROUBLES:
        if one.before is not None:
            one.before(lab)
    with lab.operator(namespaces=f"{lab.namespace},{FULL}"):
        for one in TROUBLES:
            if one.changes is None:
                continue
            meta = {"name": one.name, "namespace": one.namespace or lab.namespace}
            wanted = spec(**{"replicas": 1, **pod_spec(), **one.changes})
            lab.apply({"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": wanted})
        for one in TROUBLES:
            if one.container is not None:
                (pod,) = (made["metadata"]["name"] for made in lab.pods(1, one.name))
                state = {"name": names.CONTAINER, "ready": False, "image": "x", "imageID": "", "restartCount": 0}
                up = str(bool(one.container.get("ready")))
                conditions = [{"type": kind, "status": up} for kind in ("Ready", "ContainersReady")]
                told = {
                    "phase": "Running",
                    "podIP": "10.1.0.1",
                    "podIPs": [{"ip": "10.1.0.1"}],
                    "containerStatuses": [state | one.container],
                    "conditions": conditions,
                }
                lab.patch("pod", pod, {"status": told}, "--subresource=status")
        found: list[str] = []

        def all_named() -> bool:
            found[:] = diagnose(lab)
            return not unnamed(lab, found)

        try:
            until("all are named", all_named, seconds=60.0, every=1.0)
        except AssertionError:
            raise AssertionError(f"not named: {unnamed(lab, found)}\n" + "\n".join(found)) from None
