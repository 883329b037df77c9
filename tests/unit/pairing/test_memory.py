"""Does the pair fit: verdicts, terms, suggestions, what removal gives back, and agreement with the physics."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.pairing import memory_models as models
from tests.unit.pairing.memory_models import LLAMA_8B, LLAMA_8B_BYTES, model, spec

from speculative_operator.domain.models import CONFIG_KEYS, NAMES, Accelerator
from speculative_operator.domain.spec import Method, Mode, Speculation
from speculative_operator.pairing import reading
from speculative_operator.pairing.fit_caches import CacheGroup, Widths, caches, layer_kinds
from speculative_operator.pairing.fit_room import Holding, Room
from speculative_operator.pairing.fit_weights import weights
from speculative_operator.pairing.memory import Fit, fit, remedies
from speculative_operator.pairing.reading import decoder
from speculative_operator.pairing.shapes import pair_facts, shape_of
from speculative_operator.physics.catalog import find_accelerator, find_model
from speculative_operator.physics.draft_costs import RESERVE_BYTES, kv_tokens

HEAD_BYTES = 850_000_000
VERIFIER = model(LLAMA_8B, LLAMA_8B_BYTES, "meta-llama/Llama-3.1-8B-Instruct")
HEAD = model(models.EAGLE3_8B, HEAD_BYTES, "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B")


def of_speculator(room: Room, tokens: int) -> float:
    """Bytes of KV cache that the speculator takes for one request."""
    return room.request_bytes(tokens) - room.without_speculator.request_bytes(tokens)


def on(product: str) -> Accelerator:
    found = find_accelerator(product)
    assert found is not None
    return found


def judged(product: str = "H100-SXM", *, context: int | None = None, **words: Any) -> Fit:
    return fit(VERIFIER, HEAD, spec(product=product, **words), on(product), context=context)


def test_every_term_by_value() -> None:
    found = judged(max_model_len=8192, context=2000)
    room = found.room
    assert (room.memory_bytes, room.share, room.reserve_bytes) == (80e9, 0.9, RESERVE_BYTES)
    assert (room.verifier.weight_bytes, room.speculator.weight_bytes) == (LLAMA_8B_BYTES, HEAD_BYTES)
    assert room.cache_bytes == 72e9 - RESERVE_BYTES - LLAMA_8B_BYTES - HEAD_BYTES
    assert room.request_bytes(8192) == 8192 * 33 * 4096
    assert of_speculator(room, 8192) == 8192 * 4096
    assert room.requests(2000) == pytest.approx(room.cache_bytes / (2000 * 33 * 4096))
    assert (found.fits, found.length) == (True, 8192)


def test_the_message_tells_the_arithmetic() -> None:
    message = judged(max_model_len=8192, context=2000).message
    assert message.startswith("Fits: on H100-SXM 90% of 74.5 GiB is 67.1 GiB; that, minus verifier 15.0, speculator")
    assert (
        "a request of 8,192 tokens (maxModelLen) takes 1.0 GiB, so 47 run at once, and 192 of 2,000 tokens" in message
    )
    assert "removal frees 18,528 (4.6%)" in message


def test_what_removal_gives_back_is_what_the_drafter_costs() -> None:
    found = judged(max_model_len=8192)
    alone = fit(VERIFIER, None, spec(None, max_model_len=8192), on("H100-SXM"))
    assert found.tokens_without_speculator == alone.tokens
    assert (alone.tokens or 0) > (found.tokens or 0)
    assert (alone.tokens, alone.room.speculator.weight_bytes) == (alone.tokens_without_speculator, 0.0)


def test_refused_only_where_no_reading_lets_it_fit() -> None:
    refused = judged("L4", max_model_len=131072)
    assert refused.fits is False
    assert refused.message.startswith("Does not fit: on L4")
    assert "12,496 tokens would fit" in refused.message
    close = judged("RTX-3090", max_model_len=20_000)
    assert close.fits is None
    assert close.message.startswith("Too close to call")
    assert judged("RTX-3090", max_model_len=12_496).fits is True


def test_weights_alone_too_large() -> None:
    large = model(models.LLAMA_405B, 811_700_000_000)
    found = fit(large, None, spec(None, tensor_parallel_size=8), on("H100-SXM"))
    assert found.fits is False
    assert found.room.cache_bytes < 0 == found.room.requests(found.length)
    assert "the weights alone exceed the memory" in found.message
    assert "What would fit: verifier.tensorParallelSize: 16 (on 16 x H100-SXM it fits)" in found.message
    assert "verifier.maxModelLen" not in found.message


@pytest.mark.parametrize("product", ["L4", "RTX-3090", "A10G", "V100-16GB"])
def test_every_suggestion_would_do(product: str) -> None:
    words: dict[str, Any] = {"max_model_len": 60_000}
    found = judged(product, **words)
    assert found.fits is not True
    tried = 0
    for one in remedies(found.room, found.length, spec(product=product, **words), on(product)):
        if one.field == "verifier.maxModelLen":
            assert judged(product, max_model_len=int(one.value)).fits
            assert not judged(product, max_model_len=int(one.value) + 16).fits
        elif one.field == "verifier.tensorParallelSize":
            assert judged(product, **words, tensor_parallel_size=int(one.value)).fits
        elif one.field == "verifier.gpuMemoryUtilizationPercent":
            assert judged(product, **words, gpu_memory_utilization_percent=int(one.value)).fits
        elif one.field == "accelerator.product":
            assert all(judged(name, **words).fits for name in one.value.split(", "))
        tried += 1
    assert tried >= 2


def test_an_unknown_accelerator_is_not_judged() -> None:
    found = fit(VERIFIER, HEAD, spec(product=""), None)
    assert found.fits is None
    assert found.message.startswith(
        "accelerator.product is not set, so memory is not checked: the weights need 15.7 GiB"
    )
    assert "H100-SXM" in found.message
    assert "MI300X" not in found.message
    assert "accelerator.product Fancy is not in the table" in fit(VERIFIER, HEAD, spec(product="Fancy"), None).message


@pytest.mark.parametrize(
    ("verifier", "said"),
    [
        (model({}, 1), "does not state the longest context"),
        (model({"max_position_embeddings": 4096}, 1), "states layers and KV heads"),
        (model(LLAMA_8B | {"block_configs": [{}]}, 1), "states layers and KV heads"),
        (model(LLAMA_8B), "its weights are in no known form"),
    ],
)
def test_what_a_config_does_not_tell_is_not_guessed(verifier: Any, said: str) -> None:
    found = fit(verifier, None, spec(None), on("H100-SXM"))
    assert found.fits is None
    assert said in found.message


@pytest.mark.parametrize(
    ("verifier", "drafter", "asked", "said"),
    [
        (VERIFIER, None, spec(max_model_len=131072, product="L4"), "the size of the speculator is unknown"),
        (VERIFIER, HEAD, spec(max_model_len=131072, args=("--cpu-offload-gb=16",)), "engine.args has --cpu-offload-gb"),
        (VERIFIER, HEAD, spec(max_model_len=131072, quantization="torchao"), "quantization torchao"),
    ],
)
def test_nothing_is_refused_on_what_is_not_known(verifier: Any, drafter: Any, asked: Any, said: str) -> None:
    found = fit(verifier, drafter, asked, on("L4"))
    assert found.fits is None
    assert said in found.message


@pytest.mark.parametrize("method", [Method.NGRAM, Method.SUFFIX])
def test_what_is_looked_up_holds_nothing(method: Method) -> None:
    found = fit(VERIFIER, None, spec(method, own_weights=False, max_model_len=8192), on("H100-SXM"))
    assert (found.room.speculator.weight_bytes, found.tokens) == (0.0, found.tokens_without_speculator)
    off = spec(speculation=Speculation(mode=Mode.DISABLED), max_model_len=8192)
    assert fit(VERIFIER, HEAD, off, on("H100-SXM")).room.speculator.weight_bytes == 0.0


def test_heads_without_a_cache() -> None:
    asked = spec(Method.MEDUSA, max_model_len=8192)
    found = fit(VERIFIER, model({"medusa_num_heads": 4}, 1_000_000_000), asked, on("H100-SXM"))
    assert (found.room.speculator.weight_bytes, of_speculator(found.room, 1000)) == (1e9, 0.0)
    sharing = model(models.EAGLE3_8B | {"model_type": "gemma4_assistant"}, 940_000_000)
    assert of_speculator(fit(VERIFIER, sharing, spec(Method.MTP), on("H100-SXM")).room, 1000) == 0.0


def test_draft_layers_inside_the_verifier() -> None:
    """DeepSeek-V3: layer 61 of its files is the MTP module, 11.5 of 685 x 10^9 weights, with copies of embedding and
    head that engines do not load twice."""
    copies = {
        "model.embed_tokens.weight": (129280, 7168),
        "model.layers.61.embed_tokens.weight": (129280, 7168),
        "model.layers.61.shared_head.head.weight": (129280, 7168),
    }
    size = 688_600_000_000
    files = model(models.DEEPSEEK_V3, size, layers=62, shapes=copies)
    without = fit(files, None, spec(None, tensor_parallel_size=8), on("H200-SXM"))
    drafting = fit(files, None, spec(Method.MTP, own_weights=False, tensor_parallel_size=8), on("H200-SXM"))
    assert without.room.verifier.weight_bytes * 8 == pytest.approx(size * 671.0 / 684.5, rel=0.01)
    assert drafting.room.verifier.weight_bytes == without.room.verifier.weight_bytes
    assert drafting.room.speculator.weight_bytes * 8 == pytest.approx(size * 13.5 / 684.5, rel=0.02)
    assert of_speculator(drafting.room, 1000) / 1000 == 1152
    assert (drafting.tokens_without_speculator or 0) > (drafting.tokens or 0)


@pytest.mark.parametrize(
    ("verifier", "words", "bytes_a_token"),
    [
        (models.LLAMA_8B, {}, 131072),
        (models.LLAMA_8B, {"kv_cache_dtype": "fp8"}, 65536),
        (models.LLAMA_8B, {"tensor_parallel_size": 2}, 65536),
        (models.LLAMA_8B, {"tensor_parallel_size": 16}, 32 * 512),
        (models.LLAMA_8B, {"pipeline_parallel_size": 2}, 65536),
        (
            models.LLAMA_8B | {"quantization_config": {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}},
            {},
            65536,
        ),
        (models.DEEPSEEK_V3, {"tensor_parallel_size": 8}, 61 * 1152),
    ],
)
def test_cache_of_a_token_on_one_rank(verifier: dict[str, Any], words: dict[str, Any], bytes_a_token: int) -> None:
    found = fit(model(verifier, 16_000_000_000), None, spec(None, max_model_len=1000, **words), on("H200-SXM"))
    assert found.room.request_bytes(1000) / 1000 == bytes_a_token


def test_windows_are_kept_and_no_more() -> None:
    found = caches(decoder(models.GPT_OSS_120B), Widths())
    assert found == (CacheGroup(18, 8, 256.0), CacheGroup(18, 8, 256.0, 128))
    long, longer = (sum(one.bytes(tokens, 1, batch=2048) for one in found) for tokens in (10_000, 20_000))
    assert longer - long == 10_000 * 18 * 2048
    assert sum(one.bytes(1000, 1, batch=2048) for one in found) == 1000 * 36 * 2048


def test_recurrent_layers_keep_a_state_for_each_draft() -> None:
    verifier = model(models.QWEN35_35B, 69_300_000_000)
    state = 32 * 128 * 128 * 4 + 3 * (2 * 16 * 128 + 32 * 128) * 2
    sizes = [
        fit(verifier, None, asked, on("H200-SXM")).room.request_bytes(1000)
        for asked in (
            spec(None, max_model_len=1000),
            spec(
                Method.NGRAM, own_weights=False, max_model_len=1000, speculation=Speculation(max_speculative_tokens=3)
            ),
        )
    ]
    assert sizes[0] == 1000 * 10 * 2048 + 30 * 2 * state
    assert sizes[1] - sizes[0] == 30 * 3 * state


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        ({"num_hidden_layers": 4, "sliding_window_pattern": 2, "sliding_window": 8}, "window full window full"),
        ({"num_hidden_layers": 3, "attn_layer_period": 2, "attn_layer_offset": 1}, "state full state"),
        ({"num_hidden_layers": 2, "model_type": "gemma2", "sliding_window": 8}, "window full"),
        ({"num_hidden_layers": 2, "sliding_window": 4096}, "window window"),
        ({"num_hidden_layers": 2, "sliding_window": 4096, "use_sliding_window": False}, "full full"),
        ({"num_hidden_layers": 2, "hybrid_layer_pattern": [0, 1, 1]}, "full window"),
        ({"num_hidden_layers": 3, "linear_attn_config": {"full_attn_layers": [3]}}, "linear linear full"),
        ({"num_hidden_layers": 3, "num_kv_shared_layers": 2}, "full none none"),
        ({"layers_block_type": ["mamba", "moe", "attention"]}, "state none full"),
    ],
)
def test_kinds_of_layers_as_families_say_them(config: dict[str, Any], kinds: str) -> None:
    assert layer_kinds(config) == kinds.split()


@pytest.mark.parametrize(
    ("quantization", "dtype", "stored", "expected"),
    [
        ("", "", {"BF16": LLAMA_8B_BYTES // 2}, LLAMA_8B_BYTES),
        ("fp8", "", {"BF16": LLAMA_8B_BYTES // 2}, 2.1013e9 + (LLAMA_8B_BYTES - 2.1013e9) / 2),
        ("bitsandbytes", "", {"BF16": LLAMA_8B_BYTES // 2}, 2.1013e9 + (LLAMA_8B_BYTES - 2.1013e9) / 4),
        ("", "", {"F32": LLAMA_8B_BYTES // 4}, LLAMA_8B_BYTES / 2),
        ("", "float32", {"F32": LLAMA_8B_BYTES // 4}, LLAMA_8B_BYTES),
        ("", "float32", {"BF16": LLAMA_8B_BYTES // 2}, LLAMA_8B_BYTES * 2),
    ],
)
def test_casts_and_quantization_at_load(quantization: str, dtype: str, stored: dict[str, int], expected: float) -> None:
    found = weights(model(LLAMA_8B, LLAMA_8B_BYTES, parameters=stored), dtype, quantization)
    assert found is not None
    assert found.verifier == pytest.approx(expected, rel=0.001)


def test_experts_are_spread_over_all_engines() -> None:
    verifier = model(models.QWEN_235B, 470_000_000_000)
    one, two = (
        fit(verifier, None, spec(None, tensor_parallel_size=4, data_parallel_size=size), on("B200-SXM")).room.verifier
        for size in (1, 2)
    )
    assert one.weight_bytes == pytest.approx(470e9 / 4)
    assert two.weight_bytes == pytest.approx(470e9 / 4 - 470e9 * 0.966 / 8, rel=0.01)
    dense = [
        fit(VERIFIER, None, spec(None, data_parallel_size=size), on("H100-SXM")).room.verifier.weight_bytes
        for size in (1, 2)
    ]
    assert dense[0] == dense[1]


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("percent", [None, 80])
def test_agrees_with_the_physics(ranks: int, percent: int | None) -> None:
    asked = spec(tensor_parallel_size=ranks, gpu_memory_utilization_percent=percent, max_model_len=8192)
    facts = pair_facts(VERIFIER, HEAD, asked, on("H100-SXM"))
    unstated = replace(facts, kv_capacity_tokens=None, kv_capacity_tokens_without_speculator=None)
    share = (percent or 90) / 100
    for stated, loaded in ((facts.kv_capacity_tokens, True), (facts.kv_capacity_tokens_without_speculator, False)):
        assert stated == pytest.approx(kv_tokens(unstated, with_speculator=loaded, memory_share=share), abs=1)
    found = fit(VERIFIER, HEAD, asked, on("H100-SXM"))
    assert (found.tokens, found.tokens_without_speculator) == pytest.approx(
        (facts.kv_capacity_tokens, facts.kv_capacity_tokens_without_speculator), abs=1
    )


def test_copies_on_ranks_are_in_the_shape() -> None:
    """Latents lie on every rank: the physics, which adds memory up, needs them as often."""
    asked = spec(None, tensor_parallel_size=8)
    verifier = model(models.DEEPSEEK_V3, 671_000_000_000)
    facts = pair_facts(verifier, None, asked, on("H200-SXM"))
    assert facts.verifier is not None
    assert facts.verifier.kv_bytes_per_token == 8 * 61 * 1152
    unstated = replace(facts, kv_capacity_tokens_without_speculator=None)
    assert kv_tokens(unstated, with_speculator=False) == pytest.approx(facts.kv_capacity_tokens, rel=1e-4)


def test_shapes_are_those_of_the_catalogue_where_both_know() -> None:
    mine, known = shape_of(VERIFIER, spec()), find_model("meta-llama/Llama-3.1-8B-Instruct")
    assert mine is not None
    assert mine == replace(known, name=mine.name) if known else False
    drafter = shape_of(HEAD, spec(), as_speculator=True)
    assert drafter is not None
    assert (drafter.layers, drafter.weight_bytes, drafter.kv_bytes_per_token) == (1, HEAD_BYTES, 4096)


@pytest.mark.parametrize(
    ("config", "size", "parameters", "each"),
    [
        (models.DEEPSEEK_V3, 671_000_000_000, {"F8_E4M3": 670_000_000_000, "BF16": 1_000_000_000}, 1.0),
        (models.GPT_OSS_120B, 65_200_000_000, {"U8": 60_900_000_000, "BF16": 2_100_000_000}, 0.558),
        (LLAMA_8B, LLAMA_8B_BYTES, {"BF16": LLAMA_8B_BYTES // 2}, 2.0),
    ],
)
def test_bytes_of_a_shape_are_those_of_the_files(
    config: dict[str, Any], size: int, parameters: dict[str, int], each: float
) -> None:
    shape = shape_of(model(config, size, parameters=parameters), spec(None, tensor_parallel_size=8))
    assert shape is not None
    assert shape.weight_bytes == pytest.approx(size)
    assert shape.bytes_per_parameter == pytest.approx(each, abs=0.001)


def _keys_read() -> set[str]:
    """Keys of config.json that some function of the package reads: texts in calls of those that read."""
    readers = {"get", "at", "sequence", "text", "texts", "whole", "indices", "first_whole", "number", "numbers"}
    found = set[str]()
    folder = Path(reading.__file__).parent
    for file in {*folder.rglob("*.py")} - {*folder.glob("catalogue*.py"), folder / "expected.py"}:
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in readers:
                parts = [part for argument in call.args for part in ast.walk(argument)]
                found |= {
                    part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)
                }
    return found


def test_the_inspector_keeps_what_is_read_here() -> None:
    read = _keys_read() - {"name"} - NAMES.keys()  # names of accelerators, and our own of keys
    assert sorted(one for one in read - CONFIG_KEYS if re.fullmatch(r"[a-z_]{3,}", one)) == []


KEYS = sorted(CONFIG_KEYS)
LENGTHS = st.integers(1, 300_000)
CONFIGS = st.sampled_from(
    [LLAMA_8B, models.GEMMA_31B, models.GPT_OSS_120B, models.DEEPSEEK_V32, models.QWEN35_35B, models.NEMOTRON_NANO]
)


@given(
    config=CONFIGS,
    length=LENGTHS,
    memory=st.floats(8e9, 400e9),
    more=st.floats(0, 200e9),
    ranks=st.sampled_from([1, 2, 8]),
)
def test_more_memory_never_fits_fewer_requests(
    config: dict[str, Any], length: int, memory: float, more: float, ranks: int
) -> None:
    verifier, asked = model(config, 20_000_000_000), spec(tensor_parallel_size=ranks, max_model_len=length)
    small, large = (
        fit(verifier, HEAD, asked, replace(on("H100-SXM"), memory_bytes=size)) for size in (memory, memory + more)
    )
    if (memory < 70 * 2**30) == (memory + more < 70 * 2**30):
        assert large.room.requests(length) >= small.room.requests(length)
        assert large.room.longest() >= small.room.longest()
        assert _rank(large.fits) >= _rank(small.fits)
    assert large.tokens_without_speculator is not None
    assert (large.tokens or 0) <= large.tokens_without_speculator


@given(config=CONFIGS, tokens=LENGTHS, further=st.integers(0, 100_000), ranks=st.sampled_from([1, 2, 4, 8]))
def test_longer_requests_never_take_less(config: dict[str, Any], tokens: int, further: int, ranks: int) -> None:
    groups = caches(decoder(config), Widths())
    assert groups is not None
    room = Room(80e9, Holding(16e9, groups, ranks))
    assert room.request_bytes(tokens + further) >= room.request_bytes(tokens)
    assert Room(80e9, Holding(16e9, groups, ranks * 2)).request_bytes(tokens) <= room.request_bytes(tokens)
    longest = room.longest()
    assert room.request_bytes(longest) <= room.cache_bytes < room.request_bytes(longest + 16)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 10**12) | st.text(max_size=5) | st.floats(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=8),
        max_leaves=25,
    )
)
def test_whatever_a_config_holds_nothing_breaks(value: Any) -> None:
    config = value if isinstance(value, dict) else {"num_hidden_layers": value, "hidden_size": value}
    found = fit(model({**LLAMA_8B, **config}, 10**10), model(config, 10**8), spec(), on("H100-SXM"))
    assert found.message
    assert found.room.requests(1000) >= 0.0


def _rank(fits: bool | None) -> int:
    return {False: 0, None: 1, True: 2}[fits]
