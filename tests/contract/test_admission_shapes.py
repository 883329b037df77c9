"""The harm: the operator's token in the wrong hands makes what the operator never renders: a Service that takes another
address, a policy that cuts off foreign pods, a pod that leaves its confinement.

The admission policy of the manifests on a real API server, in the name of the operator's ServiceAccount with every
right, so that the policy alone is judged: whatever is rendered passes, whatever has another shape does not.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests import definitions, gateway, kserve, lws
from tests.contract.conftest import ROOT

from devcluster import Cluster
from speculative_operator.domain import names

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
GOLDEN = ROOT / "tests" / "golden"
POLICY = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
ACCOUNT = "system:serviceaccount:speculative-system:speculative-operator"
OWNER: Json = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": "demo", "uid": "u-1", "controller": True}
SELECTED = names.selector("demo")
OTHER = {"app": "theirs"}
OF_ANOTHER = names.selector("of-another")
FOLDER = "/var/lib/speculative-cache"


@pytest.fixture(scope="module")
def guarded(bare_cluster: Cluster, installed: Json) -> Iterator[Cluster]:
    """Every kind that is rendered, and the policy in force."""
    for install in (kserve.install, lws.install, gateway.install):
        install(bare_cluster)
    definitions.install(bare_cluster, definitions.read("monitoring"))
    bare_cluster.kubectl("create", "namespace", "models", check=False)
    every = yaml.safe_load_all((ROOT / "manifests" / "install.yaml").read_text())
    text = yaml.safe_dump_all([one for one in every if one and one["kind"] in POLICY])
    bare_cluster.kubectl("apply", "--server-side", "-f", "-", input=text)
    for _ in range(100):
        if "may not CREATE" in tried(bare_cluster, made("v1", "ConfigMap", labels={})).stderr:
            break
        time.sleep(0.2)
    yield bare_cluster
    bare_cluster.kubectl("delete", "-f", "-", input=text)


def tried(cluster: Cluster, *manifests: Json, who: str = ACCOUNT) -> Any:
    """One dry run of all in the operator's name."""
    name = ("--as", who, "--as-group", "system:masters")
    how = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--field-manager=speculative-operator")
    return cluster.kubectl(*how, *name, "-f", "-", input=yaml.safe_dump_all(manifests), check=False)


def made(version: str, kind: str, spec: Json | None = None, labels: Json = SELECTED) -> Json:
    metadata = {"name": "demo", "namespace": "models", "labels": labels, "ownerReferences": [OWNER]}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **({"spec": spec} if spec is not None else {})}


def service(selector: Json = SELECTED, **spec: Any) -> Json:
    return made("v1", "Service", {"selector": selector, "ports": [{"port": 80}], **spec})


def network_policy(selector: Json) -> Json:
    return made("networking.k8s.io/v1", "NetworkPolicy", {"podSelector": selector, "policyTypes": ["Ingress"]})


def budget(selector: Json) -> Json:
    return made("policy/v1", "PodDisruptionBudget", {"maxUnavailable": 0, "selector": selector})


def monitor(endpoint: Json | None = None, selector: Json = SELECTED, **spec: Any) -> Json:
    endpoints = [{"port": "http", **(endpoint or {})}]
    spec = {"selector": {"matchLabels": selector}, "podMetricsEndpoints": endpoints, **spec}
    return made("monitoring.coreos.com/v1", "PodMonitor", spec)


def deployment(pod: Json | None = None, **engine: Any) -> Json:
    containers = [{"name": "engine", "image": "engine:1", **engine}]
    spec = {"automountServiceAccountToken": False, "containers": containers, **(pod or {})}
    template = {"metadata": {"labels": SELECTED}, "spec": spec}
    return made("apps/v1", "Deployment", {"selector": {"matchLabels": SELECTED}, "template": template})


def route(rule: Json | None = None, **backend: Any) -> Json:
    rules = [{"backendRefs": [{"name": "demo", "port": 80, **backend}], **(rule or {})}]
    return made("gateway.networking.k8s.io/v1", "HTTPRoute", {"parentRefs": [{"name": "public"}], "rules": rules})


def job(pod: Json | None = None, labels: Json | None = None, spec: Json | None = None, **container: Any) -> Json:
    one = {"name": "weights", "image": "operator:1", "command": ["speculative-weights"], **container}
    inner = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [one], **(pod or {})}
    metadata = {"labels": {names.LABEL_MANAGED_BY: names.OPERATOR, names.LABEL_JOB: "fetch", **(labels or {})}}
    return made("batch/v1", "Job", {"template": {"metadata": metadata, "spec": inner}, **(spec or {})})


def on_node(path: str = FOLDER, helper: str = "weights", **mount: Any) -> Json:
    """A pod of which one container mounts a folder of the node."""
    mounts = [{"name": "weights", "mountPath": "/w", **mount}]
    helpers = [{"name": helper, "image": "a", "volumeMounts": mounts}]
    return {"volumes": [{"name": "weights", "hostPath": {"path": path}}], "initContainers": helpers}


SECRET = {"name": "any", "key": "token"}
CONTEXTS: dict[str, Json] = {
    "seccompProfile": {"seccompProfile": {"type": "Unconfined"}},
    "appArmorProfile": {"appArmorProfile": {"type": "Unconfined"}},
    "seLinuxOptions": {"seLinuxOptions": {"type": "spc_t"}},
    "seLinuxOptions-user": {"seLinuxOptions": {"user": "system_u"}},
}
REFUSED: dict[str, Json] = {
    "a Service with addresses of others": service(externalIPs=["8.8.8.8"]),
    "a Service that is a name elsewhere": service(type="ExternalName", externalName="evil.example.com"),
    "a Service on every node": service(type="NodePort"),
    "a Service of other pods": service(OTHER),
    "a Service of another object's pods": service(OF_ANOTHER),
    "a Service of no pods": service({}),
    "a policy for every pod": network_policy({}),
    "a policy for other pods": network_policy({"matchLabels": OTHER}),
    "a policy for another object's pods": network_policy({"matchLabels": OF_ANOTHER}),
    "a budget of every pod": budget({}),
    "a budget of other pods": budget({"matchLabels": OTHER}),
    "a monitor of other pods": monitor(selector=OTHER),
    "a monitor of other namespaces": monitor(namespaceSelector={"any": True}),
    "a monitor with a token": monitor({"bearerTokenSecret": SECRET}),
    "a monitor with a credential": monitor({"authorization": {"credentials": SECRET}}),
    "a monitor with a password": monitor({"basicAuth": {"password": SECRET}}),
    "a monitor with a certificate": monitor({"tlsConfig": {"keySecret": SECRET}}),
    "a monitor with a client": monitor(
        {"oauth2": {"clientId": {"secret": SECRET}, "clientSecret": SECRET, "tokenUrl": "https://a"}}
    ),
    "a route to another Service": route({"backendRefs": [{"name": "theirs", "port": 80}]}),
    "a route to another namespace": route(namespace="theirs"),
    "a route to something else than a Service": route(group="storage.example.com", kind="Bucket"),
    "a route whose backend filters": route(
        filters=[{"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": ["x"]}}]
    ),
    "a route to nowhere": route({"backendRefs": []}),
    "a route that sends copies elsewhere": route(
        {"filters": [{"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "theirs", "port": 80}}}]}
    ),
    "a route that sends clients elsewhere": route(
        {
            "backendRefs": [],
            "filters": [{"type": "RequestRedirect", "requestRedirect": {"hostname": "evil.example.com"}}],
        }
    ),
    "a route that changes the host": route(
        {"filters": [{"type": "URLRewrite", "urlRewrite": {"hostname": "evil.example.com"}}]}
    ),
    "a Job of another program": job(command=["sh", "-c", "true"]),
    "a Job of the image's own program": job(command=[]),
    "a Job with a second container": job({"initContainers": [{"name": "more", "image": "a"}]}),
    "a Job of many pods": job(spec={"parallelism": 50}),
    "a Job that gets the requests of serving pods": job(labels=SELECTED),
    "a Job with files of the cluster's": job(
        {
            "volumes": [
                {
                    "name": "pods",
                    "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]},
                }
            ]
        }
    ),
    "a Job with a folder of the node": job({"volumes": [{"name": "weights", "hostPath": {"path": FOLDER}}]}),
    "a folder of the node that is none of those allowed": deployment(on_node("/var/lib/models")),
    "a folder whose name begins alike": deployment(on_node(f"{FOLDER}-2")),
    "a folder to which another container writes": deployment(on_node(helper="mine")),
    "a folder to which the engine writes": deployment(on_node(), volumeMounts=[{"name": "weights", "mountPath": "/w"}]),
    "a folder within reach by processes": deployment({**on_node(), "shareProcessNamespace": True}),
    "an unsafe sysctl": deployment({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}),
    "a probe of another host": deployment(readinessProbe={"httpGet": {"host": "169.254.169.254", "port": 80}}),
    "a hook to another host": deployment(lifecycle={"preStop": {"httpGet": {"host": "10.0.0.1", "port": 80}}}),
    **{f"a pod without {name}": deployment({"securityContext": context}) for name, context in CONTEXTS.items()},
    **{f"a container without {name}": deployment(securityContext=context) for name, context in CONTEXTS.items()},
}
ALLOWED: dict[str, Json] = {
    "a Service": service(),
    "a policy": network_policy({"matchLabels": SELECTED}),
    "a budget": budget({"matchLabels": SELECTED}),
    "a monitor": monitor({"scheme": "https", "tlsConfig": {"insecureSkipVerify": True}}),
    "a route": route(
        {
            "filters": [
                {
                    "type": "URLRewrite",
                    "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}},
                }
            ],
            "backendRefs": [{"name": "demo", "port": 80}, {"name": "next", "port": 80, "weight": 5}],
        }
    ),
    "a Job": job(
        {"volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "store", "persistentVolumeClaim": {"claimName": "a"}}]}
    ),
    "a folder of the node": deployment(
        on_node(f"{FOLDER}/team"), volumeMounts=[{"name": "weights", "mountPath": "/w", "readOnly": True}]
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_never_rendered_is_refused(guarded: Cluster, what: str) -> None:
    done = tried(guarded, REFUSED[what])
    assert done.returncode != 0
    assert "the speculative operator may not CREATE" in done.stderr, done.stderr


@pytest.mark.parametrize("what", ALLOWED)
def test_what_is_beside_it_passes(guarded: Cluster, what: str) -> None:
    done = tried(guarded, ALLOWED[what])
    assert done.returncode == 0, done.stderr


def test_every_golden_passes(guarded: Cluster) -> None:
    for path in (*sorted((GOLDEN / "expected").glob("*.yaml")), *sorted((GOLDEN / "jobs").glob("*.yaml"))):
        documents = [one for one in yaml.safe_load_all(path.read_text()) if one]
        for one in documents:
            one["metadata"]["namespace"] = "models"
            if isinstance(one.get("data"), str):
                one["data"] = {"files": "left out of the golden"}
        done = tried(guarded, *documents)
        assert done.returncode == 0, (path.name, done.stderr)


def test_a_pod_that_brings_weights_from_its_node_passes(guarded: Cluster) -> None:
    pod = yaml.safe_load((GOLDEN / "bringing" / "node-path.yaml").read_text())
    one = deployment({key: pod[key] for key in ("initContainers", "volumes")})
    assert tried(guarded, one).returncode == 0


def test_what_somebody_set_before_stays(guarded: Cluster) -> None:
    """A Service that a user has made a load balancer's is still kept up."""
    theirs = service(type="LoadBalancer", externalIPs=["10.0.0.9"])
    guarded.kubectl("apply", "--server-side", "--field-manager=theirs", "-f", "-", input=yaml.safe_dump(theirs))
    ours = copy.deepcopy(service())
    ours["metadata"]["annotations"] = {"a": "b"}
    done = tried(guarded, ours)
    assert done.returncode == 0, done.stderr
    more = service(externalIPs=["10.0.0.9", "8.8.8.8"])
    assert "it never sets externalIPs" in tried(guarded, more).stderr
    guarded.kubectl("delete", "service", "demo", "-n", "models")
