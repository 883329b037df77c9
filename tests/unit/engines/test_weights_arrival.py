"""How long weights may take to arrive, and how an engine that fetches them itself reaches the hub."""

from dataclasses import replace
from typing import Any

import pytest

from speculative_operator.domain.resolved import ResolvedCache, ResolvedEngine, ResolvedSpec, ResolvedWeights
from speculative_operator.domain.spec import (
    DEFAULT_VERSIONS,
    EngineType,
    ModelSource,
    Scheme,
    Verifier,
)
from speculative_operator.domain.table import KTable
from speculative_operator.engines.base import EngineContainer
from speculative_operator.engines.registry import engine_for

TABLE = KTable.constant(0, 256)
HUB, CLAIM = ModelSource(Scheme.HF, "Qwen/Qwen3-8B"), ModelSource(Scheme.PVC, "models/models/0123456789abcdef")
REACHED: dict[str, Any] = {
    "hub_endpoint": "https://hub.example.com",
    "proxy": "http://proxy:3128",
    "no_proxy": (".svc", "10.0.0.0/8"),
    "ca_config_map": "trusted",
}


def container(source: ModelSource, engine: EngineType = EngineType.VLLM, **weights: Any) -> EngineContainer:
    spec = ResolvedSpec(
        "demo", "models", "uid", 1, Verifier(source, "demo", max_num_seqs=256),
        engine=ResolvedEngine(engine, DEFAULT_VERSIONS[engine]), weights=ResolvedWeights(**weights),
    )  # fmt: skip
    return engine_for(spec).container(spec, TABLE)


def seconds(source: ModelSource, size: int, engine: EngineType = EngineType.VLLM) -> int:
    return container(source, engine, bytes=size).startup_seconds


@pytest.mark.parametrize("engine", EngineType)
def test_start_budgets_follow_the_weights(engine: EngineType) -> None:
    plain, download = seconds(CLAIM, 0, engine), seconds(HUB, 0, engine)
    assert download == plain + 1800
    assert seconds(CLAIM, 16 * 10**9, engine) == plain, "within the budget of any start"
    assert seconds(CLAIM, 400 * 10**9, engine) == plain + 3700, "400 GB at 100 MB/s, of which 300 s are in it"
    assert seconds(HUB, 16 * 10**9, engine) == download
    assert seconds(HUB, 400 * 10**9, engine) == plain + 3700 + 8000, "and at 50 MB/s from the hub"


@pytest.mark.parametrize("engine", EngineType)
def test_an_engine_that_fetches_is_told_how_to_reach_the_hub(engine: EngineType) -> None:
    told = {one["name"]: one.get("value") for one in container(HUB, engine, **REACHED).env}
    assert told["HF_ENDPOINT"] == "https://hub.example.com"
    assert (told["HTTPS_PROXY"], told["NO_PROXY"]) == ("http://proxy:3128", ".svc,10.0.0.0/8")
    assert told["SSL_CERT_FILE"] == "/etc/speculative/ca/ca-bundle.crt"
    silent = {one["name"] for one in container(CLAIM, engine, **REACHED).env}
    assert not silent & {"HF_ENDPOINT", "HTTPS_PROXY", "SSL_CERT_FILE"}


@pytest.mark.parametrize("engine", EngineType)
def test_a_cache_makes_every_source_servable(engine: EngineType) -> None:
    spec = ResolvedSpec(
        "demo", "models", "uid", 1, Verifier(ModelSource(Scheme.S3, "bucket/m"), "demo"),
        engine=ResolvedEngine(engine, DEFAULT_VERSIONS[engine]),
    )  # fmt: skip
    refused = engine_for(spec).refusals(spec)
    assert [one.reason.value for one in refused] == ["UnsupportedSource"]
    assert "spec.weights.cache" in refused[0].message
    cached = replace(spec, weights=ResolvedWeights(cache=ResolvedCache("models")))
    assert engine_for(cached).refusals(cached) == ()
