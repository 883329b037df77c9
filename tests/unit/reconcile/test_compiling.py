"""Compiled code that is kept: what pods get for it, what keys it, and what never replaces a pod."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.paired import Paired, serving, with_cache
from tests.unit.reconcile.worlds import SPEC, template

from speculative_operator.domain.actions import ApplyChild
from speculative_operator.domain.resolved import ResolvedEngine
from speculative_operator.domain.spec import AcceleratorRequest, Cache, DeploymentSpec, EngineSettings, EngineType
from speculative_operator.render import Capabilities

KEPT = EngineSettings(compile_cache=Cache("compiled", size="20Gi"))
IMAGE = "registry.example.com/speculative-operator:1"


def kept(spec: DeploymentSpec = SPEC, **change: Any) -> Paired:
    capabilities = Capabilities(job_image=IMAGE)
    return serving(spec=replace(spec, engine=replace(KEPT, **change)), capabilities=capabilities)


def helpers(cluster: Paired) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = template(cluster.children["Deployment", "demo"])["spec"].get("initContainers", [])
    return found


def key(cluster: Paired) -> str:
    args = helpers(cluster)[0]["args"]
    return str(args[args.index("--key") + 1])


def test_pods_get_what_brings_and_what_keeps() -> None:
    cluster = kept()
    seed, keep = helpers(cluster)
    assert (seed["name"], keep["name"], keep["restartPolicy"]) == ("compiled-seed", "compiled-keep", "Always")
    assert "restartPolicy" not in seed
    (engine,) = template(cluster.children["Deployment", "demo"])["spec"]["containers"]
    assert "compiled" not in {mount["name"] for mount in engine["volumeMounts"]}, "engines never see the volume"
    assert cluster.claims == {"compiled"}


def test_the_claim_is_made_once() -> None:
    cluster = Paired(spec=replace(SPEC, engine=KEPT), capabilities=Capabilities(job_image=IMAGE))
    made = [one.manifest["kind"] for one in cluster.tick().actions if isinstance(one, ApplyChild)]
    assert made.count("PersistentVolumeClaim") == 1
    made = [one.manifest["kind"] for one in cluster.tick().actions if isinstance(one, ApplyChild)]
    assert "PersistentVolumeClaim" not in made


@pytest.mark.parametrize(
    "other",
    [
        {"engine": replace(KEPT, version="0.31.0")},
        {"engine": replace(KEPT, image="registry.example.com/vllm:1")},
        {"engine": replace(KEPT, args=("--seed", "1"))},
        {"engine": replace(KEPT, env=({"name": "VLLM_USE_V1", "value": "1"},))},
        {"verifier": replace(SPEC.verifier, source=replace(SPEC.verifier.source, revision="a" * 40))},
        {"accelerator": AcceleratorRequest(resource="amd.com/gpu")},
        {"template": {"spec": {"containers": [{"name": "engine", "args": ["--x"]}]}}},
    ],
)
def test_whatever_changes_what_is_compiled_changes_the_key(other: dict[str, Any]) -> None:
    cluster = kept()
    before = key(cluster)
    cluster.edit(**other)
    cluster.settle()
    assert key(cluster) != before


def test_replicas_and_measured_budgets_do_not() -> None:
    cluster = kept()
    before = key(cluster)
    cluster.edit(replicas=5, engine=ResolvedEngine(compile_cache=KEPT.compile_cache, startup_seconds=9000))
    cluster.settle()
    assert key(cluster) == before


def test_a_new_release_of_the_operator_replaces_no_pod() -> None:
    cluster = kept()
    templates = cluster.templates
    cluster.capabilities = replace(cluster.capabilities, job_image="registry.example.com/speculative-operator:2")
    cluster.forget()
    assert cluster.settle().actions == ()
    assert (helpers(cluster)[0]["image"], cluster.templates) == (IMAGE, templates)
    cluster.edit(replicas=3)
    cluster.settle()
    assert cluster.templates == templates
    cluster.edit(engine=replace(KEPT, args=("--seed", "1")))
    cluster.settle()
    assert helpers(cluster)[0]["image"].endswith(":2"), "the next change brings it"


@pytest.mark.parametrize("engine", [EngineType.TENSORRT_LLM, EngineType.TGI])
def test_engines_without_such_code_are_told_and_served_as_before(engine: EngineType) -> None:
    spec = replace(SPEC, speculator=None, engine=EngineSettings(engine, {"TGI": "3.3.6"}.get(engine, "1.2.0")))
    plain = serving(spec=spec, capabilities=Capabilities(job_image=IMAGE))
    cached = replace(spec, engine=replace(spec.engine, compile_cache=KEPT.compile_cache))
    cluster = serving(spec=cached, capabilities=Capabilities(job_image=IMAGE))
    assert template(cluster.children["Deployment", "demo"]) == template(plain.children["Deployment", "demo"])
    assert cluster.claims == set()
    assert "CompileCacheUnused" in [one["reason"] for one in cluster.status["warnings"]]


def test_without_its_own_image_the_operator_says_so() -> None:
    cluster = serving(spec=replace(SPEC, engine=KEPT), capabilities=Capabilities())
    assert helpers(cluster) == []
    assert [one["reason"] for one in cluster.status["warnings"]] == ["CompileCacheUnused"]


def test_it_goes_with_a_cache_of_weights() -> None:
    cluster = serving(spec=replace(with_cache(), engine=KEPT))
    assert [one["name"] for one in helpers(cluster)] == ["compiled-seed", "compiled-keep"]
    assert cluster.claims == {"models", "compiled"}
