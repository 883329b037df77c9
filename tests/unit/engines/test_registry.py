from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from tests.unit.engines.building import SMALL_QWEN, spec

from speculative_operator.domain.spec import EngineType, Method, ModelSource, Scheme
from speculative_operator.engines import engine_for, pair_facts, queries
from speculative_operator.engines.registry import ENGINES

FAMILIES = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "vllm_metric_families.csv"


def test_every_engine_of_the_api_has_an_adapter() -> None:
    assert set(ENGINES) == set(EngineType)


def test_query_selects_whole_names_of_one_namespace() -> None:
    query = queries("models", 59.2)
    match = re.fullmatch(r'\{__name__=~"([^"]+)",namespace="models"\}\[60s\]', query)
    assert match is not None, query
    assert set(match[1].split("|")) == set(engine_for(spec()).metric_names)


def test_query_cannot_be_escaped_from() -> None:
    assert 'namespace="a\\"b\\\\"' in queries('a"b\\', 60)


def test_names_are_those_of_the_real_exposition() -> None:
    """Against the families that a real vLLM 0.32.0 exposed."""
    if not FAMILIES.exists():
        pytest.skip("the recorded metric families are not beside this checkout")
    with FAMILIES.open(encoding="utf-8") as file:
        families = {row["family"]: row["type"] for row in csv.DictReader(file)}
    exposed: set[str] = set()
    for name, kind in families.items():
        exposed |= {f"{name}_count", f"{name}_sum"} if kind == "histogram" else {name}
    assert set(engine_for(spec()).metric_names) <= exposed


def test_facts_of_a_known_pair() -> None:
    facts = pair_facts(spec(Method.DRAFT_MODEL, source=SMALL_QWEN, verifier={"tensor_parallel_size": 2}))
    assert facts.verifier is not None
    assert facts.speculator is not None
    assert facts.accelerator is not None
    assert (facts.verifier.name, facts.speculator.name) == ("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B")
    assert (facts.accelerator.name, facts.accelerators) == ("H100-SXM", 2)
    assert facts.verifier.bytes_per_parameter == 2.0


def test_quantization_shrinks_what_is_known() -> None:
    fields = {"quantization": "fp8", "kv_cache_dtype": "fp8_e4m3"}
    facts = pair_facts(spec(Method.DRAFT_MODEL, source=SMALL_QWEN, verifier=fields))
    assert facts.verifier is not None
    assert facts.speculator is not None
    assert (facts.verifier.bytes_per_parameter, facts.verifier.kv_bytes_per_value) == (1.0, 1.0)
    assert (facts.speculator.bytes_per_parameter, facts.speculator.kv_bytes_per_value) == (2.0, 1.0)


def test_what_is_unknown_stays_unknown() -> None:
    subject = spec(None, verifier={"source": ModelSource(Scheme.PVC, "claim/some-finetune")})
    facts = pair_facts(subject)
    assert (facts.verifier, facts.speculator) == (None, None)
