"""The autoscalers of examples/autoscaling scale the object beside them, by series that exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.monitoring.test_files import exported, series_in

from speculative_operator.api.convert import to_domain
from speculative_operator.domain import names

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "autoscaling"


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("scaler", ["keda", "hpa"])
def test_it_scales_the_object_beside_it(scaler: str) -> None:
    found, of = document(scaler), document("object")
    target = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": of["metadata"]["name"]}
    assert found["spec"]["scaleTargetRef"] == target
    assert found["metadata"]["namespace"] == of["metadata"]["namespace"]
    assert "replicas" not in of["spec"], "each apply would undo the autoscaler"
    assert found["spec"].get("minReplicaCount") or found["spec"].get("minReplicas")
    with_uid = {**of, "metadata": {**of["metadata"], "generation": 1, "uid": "u"}}
    assert to_domain(with_uid).speculation.objective.tpot_p99_seconds, "the load within a target needs one"


def test_queries_name_series_that_exist() -> None:
    (trigger,) = document("keda")["spec"]["triggers"]
    asked = series_in(trigger["metadata"]["query"])
    assert len(asked) == 3
    adapter = "".join(
        line.removeprefix("#") for line in (FOLDER / "hpa.yaml").read_text().splitlines(True) if line.startswith("#   ")
    )
    (rule,) = yaml.safe_load(adapter)["rules"]["external"]
    asked |= {rule["seriesQuery"]} | series_in(rule["metricsQuery"])
    assert asked - exported() == set()
    (metric,) = document("hpa")["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] == rule["name"]["as"]
