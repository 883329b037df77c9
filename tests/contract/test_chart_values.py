"""Chart values that users of other charts know: sets of them render and are taken by an API server as they are, or are
refused with the value's path and what is wrong."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml
from tests import definitions
from tests.contract.conftest import ROOT

from devcluster import Cluster, toolchain

pytestmark = pytest.mark.cluster

CHART = str(ROOT / "charts" / "speculative-operator")
SETS = yaml.safe_load((definitions.FIXTURES / "chart_values.yaml").read_text())
RENDERED = {one["name"]: one for one in SETS["rendered"]}
REFUSED = {one["name"]: one for one in SETS["refused"]}
LARGEST = "labels on all that there is"


def helm(*command: str, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    given = {"image": {}, **values}
    given["image"] = {"repository": "r.example/operator", **given["image"]}
    whole = [str(toolchain.ensure().helm), *command, "--values", "-"]
    return subprocess.run(whole, input=yaml.safe_dump(given), capture_output=True, text=True, check=False)


def template(values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return helm("template", "case", CHART, "--namespace", "case", values=values)


@cache
def rendered(name: str) -> str:
    done = template(RENDERED[name]["values"])
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(name: str) -> list[dict[str, Any]]:
    """The quick parser: a set has half a megabyte, most of it the definition."""
    return [one for one in yaml.load_all(rendered(name), yaml.CSafeLoader) if one]


def crds(name: str) -> list[dict[str, Any]]:
    return [one for one in objects(name) if one["kind"] == "CustomResourceDefinition"]


def of_kind(name: str, kind: str) -> dict[str, Any]:
    (found,) = [one for one in objects(name) if one["kind"] == kind and "helm.sh/hook" not in str(one["metadata"])]
    return found


@pytest.mark.parametrize("name", RENDERED)
def test_values_arrive(name: str) -> None:
    assert [part for part in RENDERED[name]["shows"] if part not in rendered(name)] == []


@pytest.mark.parametrize("name", REFUSED)
def test_values_are_refused_for_a_stated_reason(name: str) -> None:
    done = template(REFUSED[name]["values"])
    assert done.returncode != 0, "rendered"
    assert re.search(REFUSED[name]["said"], done.stderr, re.DOTALL), done.stderr


def test_common_labels_are_on_every_object_and_in_no_selector() -> None:
    found = objects(LARGEST)
    assert {one["kind"] for one in found} >= {"CustomResourceDefinition", "Pod", "PodMonitor", "PrometheusRule", "Role"}
    bare = [one for one in found if one["metadata"].get("labels", {}).get("cost-center") != "42"]
    assert [(one["kind"], one["metadata"]["name"]) for one in bare] == []
    pod = of_kind(LARGEST, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert (pod["cost-center"], pod["app.kubernetes.io/part-of"], pod["release"]) == ("42", "serving", "pods")
    selectors = [selector for one in found for selector in _selectors(one) if "labels" not in selector]
    assert len(selectors) > 3
    assert not [one for one in selectors if "cost-center" in str(one) or "release" in one]


def _selectors(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("selector", "podSelector", "matchLabels") and isinstance(value, dict) and "type" not in value:
                yield value
            yield from _selectors(value)
    elif isinstance(node, list):
        for value in node:
            yield from _selectors(value)


def test_the_definitions_are_kept_unless_one_says_otherwise() -> None:
    found = {name: crds(name) for name in ("nothing", LARGEST, "definitions that go")}
    annotations = {name: [one["metadata"].get("annotations") for one in both] for name, both in found.items()}
    kept = [{"helm.sh/resource-policy": "keep"}] * 2
    assert annotations == {"nothing": kept, LARGEST: kept, "definitions that go": [None, None]}
    assert [one["spec"] for one in found[LARGEST]] == [one["spec"] for one in found["nothing"]]
    assert crds("definitions by another hand") == []


def test_one_replica_has_no_budget() -> None:
    assert not [one for one in objects("a budget without need") if one["kind"] == "PodDisruptionBudget"]


def test_helms_own_check_finds_nothing() -> None:
    done = helm("lint", "--strict", CHART, values={})
    assert (done.returncode, "0 chart(s) failed" in done.stdout) == (0, True), done.stdout
    assert helm("lint", "--strict", CHART, values={"replicas": 2}).returncode != 0


def test_the_server_takes_every_object_of_every_set(bare_cluster: Cluster) -> None:
    """Strictly, so that no field is one that Kubernetes does not know, and under the restricted Pod Security level."""
    definitions.install(bare_cluster, definitions.read("monitoring"))
    level = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    every = [{"kind": "Namespace", "metadata": {"name": one, "labels": level}} for one in ("case", "a", "b")]
    apply = ("apply", "--server-side", "--validate=strict", "-f", "-")
    bare_cluster.kubectl(*apply, input=yaml.safe_dump_all([{"apiVersion": "v1", **one} for one in every]))
    made = {  # what most sets have alike counts once
        json.dumps({**one, "metadata": {"namespace": "case", **one["metadata"]}}): one["kind"]
        for name in RENDERED
        for one in objects(name)
        if one["kind"] != "CustomResourceDefinition"
    }
    assert list(made.values()).count("Deployment") > 20
    # A pod is refused whose account is not there.
    accounts = [text for text, kind in made.items() if kind == "ServiceAccount"]
    for dry, texts in (((), accounts), (("--dry-run=server",), list(made))):
        done = bare_cluster.kubectl(*apply, "--force-conflicts", *dry, input="\n---\n".join(texts))
        assert "Warning" not in done.stderr
