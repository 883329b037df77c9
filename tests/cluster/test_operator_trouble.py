"""The operator where things go wrong: killed at any moment, without permissions, with a Prometheus that misbehaves."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.operatorlab import SYSTEM, OperatorLab, at_rest, spec, until

from devcluster import Cluster
from devcluster.errors import DevClusterError
from generate import rbac
from speculative_operator.domain import names
from speculative_operator.render import payload

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def installed(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> OperatorLab:
    lab = OperatorLab(cluster, tmp_path_factory.mktemp("operator"))
    lab.install()
    return lab


@pytest.fixture
def lab(installed: OperatorLab) -> Iterator[OperatorLab]:
    installed.enter()
    yield installed
    installed.cluster.kubectl("delete", "namespace", installed.namespace, "--wait=false")


def identities(lab: OperatorLab, count: int) -> dict[tuple[str, str, str], Any]:
    """(object, kind, name) -> uid and generation of every child of the objects g0, g1, ..."""
    found = {}
    for body in lab.listed(
        "deployments,services,configmaps,networkpolicies", f"{names.LABEL_MANAGED_BY}={names.OPERATOR}"
    ):
        meta = body["metadata"]
        if meta["name"].startswith(payload.PREFIX):
            continue  # nobody's child
        key = (meta["labels"][names.LABEL_DEPLOYMENT], body["kind"], meta["name"])
        found[key] = (meta["uid"], meta.get("generation"))
    assert {key[0] for key in found} <= {f"g{number}" for number in range(count)}
    return found


def test_killed_midway_it_goes_on_after_a_restart_without_a_rollout(lab: OperatorLab) -> None:
    count = 12
    first = lab.start()
    until("the operator is ready", lambda: first.answers("/readyz")[0] == 200)
    meta = {"namespace": lab.namespace}
    body = {"apiVersion": names.API_VERSION, "kind": names.KIND, "spec": spec(replicas=1)}
    many = [{**body, "metadata": {**meta, "name": f"g{number}"}} for number in range(count)]
    lab.apply({"apiVersion": "v1", "kind": "List", "items": many})
    first.kill()
    before = identities(lab, count)
    with lab.operator() as second:
        until("every child", lambda: len(identities(lab, count)) == 4 * count)
        said = second.log.read_text()
        assert "leading as " in said
        assert "; waiting" not in said, "it took its own Lease at once"
        until("every status", lambda: all(_observed(lab, f"g{number}") for number in range(count)))
        time.sleep(2.5)
        after = identities(lab, count)
        assert {key: after[key] for key in before} == before, "what was made is not made again"
        assert {generation for key, (_, generation) in after.items() if key[1] == "Deployment"} == {1}
        assert not second.errors()


def test_killed_and_started_again_at_rest_it_writes_nothing(lab: OperatorLab) -> None:
    with lab.operator() as first:
        lab.deploy()
        lab.make_ready()
        until("Ready", lambda: lab.condition("Ready").get("status") == "True")
        until("all is told", lambda: "unreachable" in _told(lab))
        at_rest(lambda: _versions(lab))
        first.kill()
    before, status = _versions(lab), (lab.get(names.PLURAL) or {})["status"]
    with lab.operator() as second:
        until("ticks", lambda: 'outcome="quiet"' in second.answers("/metrics")[1])
        time.sleep(4.5)
        assert (lab.get(names.PLURAL) or {})["status"] == status
        assert _versions(lab) == before


def test_pods_that_another_release_made_stay_until_the_new_rendering_is_asked_for(lab: OperatorLab) -> None:
    with lab.operator():
        lab.deploy()
        lab.make_ready()
        until("Ready", lambda: lab.condition("Ready").get("status") == "True")
    other = dict.fromkeys((names.ANNOTATION_HASH, names.ANNOTATION_RESOLVED), "another release's")
    made = {"metadata": {"annotations": other},
            "spec": {"template": {"spec": {"terminationGracePeriodSeconds": 777}}}}  # fmt: skip
    lab.cluster.kubectl("patch", "deployment", "gemma", "-n", lab.namespace, "-p", json.dumps(made))
    until("pods of that release serve", lambda: _serving(lab, 2))
    generation = lab.children()["Deployment", "gemma"]["metadata"]["generation"]
    with lab.operator():
        until("it is told", lambda: "UpgradeWaits" in _warnings(lab))
        time.sleep(4.5)
        assert lab.children()["Deployment", "gemma"]["metadata"]["generation"] == generation
        lab.cluster.kubectl("scale", "specdep", "gemma", "-n", lab.namespace, "--replicas=3")
        until("three are asked for", lambda: lab.children()["Deployment", "gemma"]["spec"]["replicas"] == 3)
        assert _grace(lab) == 777
        adopt = f"{names.ANNOTATION_ADOPT}=now"
        lab.cluster.kubectl("annotate", "specdep", "gemma", "-n", lab.namespace, adopt)
        until("pods are made anew", lambda: _grace(lab) != 777)
        until("they serve", lambda: _serving(lab, 3))
        until("nothing waits", lambda: "UpgradeWaits" not in _warnings(lab))


def _serving(lab: OperatorLab, count: int) -> bool:
    """Makes pods ready as they come, until those of the newest template are the only ones."""
    with contextlib.suppress(DevClusterError):  # a pod that is replaced while it is looked at
        lab.make_ready(count)
    found = lab.children()["Deployment", "gemma"]
    status = found.get("status", {})
    seen = status.get("observedGeneration") == found["metadata"]["generation"]
    counts = {status.get(name) for name in ("replicas", "updatedReplicas", "readyReplicas")}
    return seen and counts == {count}


def _grace(lab: OperatorLab) -> int:
    return int(lab.children()["Deployment", "gemma"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])


def _warnings(lab: OperatorLab) -> set[str]:
    status = (lab.get(names.PLURAL) or {}).get("status", {})
    return {one["reason"] for one in status.get("warnings", ())}


def test_a_namespaced_operator_needs_no_right_outside(lab: OperatorLab) -> None:
    for account, rules in (("narrow", rbac.rules(rbac.OPERATOR)), ("narrow-lease", rbac.chart_rules()["leader"])):
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": rules}
        meta = {"name": account, "namespace": lab.namespace}
        lab.apply({**role, "metadata": meta})
        subject = f"--serviceaccount={lab.namespace}:narrow"
        lab.cluster.kubectl("create", "rolebinding", account, "-n", lab.namespace, f"--role={account}", subject)
    lab.cluster.kubectl("create", "serviceaccount", "narrow", "-n", lab.namespace)
    with lab.operator("narrow", lab.namespace, namespaces=lab.namespace) as running:
        lab.deploy()
        until("every child", lambda: len(lab.children()) == 5)
        lab.make_ready()
        until("Ready", lambda: lab.condition("Ready").get("status") == "True")
        lab.delete("service", "gemma", "--wait=false")
        until("the service is back", lambda: len(lab.children()) == 5)
        metrics = running.answers("/metrics")[1]
    assert 'code="403"' not in metrics
    assert not [*running.errors(), *(line for line in running.lines() if line["level"] == "WARNING")]


def test_a_missing_permission_is_named_and_the_rest_goes_on(lab: OperatorLab) -> None:
    allowed = [permission for permission in rbac.OPERATOR if permission.resource != "networkpolicies"]
    seeing = {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["get", "list", "watch"]}
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "some", "namespace": lab.namespace},
        "rules": [*rbac.rules(allowed), seeing],
    }
    lab.apply(role)
    lab.cluster.kubectl("create", "serviceaccount", "some", "-n", lab.namespace)
    subject = f"--serviceaccount={lab.namespace}:some"
    lab.cluster.kubectl("create", "rolebinding", "some", "-n", lab.namespace, "--role=some", subject)
    with lab.operator("some", lab.namespace, namespaces=lab.namespace, leader_election="false"):
        lab.deploy()
        until("it is said", lambda: lab.condition("Ready").get("reason") == "Forbidden")
        assert 'cannot patch resource "networkpolicies"' in lab.condition("Ready")["message"]
        until("the other children", lambda: len(lab.children()) == 4)
        lab.apply({**role, "rules": rbac.rules(rbac.OPERATOR)})
        lab.deploy(replicas=3)
        until("the last child", lambda: len(lab.children()) == 5)
        until("and it is taken back", lambda: lab.condition("Ready").get("reason") == "PodsNotReady")


def test_a_namespace_that_goes_away_is_left_in_peace(lab: OperatorLab) -> None:
    with lab.operator() as running:
        lab.deploy()
        until("every child", lambda: len(lab.children()) == 5)
        lab.cluster.kubectl("delete", "namespace", lab.namespace, "--wait=false")
        gone = ("get", "namespace", lab.namespace)
        until("it is gone", lambda: lab.cluster.kubectl(*gone, check=False).returncode != 0)
        time.sleep(2.5)
        assert running.answers("/healthz")[0] == 200
        assert not running.errors()
    lab.cluster.kubectl("create", "namespace", lab.namespace)


def test_a_second_operator_waits_for_the_first_to_give_the_lease_back(lab: OperatorLab) -> None:
    with lab.operator() as first:
        second = lab.start(identity="another-pod")
        until("the second is well", lambda: second.answers("/readyz")[0] == 200)
        assert _holder(lab) == "operator-under-test"
        lab.deploy()
        until("every child", lambda: len(lab.children()) == 5)
        assert 'code="201",verb="apply"' not in second.answers("/metrics")[1]
    assert first.process.returncode == 0
    assert _holder(lab) in ("", "another-pod"), "given back, and not left to run out"
    until("the second took over", lambda: _holder(lab) == "another-pod")
    lab.delete("service", "gemma", "--wait=false")
    until("the service is back", lambda: len(lab.children()) == 5)
    second.process.send_signal(signal.SIGTERM)
    assert second.process.wait(60.0) == 0
    assert _holder(lab) == "", "given back at the end"


def _holder(lab: OperatorLab) -> str:
    lease = lab.cluster.kubectl("get", "lease", names.OPERATOR, "-n", SYSTEM, "-o", "json")
    return str(json.loads(lease.stdout)["spec"].get("holderIdentity", ""))


def _told(lab: OperatorLab) -> str:
    return str((lab.get(names.PLURAL) or {}).get("status", {}).get("speculation", {}).get("message", ""))


def _observed(lab: OperatorLab, name: str) -> bool:
    body = lab.get(names.PLURAL, name) or {}
    return (body.get("status") or {}).get("observedGeneration") == 1


def _versions(lab: OperatorLab) -> dict[Any, str]:
    bodies = [*lab.children().values(), lab.get(names.PLURAL) or {}, *lab.pods()]
    return {(body["kind"], body["metadata"]["name"]): body["metadata"]["resourceVersion"] for body in bodies}
