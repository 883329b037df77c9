from __future__ import annotations

import csv
import re
from importlib import resources
from typing import Any

import pytest
from tests.unit.engines.building import SMALL_QWEN, spec

from speculative_operator.domain.spec import EngineType, Method, ModelSource, Scheme
from speculative_operator.engines.pairs import pair_facts
from speculative_operator.engines.registry import CELLS, ENGINES, engine_for, query
from speculative_operator.physics.catalog import rows

FAMILIES = resources.files("speculative_lab.emulator").joinpath("data", "vllm_metric_families.csv")


def test_every_engine_of_the_api_has_an_adapter() -> None:
    assert set(ENGINES) == set(EngineType)


def test_query_selects_whole_names_of_one_namespace() -> None:
    text = query("models", {"a-1": (), "b.c": ()}, 59.2)
    match = re.fullmatch(r'\{__name__=~"([^"]+)",namespace="models",pod=~"a-1\|b\\\\.c"\}\[60s\]', text)
    assert match is not None, text
    assert set(match[1].split("|")) == {name for engine in ENGINES.values() for name in engine.metric_names}


def test_a_query_without_cells_leaves_out_what_a_pod_has_many_of() -> None:
    whole, plain = (set(query("models", {}, 60, cells=cells).split('"')[1].split("|")) for cells in (True, False))
    assert whole - plain == CELLS
    assert {"speculative_payload_info", "speculative_payload_table_version"} <= plain


def test_query_cannot_be_escaped_from() -> None:
    assert 'namespace="a\\"b\\\\"' in query('a"b\\', {}, 60)
    assert 'pod=~"a\\"\\\\.\\\\*"' in query("a", {'a".*': ()}, 60)


def test_addresses_of_both_families_with_and_without_a_port() -> None:
    text = query("a", {"p": ("10.0.0.1", "fd00::1")}, 60, address_label="instance", matchers='cluster="x"')
    match = re.search(r'instance=~"((?:[^"\\\\]|\\\\.)*)",cluster="x"\}', text)
    assert match is not None, text
    hosts = re.compile(match[1].replace("\\\\", "\\"))
    assert all(map(hosts.fullmatch, ("10.0.0.1", "10.0.0.1:8000", "[fd00::1]:8000", "fd00::1")))
    assert not any(map(hosts.fullmatch, ("10.0.0.11", "10.0.0.1:8000x", "10.0.001", "110.0.0.1:8000")))


def test_names_are_those_of_the_real_exposition() -> None:
    """Against the families that a real vLLM 0.32.0 exposed."""
    with FAMILIES.open(encoding="utf-8") as file:
        families = {row["family"]: row["type"] for row in csv.DictReader(file)}
    exposed: set[str] = set()
    for name, kind in families.items():
        exposed |= {f"{name}_count", f"{name}_sum", f"{name}_bucket"} if kind == "histogram" else {name}
    assert {name for name in engine_for(spec()).metric_names if name.startswith("vllm:")} <= exposed


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


@pytest.mark.parametrize(
    ("location", "size"),
    [
        ("RedHatAI/Qwen3-8B-FP8-dynamic", 1.0),
        ("Qwen/Qwen3-8B-AWQ", 0.5),
        ("Qwen/Qwen3-8B-GPTQ-Int8", 1.0),
        ("RedHatAI/Qwen3-8B-quantized.w4a16", 0.5),
        ("nvidia/QWEN3-8B-NVFP4", 0.5),
        ("unsloth/Qwen3-8B-bnb-4bit", 0.5),
        ("x/Qwen3-8B-W4AFP8", 0.5),
        ("x/Qwen3-8B-BF16", 2.0),
    ],
)
def test_a_quantized_repository_has_the_shape_of_its_model(location: str, size: float) -> None:
    facts = pair_facts(spec(None, verifier={"source": ModelSource(Scheme.HF, location)}))
    assert facts.verifier is not None
    assert (facts.verifier.name, facts.verifier.bytes_per_parameter) == ("Qwen/Qwen3-8B", size)


@pytest.mark.parametrize("name", ["Qwen3-8B-GGUF", "Qwen3-8B-EXL3", "Qwen3-8B-3bit", "Qwen3-8B-finetuned-FP8"])
def test_a_quantization_of_no_known_width_is_not_guessed(name: str) -> None:
    assert pair_facts(spec(None, verifier={"source": ModelSource(Scheme.HF, f"x/{name}")})).verifier is None


def test_every_model_of_the_catalogue_of_shapes_is_known_quantized() -> None:
    for row in rows("models"):
        for end, size in (("-FP8-Dynamic", 1.0), ("-NVFP4", 0.5)):
            location = f"RedHatAI/{row['name'].rpartition('/')[2].replace('Llama-3.1', 'Meta-Llama-3.1')}{end}"
            shape = pair_facts(spec(None, verifier={"source": ModelSource(Scheme.HF, location)})).verifier
            assert shape is not None, location
            assert (shape.name.rpartition("/")[2], shape.bytes_per_parameter) == (row["name"].rpartition("/")[2], size)


def test_what_is_unknown_stays_unknown() -> None:
    subject = spec(None, verifier={"source": ModelSource(Scheme.PVC, "claim/some-finetune")})
    facts = pair_facts(subject)
    assert (facts.verifier, facts.speculator) == (None, None)


def test_the_drafter_takes_memory_from_the_cache() -> None:
    """80 GB x 0.9, less 3 GB and the weights (16.4 and 1.2 GB), over 147,456 and 114,688 bytes a token."""
    subject = spec(Method.DRAFT_MODEL, source=SMALL_QWEN)
    facts = pair_facts(subject)
    assert (facts.kv_capacity_tokens, facts.kv_capacity_tokens_without_speculator) == (196_176, 356_842)
    more = pair_facts(spec(Method.DRAFT_MODEL, source=SMALL_QWEN, verifier={"gpu_memory_utilization_percent": 95}))
    assert more.kv_capacity_tokens == 211_435
    free = pair_facts(spec(Method.NGRAM))
    assert free.kv_capacity_tokens == free.kv_capacity_tokens_without_speculator == 356_842


def test_all_accelerators_of_a_replica_hold_the_cache() -> None:
    one = pair_facts(spec(Method.NGRAM)).kv_capacity_tokens
    split = pair_facts(spec(Method.NGRAM, verifier={"pipeline_parallel_size": 2}))
    assert one is not None
    assert split.kv_capacity_tokens is not None
    assert split.kv_capacity_tokens > 2 * one
    assert split.accelerators == 1, "stages of a pipeline do not share a step"


@pytest.mark.parametrize("fields", [{"gpu_memory_utilization_percent": 10}, {"source": ModelSource(Scheme.PVC, "a/b")}])
def test_a_capacity_that_cannot_be_told_is_none(fields: dict[str, Any]) -> None:
    facts = pair_facts(spec(Method.NGRAM, verifier=fields))
    assert (facts.kv_capacity_tokens, facts.kv_capacity_tokens_without_speculator) == (None, None)
