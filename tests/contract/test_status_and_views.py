"""Status, scale, columns, selectors and explanations, as users and autoscalers see them on a real API server."""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException
from tests import definitions
from tests.contract.objects import specdep
from tests.contract.server import Server

from devcluster import Cluster
from speculative_operator.api.crd import SELECTABLE, schema
from speculative_operator.api.status import DECISIONS_KEPT
from speculative_operator.domain.reasons import ConditionType

pytestmark = pytest.mark.cluster

MOMENT = "2026-01-02T03:04:05Z"


def sample(node: dict[str, Any]) -> Any:
    """A value of the schema, with every field that it has, and as few items of each list as it takes."""
    match node["type"]:
        case "object" if "additionalProperties" in node:
            return {"key": sample(node["additionalProperties"])}
        case "object":
            return {name: sample(field) for name, field in node["properties"].items()}
        case "array":
            return [sample(node["items"])] * max(node.get("minItems", 1), 1)
        case "string":
            return MOMENT if node.get("format") == "date-time" else "word"
    return {"integer": 3, "boolean": True}[node["type"]]


SHOWN = {
    "state": "On", "method": "draft_model", "k": "4", "acceptanceRate": "71%", "tpot": "8.1ms", "gain": "+31%",
    "costPer1kTokens": "0.0009",
}  # fmt: skip
WHOLE: dict[str, Any] = sample(schema()["properties"]["status"])
WHOLE |= {"mode": "Paused", "ready": "1/2", "replicas": 2, "selector": "serving.speculative.dev/deployment=seen"}
WHOLE |= {"conditions": [{**WHOLE["conditions"][0], "type": kind.value, "status": "True"} for kind in ConditionType]}
WHOLE["speculation"] |= SHOWN
WHOLE["weights"]["text"] = "61%, 3m left"
DECISION = WHOLE["decisions"][0]
"""A status with every field that the schema has."""


@pytest.fixture
def seen(server: Server) -> Iterator[str]:
    """An object that is kept, with a whole status."""
    name = "seen"
    body = specdep({"speculation.mode": "Recommend", "replicas": 2}, name=name)
    server.create(body, keep=True)
    server.write_status(name, WHOLE)
    yield name
    server.custom.delete_namespaced_custom_object(*server.at, name)


def test_every_status_field_is_kept(server: Server, seen: str) -> None:
    assert server.get(seen)["status"] == WHOLE


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("decisions", [DECISION] * (DECISIONS_KEPT + 1), "status.decisions"),
        ("speculation.k", 4, "status.speculation.k"),
        ("speculation.gainPercent.mid", 1.5, "status.speculation.gainPercent.mid"),
        ("conditions", [*WHOLE["conditions"], WHOLE["conditions"][0]], "status.conditions"),
    ],
)
def test_status_is_bounded_and_typed(server: Server, seen: str, path: str, value: Any, field: str) -> None:
    status = copy.deepcopy(WHOLE)
    *parents, last = path.split(".")
    node = status
    for key in parents:
        node = node[key]
    node[last] = value
    with pytest.raises(ApiException, match=field.replace(".", r"\.")):
        server.write_status(seen, status)


def test_words_that_this_version_does_not_know_are_kept(server: Server, seen: str) -> None:
    """A newer operator under an older definition."""
    server.write_status(seen, {"speculation": {"state": "Dreaming", "reason": "NewReason"}})
    assert server.get(seen)["status"]["speculation"]["state"] == "Dreaming"


def test_status_and_spec_are_written_apart(server: Server, seen: str) -> None:
    before = server.get(seen)
    server.custom.patch_namespaced_custom_object(*server.at, seen, {"status": {"url": "http://elsewhere"}})
    after = server.get(seen)
    assert after["status"] == before["status"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]


def test_scale(server: Server, seen: str) -> None:
    scale: Any = server.custom.get_namespaced_custom_object_scale(*server.at, seen)
    assert scale["spec"]["replicas"] == 2
    assert scale["status"] == {"replicas": 2, "selector": WHOLE["selector"]}
    server.custom.patch_namespaced_custom_object_scale(*server.at, seen, {"spec": {"replicas": 5}})
    assert server.get(seen)["spec"]["replicas"] == 5


def _lines(cluster: Cluster, *arguments: str) -> list[list[str]]:
    return [line.split() for line in cluster.kubectl("get", *arguments).stdout.splitlines()]


def test_columns(bare_cluster: Cluster, seen: str) -> None:
    head, row = _lines(bare_cluster, "specdep", seen)
    assert head == ["NAME", "READY", "MODE", "METHOD", "K", "ACCEPT", "GAIN", "STATE", "AGE"]
    assert row[:8] == ["seen", "1/2", "Paused", "draft_model", "4", "71%", "+31%", "On"]
    head, row = _lines(bare_cluster, "specdep", seen, "-o", "wide")
    assert head[9:] == ["TPOT", "COST/1K", "WEIGHTS", "REASON", "METRICS", "WARNING", "SEEN"]
    assert row[9:17] == ["8.1ms", "0.0009", "61%,", "3m", "left", "word", "word", "word"]
    assert re.fullmatch(r"\d+\w", row[17]), "how old the figures are"


def test_selectable_fields(bare_cluster: Cluster, seen: str) -> None:
    spec = {"speculation": {"mode": "Recommend"}, "engine": {"type": "vLLM"}, "speculator": {"method": "draft_model"}}
    wanted = f"spec.speculation.mode={spec['speculation']['mode']},spec.engine.type={spec['engine']['type']}"
    assert "seen" in bare_cluster.kubectl("get", "specdep", "--field-selector", wanted).stdout
    assert "seen" not in bare_cluster.kubectl("get", "specdep", "--field-selector", "spec.engine.type=SGLang").stdout
    for path in SELECTABLE:
        bare_cluster.kubectl("get", "specdep", "--field-selector", f"{path}=x")


def test_explains(bare_cluster: Cluster, installed: dict[str, Any]) -> None:
    """Every field of spec and status has words, and the server hands them out."""
    for _ in range(50):
        shown = bare_cluster.kubectl("explain", "specdep.spec.speculation", check=False)
        if shown.returncode == 0:
            break
        time.sleep(0.2)
    assert "enum: Auto, Recommend, Static, Disabled" in shown.stdout
    assert "Draft tokens per request and step" in shown.stdout
    tree = bare_cluster.kubectl("explain", "specdep", "--recursive").stdout
    assert "gpuMemoryUtilizationPercent\t<integer>" in tree

    def silent(node: dict[str, Any], path: str) -> Iterator[str]:
        for name, field in node.get("properties", {}).items():
            if not field.get("description"):
                yield f"{path}.{name}"
            yield from silent(field.get("items", field), f"{path}.{name}")

    root = schema()
    assert not [*silent(root["properties"]["spec"], "spec"), *silent(root["properties"]["status"], "status")]


def test_examples_are_accepted(bare_cluster: Cluster, installed: dict[str, Any]) -> None:
    """With KEDA's, on KEDA's own definition."""
    definitions.install(bare_cluster, definitions.read("keda"))
    files = sorted(Path("examples").rglob("*.yaml"))
    named = [option for file in files for option in ("-f", str(file))]
    shown = bare_cluster.kubectl("apply", "--dry-run=server", "--validate=strict", *named, "-o", "json").stdout
    assert len(json.loads(shown)["items"]) == len(files) >= 10
