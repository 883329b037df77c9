"""Alerts on a cluster, each from a real cause and ended by its remedy: the operator and emulated engines as pods, and
Prometheus with the rules of the chart.

What is shortened are waits: those of the rules, and for a stalled rollout the Deployment's deadline of ten minutes and
more, which the operator would set back unless the object is paused. tests/contract/test_alerts.py holds their times.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from tests.e2e import pairs
from tests.e2e.conftest import NAMESPACE, Stage, until, with_hub

from demo import hub, scene
from devcluster import Cluster
from speculative_operator.domain import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

Alert = tuple[str, str]
"""Name of the alert, and of the object that it is about; empty: about the operator."""
BAD, STUCK, SLOW = "bad", "stuck", "slow"
SECONDS = 240.0
RULES = Path(__file__).resolve().parents[2] / "charts" / "speculative-operator" / "files" / "alerts.yaml"
RANGE = "10s"
"""In place of the rules' quarters of an hour and six hours."""
POOL = "pool"
CATALOGUE, HEADER = "speculative-operator-catalogue", "verifier,speculator,method,k,source,date"
DOWN: Alert = ("SpeculativeOperatorDown", "")
CATALOGUE_BAD: Alert = ("SpeculativeOperatorCatalogueUnreadable", "")


def hastened(rule: dict[str, Any]) -> dict[str, Any]:
    """The rule without its wait, and with `RANGE` for each time in its expression."""
    return rule | {"for": "0s", "expr": re.sub(r"(?<=\[)\w+(?=\])|(?<=offset )\w+", RANGE, rule["expr"])}


def configure(cluster: Cluster, *, engines: bool = True) -> None:
    """Have Prometheus read the rules, look each second, and scrape serving pods or, for once, none of them."""
    folder = cluster.state_dir / "prometheus"
    config = yaml.safe_load((folder / "prometheus.yml").read_text())
    config["global"] |= {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"}
    where = [scene.OPERATOR_NAMESPACE, *([NAMESPACE] if engines else [])]
    for job in config["scrape_configs"]:
        for discovery in job.get("kubernetes_sd_configs", ()):
            discovery["namespaces"] = {"names": where}
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        group["rules"] = [hastened(rule) for rule in group["rules"]]
    (folder / "rules.yml").write_text(yaml.safe_dump(rules))
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config | {"rule_files": ["rules.yml"]}))
    requests.post(f"{cluster.prometheus_url}/-/reload", timeout=60).raise_for_status()


@pytest.fixture(scope="module")
def stage(enclosures: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with with_hub("alerts", tmp_path_factory.mktemp("alerts"), node_settings={"syncSeconds": 1}) as (stage, _):
        scene.have_operator_scraped(stage.cluster)
        configure(stage.cluster)
        yield stage


def firing(stage: Stage) -> set[Alert]:
    found = requests.get(f"{stage.cluster.prometheus_url}/api/v1/alerts", timeout=60).json()["data"]["alerts"]
    return {(one["labels"]["alertname"], one["labels"].get("name", "")) for one in found if one["state"] == "firing"}


def fires(stage: Stage, *alerts: Alert) -> None:
    until(lambda: set(alerts) <= firing(stage), SECONDS)


def resolves(stage: Stage, *alerts: Alert) -> None:
    until(lambda: not set(alerts) & firing(stage), SECONDS)


def rows(stage: Stage, row: str) -> None:
    """The user's one row of the catalogue."""
    meta = {"name": CATALOGUE, "namespace": scene.OPERATOR_NAMESPACE}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"catalogue.csv": f"{HEADER}\n{row}\n"}}
    stage.cluster.kubectl("apply", "-f", "-", input=json.dumps(body))


def patch(stage: Stage, kind: str, name: str, change: dict[str, Any]) -> None:
    stage.cluster.kubectl("patch", kind, name, "-n", NAMESPACE, "--type=merge", "-p", json.dumps(change))


def static(name: str, **spec: Any) -> dict[str, Any]:
    """The example at K = 5, whatever the load."""
    found = copy.deepcopy(scene.variants()[1].manifest)
    found["metadata"]["name"] = name
    found["spec"] |= spec
    return found


def paused(stage: Stage, *, yes: bool) -> None:
    patch(stage, "specdep", STUCK, {"metadata": {"annotations": {names.ANNOTATION_PAUSED: "true" if yes else None}}})


def test_each_alert_fires_by_its_cause_and_ends_with_its_remedy(stage: Stage) -> None:
    slow, stuck = ("SpeculativeDeploymentSlower", SLOW), ("SpeculativeDeploymentRolloutStalled", STUCK)
    bad = [("SpeculativeDeploymentNotReady", BAD), ("SpeculativeDeploymentUnavailable", BAD)]
    until(lambda: DOWN not in firing(stage), SECONDS)

    # A pair that cannot work, a rollout without a node, an unreadable row, and five drafts a step at a high load.
    stage.apply(pairs.manifest(BAD, f"hf://tiny/{hub.DRAFT}", hub.HEAD))
    stage.apply(static(STUCK, template={"spec": {"nodeSelector": {POOL: "gpu"}}}))
    stage.apply(static(SLOW))
    rows(stage, "tiny/target,tiny/draft,draft_modell,3,our wiki,2026-08")
    until(lambda: stage.get("deployment", STUCK), SECONDS)
    paused(stage, yes=True)
    patch(stage, "deployment", STUCK, {"spec": {"progressDeadlineSeconds": 2}})
    scene.wait_ready(stage.cluster, SLOW, SECONDS)
    with stage.under_load({SLOW: SLOW}, rate=8):
        fires(stage, *bad, stuck, slow, CATALOGUE_BAD)

        stage.apply(pairs.manifest(BAD, f"hf://tiny/{hub.TARGET}", hub.DRAFT))
        stage.cluster.kubectl("label", "node", "--all", f"{POOL}=gpu")
        patch(stage, "specdep", SLOW, {"spec": {"speculation": {"mode": "Auto"}}})
        rows(stage, "tiny/target,tiny/draft,draft_model,3,our wiki,2026-08")
        resolves(stage, *bad, stuck, slow, CATALOGUE_BAD)
    paused(stage, yes=False)


def test_missing_metrics_fire_until_they_are_back(stage: Stage) -> None:
    missing = ("SpeculativeDeploymentMetricsMissing", SLOW)
    # A pod that started a moment ago is not read yet on a busy machine. The rule's own wait of minutes covers that for
    # a user; this test takes the wait out.
    resolves(stage, missing)
    configure(stage.cluster, engines=False)
    fires(stage, missing)
    configure(stage.cluster)
    resolves(stage, missing)


def test_an_operator_that_is_gone_fires_until_it_is_back(stage: Stage) -> None:
    scale = ("scale", scene.OPERATOR, "-n", scene.OPERATOR_NAMESPACE)
    resolves(stage, DOWN)
    stage.cluster.kubectl(*scale, "--replicas=0")
    fires(stage, DOWN)
    stage.cluster.kubectl(*scale, "--replicas=1")
    stage.cluster.kubectl("rollout", "status", "-n", scene.OPERATOR_NAMESPACE, scene.OPERATOR, "--timeout=240s")
    scene.have_operator_scraped(stage.cluster)
    resolves(stage, DOWN)
