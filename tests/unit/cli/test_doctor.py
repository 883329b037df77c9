"""What `speculative doctor` finds in a cluster, and what it says where it may not look."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml
from tests.unit.cli.test_cluster_commands import FakeCluster, stored

from generate import rbac
from speculative_operator import __version__
from speculative_operator.api.crd import crd
from speculative_operator.cli import doctor, inspection, main, scraped
from speculative_operator.domain import names

PAGE = """speculative_operator_leader 1.0
speculative_operator_unwatched{resource="httproutes"} 0.0
speculative_operator_object_info{namespace="models",name="demo",mode="Auto"} 1.0
speculative_operator_object_running_requests{namespace="models",name="demo"} 3.0
"""
USER = "system:serviceaccount:sys:op"
FORBIDDEN = ("customresourcedefinitions", "deployments", "prometheuses", names.PLURAL)


def deployment(ready: int = 1, release: str = __version__, env: tuple[dict[str, str], ...] = ()) -> dict[str, Any]:
    return {
        "metadata": {"name": "op", "namespace": "sys", "labels": {"app.kubernetes.io/version": release}},
        "spec": {"template": {"spec": {"serviceAccountName": "op", "containers": [{"env": list(env)}]}}},
        "status": {"readyReplicas": ready},
    }


def healthy(body: dict[str, Any] | None = None, **listed: list[Any]) -> FakeCluster:
    """A cluster with the operator installed, one tuned object, and further lists of objects."""
    pods = [{"metadata": {"name": "op-1", "namespace": "sys"}}]
    known = {"customresourcedefinitions": [crd()], "deployments": [deployment()], "operator pods": pods}
    cluster = FakeCluster(body or stored("tuned"), {**known, **listed})
    cluster.pages["op-1:8080/metrics"] = PAGE
    return cluster


def serving(name: str, node: str = "", gpus: int = 1, *, ready: bool = True) -> dict[str, Any]:
    labels = names.selector("demo")
    container = {"name": "engine", "resources": {"limits": {"nvidia.com/gpu": gpus, "memory": "1Gi"}}}
    return {
        "metadata": {"name": name, "namespace": "models", "labels": labels},
        "spec": {"containers": [container], **({"nodeName": node} if node else {})},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def node(name: str, gpus: int) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {}, "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}}}


@pytest.fixture
def diagnose(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command on a cluster: exit status, and what each check found as (result, message, next)."""

    def run(cluster: FakeCluster) -> tuple[int, dict[str, list[tuple[str, str, str]]]]:
        monkeypatch.setattr(doctor, "Cluster", cluster)
        status = main.main(["doctor", "-o", "json"])
        told = json.loads(capsys.readouterr().out)
        assert told["ok"] is (status == 0)
        found: dict[str, list[tuple[str, str, str]]] = {}
        for one in told["checks"]:
            found.setdefault(one["check"], []).append((one["result"], one["message"], one["next"]))
        assert list(found) == list(doctor.CHECKS)
        for check, lines in found.items():
            assert all(step for result, _, step in lines if result == "wrong"), f"{check} says nothing of what to do"
        return status, found

    return run


def condition_of(body: dict[str, Any], kind: str, **change: str) -> dict[str, Any]:
    body = copy.deepcopy(body)
    next(one for one in body["status"]["conditions"] if one["type"] == kind).update(change)
    return body


def test_nothing_is_wrong(diagnose: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    status, found = diagnose(healthy())
    assert status == 0
    assert {one[0] for lines in found.values() for one in lines} == {"ok"}
    monkeypatch.setattr(doctor, "Cluster", healthy())
    assert main.main(["doctor"]) == 0
    (well, _) = capsys.readouterr().out.splitlines()
    assert well == f"ok       {', '.join(doctor.CHECKS)}"
    assert main.main(["doctor", "-o", "wide"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[:-1]] == list(doctor.CHECKS)
    assert lines[-1] == "nothing is wrong"
    assert main.main(["doctor", "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["ok"] is True


def test_what_is_not_installed(diagnose: Any) -> None:
    status, found = diagnose(FakeCluster())
    assert status == 1
    assert found["definition"][0][:2] == ("wrong", "the definition of SpeculativeDeployment is not installed")
    assert found["operator"][0][1] == "no Deployment of the operator was found"


def test_an_operator_without_a_pod_that_leads(diagnose: Any) -> None:
    cluster = healthy(deployments=[deployment(ready=0)])
    assert "has no ready pod" in diagnose(cluster)[1]["operator"][0][1]
    cluster = healthy()
    cluster.pages["op-1:8080/metrics"] = PAGE.replace("leader 1.0", "leader 0.0")
    assert diagnose(cluster)[1]["operator"][0][1] == "no pod of the operator leads"


def test_a_kind_that_cannot_be_watched(diagnose: Any) -> None:
    cluster = healthy()
    cluster.pages["op-1:8080/metrics"] = PAGE.replace('"httproutes"} 0.0', '"httproutes"} 1.0')
    assert "cannot watch httproutes" in diagnose(cluster)[1]["operator"][0][1]


class TestDefinition:
    def older(self) -> dict[str, Any]:
        found = copy.deepcopy(crd())
        status = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
        del status["startup"]
        del status["decisions"]["items"]["properties"]["tableVersion"]
        return found

    def test_fields_that_it_does_not_declare(self, diagnose: Any) -> None:
        cluster = healthy(customresourcedefinitions=[self.older()])
        status, found = diagnose(cluster)
        ((result, message, step),) = found["definition"]
        assert (status, result) == (1, "wrong")
        assert message.endswith("it does not declare status.startup, status.decisions.tableVersion")
        assert "kubectl apply --server-side -f crds/" in step

    def test_a_command_of_another_release_does_not_judge(self, diagnose: Any) -> None:
        cluster = healthy(customresourcedefinitions=[self.older()], deployments=[deployment(release="0.0.9")])
        status, found = diagnose(cluster)
        assert (status, found["definition"][0][0]) == (0, "unknown")
        assert "the operator is of release 0.0.9" in found["definition"][0][1]


class TestRights:
    def test_what_is_asked_for_is_what_the_chart_grants(self) -> None:
        granted = {(one.resource, one.group): set(one.verbs) for one in rbac.OPERATOR}
        asked = {(resource, group): set(verbs) for resource, group, verbs in inspection.required_kinds()}
        assert {key: verbs - granted[key] for key, verbs in asked.items() if verbs - granted[key]} == {}
        optional = {"podmonitors", "servingruntimes", "inferenceservices", "llminferenceservices", "httproutes"}
        optional |= {"leaderworkersets", "pods/log", "replicasets", "statefulsets", f"{names.PLURAL}/finalizers"}
        optional |= {f"{names.TRAINING_PLURAL}{part}" for part in ("", "/status", "/finalizers")}
        assert {resource for resource, _ in granted.keys() - asked.keys()} == optional

    def test_a_verb_that_is_missing(self, diagnose: Any) -> None:
        cluster = healthy()
        cluster.lacking = {("patch", "deployments"), ("create", "events")}
        status, found = diagnose(cluster)
        ((result, message, step),) = found["rights"]
        assert (status, result) == (1, "wrong")
        assert message == f"{USER} may not create events, patch deployments in all namespaces"
        assert f"--as={USER}" in step

    def test_namespaces_that_are_served_are_asked_for(self, diagnose: Any) -> None:
        cluster = healthy(deployments=[deployment(env=({"name": "SPECULATIVE_NAMESPACES", "value": "a,b"},))])
        assert diagnose(cluster)[0] == 0
        assert {namespace for _, namespace, *_ in cluster.asked} == {"a", "b"}

    def test_who_may_not_ask_is_told_so(self, diagnose: Any) -> None:
        cluster = healthy()
        cluster.forbidden = ("subjectaccessreviews",)
        status, found = diagnose(cluster)
        assert (status, found["rights"]) == (
            0,
            [("unknown", "not looked at: you cannot list subjectaccessreviews", "")],
        )


class TestFigures:
    @pytest.mark.parametrize(
        ("reason", "check"),
        [
            ("PrometheusError", "prometheus"),
            ("PrometheusTimeout", "prometheus"),
            ("MetricsStale", "freshness"),
            ("MetricsForeign", "labels"),
            ("MetricsMissing", "figures"),
            ("MetricsPartial", "figures"),
        ],
    )
    def test_what_the_operator_reports_is_in_the_check_for_it(self, diagnose: Any, reason: str, check: str) -> None:
        body = condition_of(stored("tuned"), "MetricsAvailable", status="False", reason=reason, message="because")
        status, found = diagnose(healthy(body))
        assert status == 1
        assert {name for name, lines in found.items() if lines[0][0] == "wrong"} == {check}
        assert found[check][0][1].startswith(f"models/demo: {reason}: because. ")

    def test_pods_that_are_read_directly_are_no_fault(self, diagnose: Any) -> None:
        message = "Figures are there. The operator reads them from the pods: Prometheus has none"
        status, found = diagnose(healthy(condition_of(stored("tuned"), "MetricsAvailable", message=message)))
        assert (status, found["prometheus"][0][0]) == (0, "ok")
        assert found["prometheus"][0][1].endswith("the operator reads the pods itself: Prometheus has none")

    def test_an_object_without_figures_of_the_last_minute(self, diagnose: Any) -> None:
        cluster = healthy()
        cluster.pages["op-1:8080/metrics"] = PAGE.rsplit("\n", 2)[0] + "\n"
        status, found = diagnose(cluster)
        assert status == 1
        assert found["freshness"][0][1].startswith("models/demo: no figures of the last minute")

    @pytest.mark.parametrize(
        ("page", "said"),
        [
            ('vllm:num_requests_running{engine="0"} 2.0\n', "demo-1 exports 1 of the series itself"),
            ("process_cpu_seconds_total 3\n", "demo-1 exports none of the series itself"),
        ],
    )
    def test_a_pod_is_asked_whether_it_exports_what_is_missing(self, diagnose: Any, page: str, said: str) -> None:
        body = condition_of(
            stored("tuned"), "MetricsAvailable", status="False", reason="MetricsMissing", message="none"
        )
        cluster = healthy(body)
        cluster.serving = [serving("demo-1", "a")]
        cluster.pages["demo-1:8000/metrics"] = page
        assert said in diagnose(cluster)[1]["figures"][0][1]
        cluster.forbidden = ("page of demo-1",)
        assert "exports" not in diagnose(cluster)[1]["figures"][0][1]

    def test_a_pod_that_follows_an_older_table(self, diagnose: Any) -> None:
        change = {"status": "False", "reason": "TableNotInForce", "message": "demo-1 serves with table 5"}
        status, found = diagnose(healthy(condition_of(stored("tuned"), "TuningConverged", **change)))
        assert status == 1
        assert found["tables"][0][1].startswith("models/demo: TableNotInForce: demo-1 serves with table 5. ")
        assert "kubectl delete pod POD -n models" in found["tables"][0][2]

    def test_a_table_that_pods_have_not_told_of_yet_is_no_fault(self, diagnose: Any) -> None:
        body = stored("tuned")
        body["status"]["engine"] = {"tableVersionInPods": 5}
        status, found = diagnose(healthy(body))
        told = "models/demo: pods last had table 5, active is 6; idle pods read none"
        assert (status, found["tables"]) == (0, [("ok", told, "")])


class TestAccelerators:
    def test_what_is_free_is_told_by_node(self, diagnose: Any) -> None:
        cluster = healthy(nodes=[node("a", 4), node("b", 4), node("cpu", 0)])
        cluster.serving = [serving("demo-1", "a", 2), serving("demo-2", "b", 4)]
        status, found = diagnose(cluster)
        assert status == 0
        assert found["accelerators"] == [("ok", "nvidia.com/gpu free: 2 of 4 on a", "")]

    @pytest.mark.parametrize(("free", "wrong"), [(1, True), (2, False)])
    def test_pods_that_wait_for_some(self, diagnose: Any, free: int, wrong: bool) -> None:
        cluster = healthy(nodes=[node("a", 2 + free)])
        cluster.serving = [serving("demo-1", "a", 2), serving("demo-2", "", 2, ready=False)]
        lines = diagnose(cluster)[1]["accelerators"]
        told = "models/demo: 1 pods wait for 2 nvidia.com/gpu each; no node has as many free"
        assert [one[1] for one in lines if one[0] == "wrong"] == ([told] if wrong else [])

    def test_who_may_not_list_nodes_is_told_so(self, diagnose: Any) -> None:
        cluster = healthy()
        cluster.serving = [serving("demo-1", "a")]
        cluster.forbidden = ("nodes",)
        assert diagnose(cluster)[1]["accelerators"] == [("unknown", "not looked at: you cannot list nodes", "")]


class TestObjects:
    def test_one_that_nobody_looks_after(self, diagnose: Any) -> None:
        status, found = diagnose(healthy({"metadata": {"name": "new", "namespace": "models"}, "spec": {}}))
        assert status == 1
        assert found["objects"][0][1].startswith("models/new has no status")

    def test_one_that_is_not_ready(self, diagnose: Any) -> None:
        body = condition_of(stored("tuned"), "Ready", status="False", reason="PodsNotReady", message="1 of 2 pods")
        assert diagnose(healthy(body))[1]["objects"][0][1].startswith("models/demo: PodsNotReady: 1 of 2 pods. ")

    def test_who_may_list_one_namespace_alone_learns_of_its_objects(
        self, diagnose: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster = healthy()
        cluster.forbidden = FORBIDDEN
        status, found = diagnose(cluster)
        assert status == 0
        assert [found[check][0][:2] for check in ("definition", "operator", "selectors")] == [
            ("unknown", f"not looked at: you cannot list {kind}") for kind in FORBIDDEN[:3]
        ]
        assert found["objects"][0][1].startswith("only objects of namespace models were looked at")
        monkeypatch.setattr(doctor, "Cluster", cluster)
        assert main.main(["doctor"]) == 0
        assert capsys.readouterr().out.endswith("nothing is wrong in what could be looked at\n")

    def test_who_may_list_nothing_is_told_so(self, diagnose: Any) -> None:
        cluster = healthy()
        cluster.forbidden = (*FORBIDDEN, "own")
        status, found = diagnose(cluster)
        assert (status, found["objects"][0][0]) == (0, "unknown")


def test_what_was_found_before_a_refusal_is_told(diagnose: Any) -> None:
    body = condition_of(stored("tuned"), "MetricsAvailable", status="False", reason="MetricsStale", message="old")
    cluster = healthy(body)
    cluster.forbidden = ("page of op-1",)
    assert [one[0] for one in diagnose(cluster)[1]["freshness"]] == ["wrong", "unknown"]


def test_a_pod_monitor_that_nobody_selects(diagnose: Any) -> None:
    meta = {"name": "k8s", "namespace": "monitoring"}
    monitor = {"metadata": {"name": "demo", "namespace": "models", "labels": {"release": "other"}}}
    server = {"metadata": meta, "spec": {"podMonitorSelector": {"matchLabels": {"release": "kps"}}}}
    cluster = healthy(prometheuses=[server], podmonitors=[monitor])
    status, found = diagnose(cluster)
    assert status == 1
    assert found["selectors"][0][1].startswith("no Prometheus selects the PodMonitors models/demo (")
    monitor["metadata"]["labels"] = {"release": "kps"}
    assert diagnose(cluster)[0] == 0


class TestTheFoundPrometheus:
    @staticmethod
    def cluster(*places: str, **env: str) -> FakeCluster:
        metas = [dict(zip(("namespace", "name"), one.split("/"), strict=True)) for one in places]
        return healthy(
            prometheuses=[{"metadata": meta, "spec": {}} for meta in metas],
            deployments=[deployment(env=tuple({"name": key, "value": env[key]} for key in env))],
        )

    def test_the_setting_that_keeps_it_is_told(self, diagnose: Any) -> None:
        status, found = diagnose(self.cluster("observability/k8s"))
        ((result, message, step),) = found["prometheus"]
        assert (status, result) == (0, "ok")
        assert message.startswith("the operator finds http://prometheus-operated.observability.svc:9090 by itself")
        assert step.endswith("prometheus.url=http://prometheus-operated.observability.svc:9090")

    def test_several_must_be_chosen_from(self, diagnose: Any) -> None:
        status, found = diagnose(self.cluster("a/x", "b/y"))
        assert status == 1
        assert "there are 2 Prometheus servers (a/x, b/y)" in found["prometheus"][0][1]

    @pytest.mark.parametrize("setting", ["URL", "TOKEN_FILE"])
    def test_an_address_that_is_set_is_enough(self, diagnose: Any, setting: str) -> None:
        found = diagnose(self.cluster("a/x", "b/y", **{f"SPECULATIVE_PROMETHEUS_{setting}": "https://x"}))[1]
        assert found["prometheus"][0][1] == "the operator reports no trouble with it"


@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        ({}, True),
        (None, False),
        ({"matchLabels": {"a": "1"}}, True),
        ({"matchLabels": {"a": "2"}}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, False),
        ({"matchExpressions": [{"key": "b", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Like"}]}, False),
    ],
)
def test_selectors_of_kubernetes(selector: Any, taken: bool) -> None:
    assert scraped.selects(selector, {"a": "1"}) is taken
