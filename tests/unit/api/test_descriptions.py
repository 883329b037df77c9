"""What a field's description says of engines is what their adapters take."""

from __future__ import annotations

from itertools import product
from typing import Any

from tests.contract.objects import ABSENT, DRAFT, specdep

from speculative_operator.api.convert import to_domain
from speculative_operator.api.crd import schema
from speculative_operator.domain.spec import EngineType
from speculative_operator.engines.registry import engine_for

SPELT = {
    EngineType.VLLM: "vLLM",
    EngineType.SGLANG: "SGLang",
    EngineType.TENSORRT_LLM: "TensorRT-LLM",
}
DRAWN: dict[str, Any] = {"speculator.method": "eagle3", "speculator.model": DRAFT}
LOOKED_UP: dict[str, Any] = {"speculator": {"method": "ngram"}}
FIELDS: dict[str, tuple[dict[str, Any], Any]] = {
    "verifier.maxNumBatchedTokens": ({"speculator": ABSENT}, 8192),
    "verifier.expertParallel": ({"speculator": ABSENT}, True),
    "verifier.lora": ({"speculator": ABSENT}, {}),
    "speculator.quantization": (DRAWN, "fp8"),
    "speculator.heterogeneousVocabulary": ({}, True),
    "speculator.promptLookup.min": (LOOKED_UP, 2),
    "speculator.promptLookup.max": (LOOKED_UP, 4),
}


def description(path: str) -> str:
    node = schema()["properties"]["spec"]
    for part in path.split("."):
        node = node["properties"][part]
    return str(node["description"])


def test_names_the_engines_that_take_the_field() -> None:
    for engine, (path, (others, value)) in product(EngineType, FIELDS.items()):
        refused = refusals({**others, path: value, "engine.type": engine.value})
        anyway = refusals({**others, "engine.type": engine.value})
        assert (SPELT[engine] in description(path)) is (refused == anyway), (path, engine, refused)


def refusals(changes: dict[str, Any]) -> list[str]:
    spec = to_domain(specdep(changes))
    return [one.message for one in engine_for(spec).refusals(spec)]
