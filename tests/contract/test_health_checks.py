"""`kubectl wait`, the health check for Flux and the columns of `kubectl get`, on an API server.

Flux evaluates its expressions in its own controller. Here Kubernetes' CEL evaluates the same text, with the object's
fields in place of the variables `status` and `metadata`; Flux itself is not run.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.contract.server import Server
from tests.unit.reconcile.health import HEALTH, healthy, refused
from tests.unit.reconcile.objects import SPECS

from devcluster import Cluster
from speculative_operator.domain import names

FILE = Path(__file__).resolve().parents[2] / "manifests" / "health" / "flux-kustomization.yaml"
LABELS = {"health": "flux"}
WAIT_SECONDS = 30.0


def expressions() -> dict[str, str]:
    """Health in Flux -> its expression, over `object`."""
    (check,) = yaml.safe_load(FILE.read_text())["spec"]["healthCheckExprs"]
    assert (check["apiVersion"], check["kind"]) == (names.API_VERSION, names.KIND)
    told = {"InProgress": check["inProgress"], "Failed": check["failed"], "Current": check["current"]}
    return {word: re.sub(r"(?<![\w.])(status|metadata)\.", r"object.\1.", text) for word, text in told.items()}


@pytest.fixture(scope="module")
def asked(server: Server, bare_cluster: Cluster) -> Iterator[Callable[[dict[str, Any]], str]]:
    """Writes a status in a dry run, which a policy denies with the words whose expressions hold."""
    found = ", ".join(f"({text}) ? '{word}' : ''" for word, text in expressions().items())
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "health"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "objectSelector": {"matchLabels": LABELS},
                "resourceRules": [{
                    "apiGroups": [names.GROUP], "apiVersions": ["*"], "operations": ["UPDATE"],
                    "resources": [f"{names.PLURAL}/status"],
                }],
            },
            "validations": [{"expression": "false", "messageExpression": f"'health:' + [{found}].join(' ')"}],
        },
    }  # fmt: skip
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "health"}, "spec": {"policyName": "health", "validationActions": ["Deny"]},
    }  # fmt: skip
    spec = SPECS["tuned"]
    meta = {"name": "health", "namespace": "default", "labels": LABELS}
    server.create({"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": spec}, keep=True)
    documents = "\n---\n".join(json.dumps(one) for one in (policy, binding))
    bare_cluster.kubectl("apply", "-f", "-", input=documents)

    def ask(body: dict[str, Any]) -> str:
        stale = body["metadata"]["generation"] - body["status"]["observedGeneration"]
        now = server.get("health")["metadata"]["generation"]
        patch = json.dumps({"status": {**body["status"], "observedGeneration": now - stale}})
        arguments = ("patch", "specdep", "health", "-n", "default", "--subresource=status", "--type=merge")
        until = time.monotonic() + WAIT_SECONDS
        while True:  # a new policy takes effect within seconds
            done = bare_cluster.kubectl(*arguments, "--dry-run=server", "-p", patch, check=False)
            if (said := re.search(r"health:([\w ]*)", done.stderr)) or time.monotonic() > until:
                assert said is not None, done.stderr or done.stdout
                return said[1].strip()
            time.sleep(0.2)

    yield ask
    bare_cluster.kubectl("delete", "-f", "-", input=documents)
    server.custom.delete_namespaced_custom_object(*server.at, "health")


@pytest.mark.parametrize("made", HEALTH, ids=lambda made: made.__name__)
def test_flux_shows_the_health_of_each_object(
    asked: Callable[[dict[str, Any]], str], made: Callable[[], dict[str, Any]]
) -> None:
    """Exactly one expression holds."""
    assert asked(made()) == HEALTH[made][1]


@pytest.fixture
def write_status(server: Server) -> Iterator[Callable[[dict[str, Any]], str]]:
    """Writes an object with a long name and such a status; gives its name."""
    name = "llama-3-3-70b-instruct"
    spec = SPECS["tuned"]
    meta = {"name": name, "namespace": "default"}
    server.create({"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": spec}, keep=True)

    def write(status: dict[str, Any]) -> str:
        server.write_status(name, status)
        return name

    yield write
    server.custom.delete_namespaced_custom_object(*server.at, name)


def test_kubectl_waits_for_ready(bare_cluster: Cluster, write_status: Callable[[dict[str, Any]], str]) -> None:
    name = write_status(refused()["status"])
    words = ("wait", f"specdep/{name}", "-n", "default", "--for=condition=Ready")
    assert bare_cluster.kubectl(*words, "--timeout=1s", check=False).returncode == 1
    write_status(healthy()["status"])
    assert "condition met" in bare_cluster.kubectl(*words, "--timeout=30s").stdout
