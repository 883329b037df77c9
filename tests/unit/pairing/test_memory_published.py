"""Memory arithmetic against what engines printed and model cards state, each within 5 %."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.pairing import memory_models as models
from tests.unit.pairing.memory_models import model, spec

from speculative_operator.pairing.fit_caches import Widths, caches
from speculative_operator.pairing.fit_room import Holding, Room, verifier_holding
from speculative_operator.pairing.fit_weights import counts, draft_layer
from speculative_operator.pairing.reading import decoder

GIB = float(2**30)
EAGLE = "README of SafeAILab/EAGLE @cb7e084"
TOLERANCE = 0.05
VICUNA_7B = {
    "hidden_size": 4096, "num_hidden_layers": 1, "num_attention_heads": 32, "intermediate_size": 11008,
    "vocab_size": 32000,
}  # fmt: skip
VICUNA_13B = VICUNA_7B | {"hidden_size": 5120, "num_attention_heads": 40, "intermediate_size": 13824}
BF16 = Widths(2.0, 2.0)


def token(config: dict[str, Any], ranks: int = 1, widths: Widths = BF16, tokens: int = 1 << 20) -> float:
    """Bytes that a rank caches for a token, in a request of `tokens`."""
    groups = caches(decoder(config), widths)
    assert groups is not None
    return sum(one.bytes(tokens, ranks) for one in groups) / tokens


def parameters(config: dict[str, Any]) -> float:
    found = counts(decoder(config))
    assert found is not None
    return found.total / 1e9


def drafted(config: dict[str, Any]) -> float:
    """10^9 weights of a draft layer."""
    found = counts(decoder(config))
    assert found is not None
    return draft_layer(decoder(config), found) / 1e9


PUBLISHED = [
    ("10^9 weights of Llama-3.1-8B", lambda: parameters(models.LLAMA_8B), 14.9888 * GIB / 2e9, "vllm#10517, log"),
    (
        "10^9 weights of Qwen3-30B-A3B, a quarter on each of 4",
        lambda: parameters(models.QWEN_30B),
        4 * 14.2474 * GIB / 2e9,
        "vllm#17469, log",
    ),
    ("bytes a token, Llama-3.1-8B", lambda: token(models.LLAMA_8B), 3.81 * GIB / (1952 * 16), "vllm#10517, log"),
    (
        "bytes a token, Qwen3-235B-A22B on each of 4",
        lambda: token(models.QWEN_235B, 4),
        8.11 * GIB / 178_880,
        "vllm#21348, log",
    ),
    (
        "GiB of 262,144 tokens, Qwen3-Coder-30B-A3B",
        lambda: token(models.QWEN_30B) * 262_144 / GIB,
        24.0,
        "vllm#34076, error",
    ),
    ("KiB a token, Qwen3-Coder-30B-A3B", lambda: token(models.QWEN_30B) / 1024, 96.0, "NoLlama#21"),
    (
        "GiB of 131,072 tokens, Qwen3.6-35B-A3B, FP8 cache",
        lambda: token(models.QWEN35_35B, widths=Widths(1.0), tokens=131_072) * 131_072 / GIB,
        5.98 / 4.33,
        "club-3090#612, log",
    ),
    (
        "GiB of 1M tokens, 61 layers as in DeepSeek-V3.2, all bf16",
        lambda: token(models.DEEPSEEK_V32) * 2**20 / GIB,
        83.9,
        "vLLM blog 2026-04-24",
    ),
    (
        "GiB of 1M tokens, DeepSeek-V4, all bf16",
        lambda: token(models.DEEPSEEK_V4_PRO) * 2**20 / GIB,
        9.62,
        "vLLM blog 2026-04-24",
    ),
    ("10^9 weights of EAGLE for Vicuna 7B", lambda: drafted(VICUNA_7B), 0.24, EAGLE),
    ("10^9 weights of EAGLE for Vicuna 13B", lambda: drafted(VICUNA_13B), 0.37, EAGLE),
    ("10^9 weights of EAGLE for Llama-3.1-8B", lambda: drafted(models.eagle_head(models.LLAMA_8B)), 0.25, EAGLE),
    ("10^9 weights of EAGLE for Llama-3-70B", lambda: drafted(models.eagle_head(models.LLAMA_70B)), 0.99, EAGLE),
    (
        "10^9 weights of the MTP layer of DeepSeek-V3",
        lambda: drafted(models.DEEPSEEK_V3),
        11.5,
        "DeepSeek-V3 README_WEIGHTS.md",
    ),
]
"""(what, ours, published, source)."""


@pytest.mark.parametrize(("what", "ours", "published", "source"), PUBLISHED, ids=[row[0] for row in PUBLISHED])
def test_published_figures(what: str, ours: Any, published: float, source: str) -> None:
    assert ours() == pytest.approx(published, rel=TOLERANCE), f"{what}, {source}"


def test_kv_capacity_of_a_log() -> None:
    """vllm#10517: RTX 3090 of 23.58 GiB, 90 %, Llama-3.1-8B, 20,000 tokens; peak 17.06 GiB and 0.35 GiB outside torch
    leave 3.81 GiB, 1,952 blocks of 16, 1.56 requests."""
    found = verifier_holding(model(models.LLAMA_8B, models.LLAMA_8B_BYTES), spec())
    assert found is not None
    activations = (17.06 - 14.9888 + 0.35) * GIB
    room = Room(23.58 * GIB, found, share=0.9, reserve_bytes=activations)
    assert room.cache_bytes / GIB == pytest.approx(3.81, rel=TOLERANCE)
    assert room.tokens(20_000) == pytest.approx(1952 * 16, rel=TOLERANCE)
    assert room.requests(20_000) == pytest.approx(1.56, rel=TOLERANCE)
    assert replace(room, speculator=Holding(0.85e9)).requests(20_000) < room.requests(20_000)


@pytest.mark.parametrize(
    ("config", "billions", "active"),
    [
        (models.QWEN_30B, 30.5, 3.3), (models.QWEN_235B, 235.0, 22.0), (models.QWEN35_35B, 35.0, 3.0),
        (models.GEMMA_31B, 30.7, 30.7), (models.NEMOTRON_NANO, 31.6, 3.2), (models.LLAMA_405B, 405.9, 405.9),
        (models.GPT_OSS_120B, 116.8, 5.1), (models.DEEPSEEK_V3, 671.0, 36.7),
    ],
)  # fmt: skip
def test_counts_against_what_vendors_state(config: dict[str, Any], billions: float, active: float) -> None:
    found = counts(decoder(config))
    assert found is not None
    assert found.total / 1e9 == pytest.approx(billions, rel=0.02)
    assert found.active / 1e9 == pytest.approx(active, rel=0.1)
