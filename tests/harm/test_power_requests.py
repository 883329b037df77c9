"""The harm: serving pods ask for nothing but their accelerator, so that they are the first to be evicted, ended for
memory or starved of processor time by any neighbour; and the cure must not replace pods, or keep them from any node.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from tests.golden.case import INPUTS, whole
from tests.unit.reconcile.paired import PAIRED, serving
from tests.unit.reconcile.releases import with_template
from tests.unit.reconcile.worlds import SPEC, Cluster, settled, template

from speculative_operator.domain import names
from speculative_operator.domain.formats import quantity
from speculative_operator.domain.resolved import ResolvedWeights
from speculative_operator.domain.spec import EngineSettings
from speculative_operator.render.targets import target_of


def resources(cluster: Cluster) -> dict[str, Any]:
    (engine,) = template(cluster.children["Deployment", "demo"])["spec"]["containers"]
    found: dict[str, Any] = engine["resources"]
    return found


@pytest.mark.parametrize("source", INPUTS, ids=lambda path: path.stem)
def test_serving_pods_are_never_best_effort(source: Any) -> None:
    case = whole(source)
    (workload,) = [one for one in case.children() if one["kind"] == target_of(case.spec).kind]
    engines = list(engines_of(workload))
    assert engines
    for engine in engines:
        asked = engine["resources"]["requests"]
        assert {"cpu", "memory", "ephemeral-storage"} <= set(asked)
        assert all((quantity(one) or 0) > 0 for one in asked.values())


def engines_of(workload: Any) -> Iterator[Any]:
    """The engine's container in each template of pods of any target."""
    spec = workload["spec"]
    if workload["kind"] == "InferenceService":
        yield spec["predictor"]["model"]
        return
    groups = spec.get("leaderWorkerTemplate", {})
    for pods in [spec["template"]] if "template" in spec else groups.values():
        if isinstance(pods, dict):
            containers = pods.get("spec", pods)["containers"]
            yield next(one for one in containers if one["name"] in (names.CONTAINER, "main"))


def test_the_disk_that_a_download_fills_is_asked_for() -> None:
    cluster = serving(spec=PAIRED)
    asked = quantity(resources(cluster)["requests"]["ephemeral-storage"])
    assert asked is not None
    assert asked >= 16_381_470_720


SIZED = replace(SPEC, weights=ResolvedWeights(bytes=16 * 1024**3))


@pytest.mark.parametrize("learned", [0, 200 * 1024**3], ids=["forgotten", "learned"])
@pytest.mark.parametrize("size", [0, 16 * 1024**3], ids=["unknown", "known"])
def test_a_size_that_is_learned_later_replaces_no_pod(size: int, learned: int) -> None:
    cluster = settled(spec=replace(SPEC, weights=ResolvedWeights(bytes=size)))
    made, before = cluster.templates, deepcopy(resources(cluster))
    cluster.spec = replace(cluster.spec, weights=ResolvedWeights(bytes=learned))
    cluster.settle()
    assert (cluster.templates, resources(cluster)) == (made, before)


def test_nor_does_it_with_an_edit_that_pods_do_not_feel() -> None:
    cluster = settled(spec=SIZED)
    made = cluster.templates
    cluster.edit(weights=ResolvedWeights(bytes=200 * 1024**3), adopt="now", replicas=3)
    cluster.settle()
    assert cluster.templates == made


def test_the_next_edit_that_makes_other_pods_brings_it() -> None:
    cluster = settled(spec=SIZED)
    made = cluster.templates
    cluster.edit(weights=ResolvedWeights(bytes=200 * 1024**3), engine=EngineSettings(args=("--seed=1",)))
    cluster.settle()
    assert cluster.templates == made + 1
    assert resources(cluster)["requests"]["memory"] == "54Gi"


def test_requests_that_somebody_changed_are_put_back() -> None:
    cluster = settled(spec=SIZED)
    before = deepcopy(resources(cluster))
    cluster.spec = replace(cluster.spec, weights=ResolvedWeights(bytes=200 * 1024**3))
    resources(cluster)["requests"]["memory"] = "1Mi"
    cluster.settle()
    assert resources(cluster) == before


def test_pods_of_another_release_are_not_replaced_for_their_requests() -> None:
    cluster = settled(spec=SIZED, upgraded=True)
    made, deployment = cluster.templates, cluster.children["Deployment", "demo"]
    resources(cluster)["requests"] = dict(resources(cluster)["limits"])
    annotations = deployment["metadata"]["annotations"]
    record = with_template(annotations[names.ANNOTATION_RESOLVED], "0" * 16, cluster.spec.uid)
    annotations |= {names.ANNOTATION_RESOLVED: record, names.ANNOTATION_HASH: "0" * 16}
    outcome = cluster.settle()
    assert (outcome.actions, cluster.templates) == ((), made)
    (warning,) = cluster.status["warnings"]
    assert "spec.template.spec.containers[engine].resources.requests" in warning["message"]
    cluster.edit(adopt="now")
    cluster.tick()
    assert resources(cluster)["requests"]["memory"] == "8Gi"
