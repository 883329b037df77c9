"""`speculative get`, `status`, `explain`, `pause` and others against a real API server, on an object as a release left
it."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.contract.server import Server
from tests.unit.reconcile.objects import left, spec_of

from devcluster import Cluster
from speculative_operator.cli import cluster
from speculative_operator.cli.commands import CommandError
from speculative_operator.cli.main import main
from speculative_operator.domain import names
from speculative_operator.reconcile.snapshot import notes

ROOT = Path(__file__).resolve().parents[2]
STORED_OBJECT = left("proposal")


@pytest.fixture(scope="module")
def name(server: Server, bare_cluster: Cluster) -> Iterator[str]:
    body = {
        "apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": "demo", "namespace": "default"},
        "spec": STORED_OBJECT["spec"],
    }  # fmt: skip
    server.create(body, keep=True)
    server.write_status("demo", STORED_OBJECT["status"])
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("KUBECONFIG", str(bare_cluster.kubeconfig))
        yield "demo"
    server.custom.delete_namespaced_custom_object(*server.at, "demo")


def annotations_of(server: Server) -> dict[str, Any]:
    return dict(server.get("demo")["metadata"].get("annotations") or {})


def test_it_is_listed_shown_and_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.split()[1] == name)
    assert row.split()[:6] == ["default", "demo", "1/1", "Auto", "suffix", "3"]
    assert main(["get", "-A", "-o", "json"]) == 0
    assert name in {json.loads(line)["metadata"]["name"] for line in capsys.readouterr().out.splitlines()}
    assert main(["status", name]) == 0
    assert capsys.readouterr().out.startswith("demo in default: ready (AllReady), mode Auto\n")
    assert main(["explain", name]) == 0
    assert "  next      speculative approve demo -n default\n" in capsys.readouterr().out
    assert main(["explain", name, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["cause"]["reason"] == "RolloutNeedsApproval"


def test_beliefs_come_from_the_notes(
    name: str, server: Server, bare_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def believed() -> int:
        assert main(["explain", name, "-o", "json"]) == 0
        return len(json.loads(capsys.readouterr().out)["beliefs"])

    status = STORED_OBJECT["status"]
    server.write_status(name, {**status, "speculation": {**status["speculation"], "concurrency": "6.0"}})
    assert believed() == 0
    spec = replace(spec_of(STORED_OBJECT["spec"]), namespace="default", uid=server.get(name)["metadata"]["uid"])
    config = notes.manifest(spec, STORED_OBJECT["notes"])
    bare_cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(config))
    assert believed() > 0
    bare_cluster.kubectl("delete", "configmap", f"{name}-notes", "-n", "default")
    assert believed() == 0
    server.write_status(name, STORED_OBJECT["status"])


def test_annotations_are_written_and_nothing_else(name: str, server: Server) -> None:
    before = server.get(name)
    assert main(["pause", name]) == 0
    assert annotations_of(server)[names.ANNOTATION_PAUSED] == "true"
    assert main(["resume", name]) == 0
    assert names.ANNOTATION_PAUSED not in annotations_of(server)
    assert main(["approve", name]) == 0
    assert annotations_of(server)[names.ANNOTATION_ACCEPT] == STORED_OBJECT["status"]["rollout"]["proposal"]["accept"]
    after = server.get(name)
    assert (after["spec"], after["status"]) == (before["spec"], before["status"])


def diagnosis(capsys: pytest.CaptureFixture[str]) -> dict[str, list[tuple[str, str]]]:
    """What each check of `speculative doctor` finds."""
    main(["doctor", "-o", "json"])
    found: dict[str, list[tuple[str, str]]] = {}
    for one in json.loads(capsys.readouterr().out)["checks"]:
        found.setdefault(one["check"], []).append((one["result"], one["message"]))
    return found


def test_doctor_names_what_is_missing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 1
    assert "no Deployment of the operator was found" in capsys.readouterr().out
    found = diagnosis(capsys)
    assert [found[check][0][0] for check in ("definition", "rights", "selectors", "accelerators")] == ["ok"] * 4


@pytest.fixture
def bare_operator(bare_cluster: Cluster) -> Iterator[str]:
    """The operator's Deployment, of which no controller makes pods, with an account that may do little."""
    template = {
        "metadata": {"labels": {"app": "op"}},
        "spec": {"serviceAccountName": "op", "containers": [{"name": "op", "image": "op"}]},
    }
    body = {
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "op", "labels": {"app.kubernetes.io/name": names.OPERATOR}},
        "spec": {"selector": {"matchLabels": {"app": "op"}}, "template": template},
    }  # fmt: skip
    bare_cluster.kubectl("apply", "-f", "-", input=json.dumps(body))
    rules = [f"--resource={names.PLURAL}.{names.GROUP}", "--resource=pods,services,configmaps", "--resource=jobs.batch"]
    bare_cluster.kubectl("create", "clusterrole", "op", "--verb=*", *rules)
    bare_cluster.kubectl("create", "clusterrolebinding", "op", "--clusterrole=op", "--serviceaccount=default:op")
    yield "system:serviceaccount:default:op"
    for kind in ("deployment", "clusterrole", "clusterrolebinding"):
        bare_cluster.kubectl("delete", kind, "op")


def test_doctor_asks_what_the_operator_may_do(bare_operator: str, capsys: pytest.CaptureFixture[str]) -> None:
    ((result, message),) = diagnosis(capsys)["rights"]
    assert result == "wrong"
    assert message.startswith(
        f"{bare_operator} may not patch speculativedeployments/status, create events, get deploym"
    )
    assert message.endswith(" more in all namespaces")


@pytest.fixture
def as_reader(bare_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands run as somebody who may read the objects of one namespace, and no more."""
    kubectl = bare_cluster.kubectl
    kubectl("create", "serviceaccount", "reader")
    kubectl("create", "role", "reader", "--verb=get,list", f"--resource={names.PLURAL}.{names.GROUP}")
    kubectl("create", "rolebinding", "reader", "--role=reader", "--serviceaccount=default:reader")
    config = yaml.safe_load(Path(bare_cluster.kubeconfig).read_text())
    config["users"][0]["user"] = {"token": kubectl("create", "token", "reader").stdout.strip()}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))


def test_doctor_looks_at_what_a_reader_of_one_namespace_may_list(
    name: str, as_reader: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    for kind in ("customresourcedefinitions", "deployments", "prometheuses"):
        assert re.search(rf"^unknown +\w+ +not looked at: {kind}[^;]* is forbidden: [^;]*$", said, re.MULTILINE)
    assert "only objects of namespace default were looked at" in said
    assert said.endswith("nothing is wrong in what could be looked at\n")


def test_a_service_is_asked_through_the_api_server(bare_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(bare_cluster.kubeconfig))
    at = cluster.Cluster(Namespace(context="", namespace="default"))
    with pytest.raises(CommandError, match='services "prometheus-operated" not found'):
        at.service_page("default", "http:prometheus-operated:9090", "/api/v1/query", {"query": 'up{a="b"}[60s]'})
