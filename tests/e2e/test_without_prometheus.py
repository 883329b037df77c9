"""A bare cluster, without any Prometheus: the operator reads its pods itself, and tunes."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.e2e.conftest import LONG, NAMESPACE, Stage, until

from demo import scene
from devcluster.cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

AUTO = copy.deepcopy(scene.variants()[0])
AUTO.manifest["spec"]["speculation"]["numSpeculativeTokens"] = 1  # so far off at light load that it must be changed
NAME = AUTO.name


@pytest.fixture(scope="module")
def bare(enclosures: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Cluster.start(replace(scene.options(f"bare-{os.getpid()}"), prometheus=False)) as cluster:
        scene.install_operator(cluster)
        cluster.kubectl("create", "namespace", NAMESPACE)
        yield Stage(cluster, tmp_path_factory.mktemp("bare"))


def test_it_is_tuned_by_what_its_pods_say(bare: Stage) -> None:
    scene.apply(bare.cluster, [AUTO])
    scene.wait_ready(bare.cluster, NAME, 180)
    until(lambda: bare.condition(NAME, "MetricsAvailable").get("reason") == "PrometheusError", 180)
    before = bare.get("specdep", NAME)["status"]["speculation"]["tableVersion"]

    def shown() -> dict[str, Any]:
        found: dict[str, Any] = bare.get("specdep", NAME)["status"].get("speculation") or {}
        return found

    with bare.under_load({NAME: NAME}, rate=3):
        until(lambda: shown().get("acceptanceLength") and shown()["tableVersion"] > before, LONG)
    assert float(shown()["acceptanceLength"]) > 1.0
    bare.wait_available(NAME)
    seen = bare.condition(NAME, "MetricsAvailable")
    assert (seen["status"], seen["reason"]) == ("True", "MetricsFound")
    assert "reads them from the pods" in seen["message"]
    assert "is unreachable" in seen["message"]
