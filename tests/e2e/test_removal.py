"""Pods without a drafter and back, on a cluster.

The decision is made by hand, where a killed operator would find its own: in the Deployment's annotation. The tuner's
own takes half an hour of a dead drafter.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.conftest import NAMESPACE, Stage, until

from demo import scene
from demo.load import read_records
from speculative_operator.domain import names
from speculative_operator.domain.table import KTable
from speculative_operator.render.values import table_digest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

NAME = "heavy"


def manifest(policy: str) -> dict[str, Any]:
    found = copy.deepcopy(scene.variants()[0].manifest)
    found["metadata"]["name"] = NAME
    found["spec"]["speculation"]["offPolicy"] = policy
    found["spec"]["rollout"] = {**found["spec"].get("rollout", {}), "tuning": "Interrupt"}
    return found


@pytest.fixture(scope="module")
def heavy(stage: Stage) -> Iterator[Stage]:
    """An object whose drafter may be removed, served."""
    stage.apply(manifest("Remove"))
    scene.wait_ready(stage.cluster, NAME, 180)
    yield stage
    stage.cluster.kubectl("delete", "specdep", NAME, "-n", NAMESPACE)


def drafts(stage: Stage) -> list[bool]:
    """For each serving pod whether its engine was started with a drafter."""
    return ["--speculative-config" in pod["spec"]["containers"][0]["args"] for pod in stage.pods(NAME)]


def speculation(stage: Stage) -> dict[str, Any]:
    found: dict[str, Any] = stage.get("specdep", NAME).get("status", {}).get("speculation", {})
    return found


def ready(stage: Stage) -> bool:
    return stage.condition(NAME, "Ready").get("status") == "True"


def test_pods_lose_their_drafter_and_serve_on(heavy: Stage) -> None:
    before = speculation(heavy)
    version, table = before["tableVersion"] + 1, KTable.from_rows(before["table"])
    uid = heavy.get("specdep", NAME)["metadata"]["uid"]
    mark = table_digest(uid, table, version, removed=True)
    claim = {"version": version, "rows": before["table"], "speculatorRemoved": True, "digest": mark}
    change = {"metadata": {"annotations": {names.ANNOTATION_TABLE: json.dumps(claim)}}}
    heavy.cluster.kubectl("patch", "deployment", NAME, "-n", NAMESPACE, "--type=merge", "-p", json.dumps(change))
    until(lambda: drafts(heavy) == [False] and ready(heavy), 180)
    # The tuner says so once it has seen figures of the new pods.
    until(lambda: speculation(heavy).get("state") == "Removed", 180)
    block = speculation(heavy)
    assert (block["state"], block["speculatorRemoved"], block["tableText"]) == ("Removed", True, "none")
    assert (block["table"], block["tableVersion"]) == (before["table"], claim["version"])
    until(lambda: heavy.condition(NAME, "SpeculationActive").get("reason") == "DrafterDeadWeight", 180)
    until(lambda: not heavy.table_config(NAME), 180)
    with heavy.under_load({NAME: NAME}, rate=4) as out:
        until(lambda: speculation(heavy).get("tokensPerSecond"), 180)
        heavy.wait_available(NAME)  # no figures of drafts is as it should be
    assert not [record for record in read_records(out) if record["failed"]]
    assert "acceptanceRate" not in speculation(heavy)
    shown = heavy.cluster.kubectl("get", "specdep", NAME, "-n", NAMESPACE, "-o", "wide").stdout
    assert "Removed" in shown
    assert drafts(heavy) == [False]


def test_an_edit_brings_it_back(heavy: Stage) -> None:
    waiting = speculation(heavy)
    heavy.apply(manifest("KeepRunning"))
    scene.wait_ready(heavy.cluster, NAME, 180)
    until(lambda: drafts(heavy) == [True], 180)
    until(lambda: "speculatorRemoved" not in speculation(heavy) and speculation(heavy)["state"] != "Removed", 180)
    table = json.loads(heavy.get("configmap", heavy.table_config(NAME))["data"]["table.json"])
    assert (table["rows"], table["version"]) == (waiting["table"], waiting["tableVersion"] + 1)
    deployment = heavy.get("deployment", NAME)
    assert names.ANNOTATION_TABLE not in deployment["metadata"]["annotations"]
    assert heavy.get("specdep", NAME)["status"]["decisions"][0]["from"] == "none"
