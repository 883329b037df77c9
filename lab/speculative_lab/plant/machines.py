"""Machines of random worlds: hardware, a model, a speculator beside it, and what is peculiar to this copy of them.

The law is told names as they are in reality: roughly right, wrong in the detail, or nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist

import numpy as np

from speculative_lab.plant import layout as at
from speculative_lab.plant.texts import ENTRIES
from speculative_lab.plant.types import Floats, Machine
from speculative_operator.domain.models import Accelerator, ModelShape
from speculative_operator.domain.spec import Method

ACCELERATORS = (
    Accelerator("H100-SXM", 989e12, 1979e12, 80e9, 3.35e12),
    Accelerator("H200-SXM", 989e12, 1979e12, 141e9, 4.8e12),
    Accelerator("A100-SXM-80GB", 312e12, 312e12, 80e9, 2.04e12),
    Accelerator("L40S", 362e12, 733e12, 48e9, 864e9),
    Accelerator("L4", 121e12, 242e12, 24e9, 300e9),
    Accelerator("A10G", 125e12, 125e12, 24e9, 600e9),
    Accelerator("B200", 2250e12, 4500e12, 192e9, 8.0e12),
    Accelerator("MI300X", 1307e12, 2614e12, 192e9, 5.3e12),
)
MODELS = (
    ModelShape("qwen2.5-1.5b", 1.54e9, 1.54e9, 28, 1536, 2, 128),
    ModelShape("llama-3.2-3b", 3.2e9, 3.2e9, 28, 3072, 8, 128),
    ModelShape("llama-3.1-8b", 8.0e9, 8.0e9, 32, 4096, 8, 128),
    ModelShape("qwen2.5-14b", 14.8e9, 14.8e9, 48, 5120, 8, 128),
    ModelShape("qwen2.5-32b", 32.8e9, 32.8e9, 64, 5120, 8, 128),
    ModelShape("llama-3.3-70b", 70.6e9, 70.6e9, 80, 8192, 8, 128),
    ModelShape("llama-3.3-70b-fp8", 70.6e9, 70.6e9, 80, 8192, 8, 128, bytes_per_parameter=1.0),
    ModelShape("qwen3-30b-a3b", 30.5e9, 3.3e9, 48, 2048, 4, 128, experts=128, experts_per_token=8),
    ModelShape("mixtral-8x7b", 46.7e9, 12.9e9, 32, 4096, 8, 128, experts=8, experts_per_token=2),
    ModelShape("gpt-oss-120b", 117e9, 5.1e9, 36, 2880, 8, 64, 0.6, experts=128, experts_per_token=4),
    ModelShape("qwen3-235b-a22b", 235e9, 22e9, 94, 4096, 4, 128, 1.0, experts=128, experts_per_token=8),
)
METHODS = (
    (Method.EAGLE3, 0.3),
    (Method.MTP, 0.1),
    (Method.DRAFT_MODEL, 0.25),
    (Method.NGRAM, 0.15),
    (Method.SUFFIX, 0.05),
    (Method.DFLASH, 0.15),
)


@dataclass(frozen=True, slots=True)
class Rig:
    """A machine without its noise, and what may be told of it."""

    par: Floats
    k_quirk: Floats
    sizes: tuple[int, ...]
    size_quirk: Floats
    accelerator: Accelerator
    count: int
    model: ModelShape
    speculator: ModelShape | None
    method: Method
    top_k: int
    dead: bool


@cache
def quantiles() -> Floats:
    """Quantiles of the logistic and of the normal distribution, in the middle of equal shares."""
    shares = (np.arange(ENTRIES) + 0.5) / ENTRIES
    normal = NormalDist()
    return np.concatenate([np.log(shares / (1 - shares)), np.array([normal.inv_cdf(float(s)) for s in shares])])


def pick(rng: np.random.Generator, weighted: tuple[tuple[Method, float], ...]) -> Method:
    """One of them by weight."""
    weights = np.array([weight for _, weight in weighted])
    return weighted[int(rng.choice(len(weighted), p=weights / weights.sum()))][0]


def draw_rig(
    rng: np.random.Generator,
    method: Method | None = None,
    model: ModelShape | None = None,
    accelerator: Accelerator | None = None,
    count: int = 1,
) -> Rig:
    """A machine with model and speculator; what is not given is drawn. `count`: accelerators, at the least."""
    model = model or MODELS[int(rng.integers(len(MODELS)))]
    accelerator = accelerator or ACCELERATORS[int(rng.integers(len(ACCELERATORS)))]
    while model.weight_bytes > 0.75 * accelerator.memory_bytes * count:
        count *= 2
    method = method or pick(rng, METHODS)
    par = np.zeros(at.PARAMETERS)
    speed = _model_part(rng, par, model, accelerator, count)
    _serving_part(rng, par, model, accelerator, count)
    sizes = _captured(rng, par, model)
    speculator = _draft_part(rng, par, model, method, speed)
    dead = _text_part(rng, par, method)
    top_k = int(rng.choice([8, 10, 15])) if method is Method.DFLASH else int(rng.choice([4, 5, 6, 8]))
    quirk = np.exp(rng.normal(0, rng.choice([0.0, 0.01, 0.02]), top_k + 1))
    if rng.random() < 0.5:
        quirk[rng.integers(top_k + 1)] *= 1.0 + float(rng.uniform(0.05, 0.15) * rng.choice([1, 1, 1, -1]))
    size_quirk = np.exp(rng.normal(0, rng.choice([0.0, 0.02, 0.04]), 8 * 15))
    return Rig(par, quirk, sizes, size_quirk, accelerator, count, model, speculator, method, top_k, dead)


def _model_part(
    rng: np.random.Generator, par: Floats, model: ModelShape, accelerator: Accelerator, count: int
) -> tuple[float, float]:
    """Fill in the target's costs; returns (bytes/s, FLOP/s) as this machine reaches them."""
    ranks = count ** float(rng.uniform(0.8, 0.97))
    bandwidth = accelerator.memory_bandwidth * ranks * float(rng.uniform(0.55, 0.92))
    peak = accelerator.fp8_flops if model.bytes_per_parameter <= 1 else accelerator.bf16_flops
    flops = peak * ranks * float(rng.uniform(0.25, 0.65))
    size = float(rng.uniform(0.92, 1.08)) * model.weight_bytes
    expert_share = 0.0
    if model.experts:
        idle = 1.0 - model.experts_per_token / model.experts
        expert_share = min(0.98, (1.0 - model.active_parameters / model.parameters) / idle)
        par[at.EXPERT_HALF] = model.experts / model.experts_per_token * float(rng.uniform(0.4, 1.6))
    par[at.DENSE_SECONDS] = size * (1 - expert_share) / bandwidth
    par[at.EXPERT_SECONDS] = size * expert_share / bandwidth * (1.0 if model.experts else 0.0)
    par[at.TOKEN_SECONDS] = 2.0 * model.active_parameters / flops
    par[at.KNEE] = float(rng.uniform(1.0, 4.0))
    par[at.CONTEXT_SECONDS] = model.kv_bytes_per_token / bandwidth * float(rng.uniform(0.9, 1.8))
    par[at.CONTEXT_PER_DRAFT] = float(rng.choice([0.0, 0.01, 0.03, 0.1]))
    par[at.PROMPT_CONTEXT] = 4.0 * model.layers * model.hidden_size / (flops * float(rng.uniform(0.4, 0.9)))
    par[at.REQUEST_SECONDS] = float(rng.uniform(0, 1.5e-5))
    return bandwidth, flops


def _serving_part(
    rng: np.random.Generator, par: Floats, model: ModelShape, accelerator: Accelerator, count: int
) -> None:
    par[at.SEATS] = float(rng.choice([32, 64, 128, 256, 256]))
    par[at.CHUNK_BUDGET] = float(rng.choice([256, 512, 1024, 2048, 8192]))
    par[at.TOKEN_BUDGET] = max(par[at.CHUNK_BUDGET], 2048.0) + par[at.SEATS] * 9
    par[at.PROMPTS_AT_ONCE] = float(rng.choice([1, 2, 64]))
    par[at.PROMPTS_ALONE] = float(rng.random() < 0.15)
    par[at.QUEUE_LIMIT] = float(rng.choice([1e9, 1e9, 200, 50]))
    free = accelerator.memory_bytes * count * 0.9 - model.weight_bytes
    par[at.KV_CAPACITY] = max(free / model.kv_bytes_per_token * float(rng.uniform(0.5, 1.0)), 40_000.0)
    par[at.HOST_SECONDS] = float(rng.uniform(0.3e-3, 4e-3))
    par[at.HOST_REQUEST] = float(rng.uniform(3e-6, 5e-5))
    par[at.HOST_HIDDEN] = float(rng.choice([0.0, 0.5, 1.0]))
    par[at.NOISE] = float(rng.uniform(0.01, 0.08))
    par[at.PERSISTENCE] = float(rng.choice([0.0, 0.5, 0.9, 0.99]))
    par[at.TAIL_SHARE] = float(rng.choice([0.0, 0.002, 0.02]))
    par[at.TAIL_SIZE] = float(rng.uniform(0.2, 1.0))
    par[at.STALL_SHARE] = float(rng.choice([0.0, 0.0, 2e-5, 1e-4]))
    par[at.STALL_SECONDS] = float(rng.uniform(0.05, 0.8))
    par[at.SPELL_SECONDS] = 5.0


def _captured(rng: np.random.Generator, par: Floats, model: ModelShape) -> tuple[int, ...]:
    """Captured sizes as vLLM spaces them, up to a ceiling, and what lies beyond."""
    ceiling = int(rng.choice([0, 128, 256, 512, 512, 1024]))
    par[at.CEILING] = float(ceiling)
    launch = float(rng.uniform(0.0, 4e-5)) * model.layers
    par[at.EAGER_SECONDS] = 10.0 * launch if ceiling and rng.random() < 0.15 else launch
    par[at.MIXED_SECONDS] = float(rng.choice([0.0, 0.5, 1.0])) * launch
    par[at.TILE] = float(rng.choice([1, 16, 64, 128]))
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, 1025, 16)]
    return tuple(size for size in sizes if size <= ceiling)


def _draft_part(
    rng: np.random.Generator, par: Floats, model: ModelShape, method: Method, speed: tuple[float, float]
) -> ModelShape | None:
    """Fill in the speculator's costs; returns its shape, None where it has no weights."""
    bandwidth, flops = speed
    par[at.SOFT] = float(rng.choice([0.0, 1.0]))
    if method.draft_free:
        par[at.SOFT] = 0.0
        par[at.LOOKS_UP] = 1.0
        par[at.DRAFT_BLOCK] = 1.0
        par[at.DRAFT_PASS] = float(rng.uniform(2e-5, 4e-4))
        par[at.DRAFT_PASS_REQUEST] = float(rng.uniform(1e-6, 4e-5))
        return None
    if method is Method.DRAFT_MODEL:
        share = float(np.exp(rng.uniform(math.log(0.02), math.log(0.15))))
        layers = max(8, int(model.layers * 0.5))
        launch = layers * float(rng.uniform(1e-5, 4e-5))
    else:
        layers = 5 if method is Method.DFLASH else 1
        share = layers / model.layers * float(rng.uniform(0.8, 1.6)) + 0.01
        launch = float(rng.uniform(1e-4, 7e-4)) * math.sqrt(layers)
    weights = share * model.active_parameters
    par[at.DRAFT_BASE] = float(rng.uniform(0.1e-3, 1.5e-3))
    par[at.DRAFT_PASS] = weights * model.bytes_per_parameter / bandwidth + launch
    par[at.DRAFT_PASS_REQUEST] = 2 * weights / flops + float(rng.uniform(1e-6, 1.5e-5))
    par[at.DRAFT_PROMPT] = 2 * weights / flops * float(rng.uniform(0.7, 1.5))
    par[at.DRAFT_BLOCK] = float(method is Method.DFLASH)
    if method is Method.DFLASH:
        par[at.DRAFT_PASS_REQUEST] *= 4.0
    return replace(model, name="speculator", parameters=weights, active_parameters=weights, layers=layers, experts=0)


def _text_part(rng: np.random.Generator, par: Floats, method: Method) -> bool:
    """Fill in how texts differ within themselves; True where the speculator is dead."""
    par[at.DECAY] = float(rng.uniform(0.0, 0.25))
    par[at.SEGMENT_BITS] = float(rng.integers(3, 8))
    par[at.SEGMENT_SD] = float(rng.uniform(0.0, 0.7))
    par[at.REGIME] = float(rng.choice([0.0, 1.0, 2.5]))
    par[at.CONTEXT_SLOPE] = float(rng.choice([0.0, 0.0, 0.1, 0.25]))
    par[[at.SHIFT_AT, at.SHIFT_END]] = math.inf
    par[at.RESTS_AFTER] = math.inf
    return bool(rng.random() < 0.04)


def machine_of(rig: Rig, rng: np.random.Generator, seconds: float) -> Machine:
    """One copy of the rig: its own noise and neighbours, and a little of its own speed."""
    par = rig.par.copy()
    par[at.NOISE_SEED] = float(rng.integers(1 << 31))
    par[at.WARM] = 60.0
    spells = np.full(int(seconds / par[at.SPELL_SECONDS]) + 2, float(np.exp(rng.normal(0, 0.01))))
    if rng.random() < 0.35:
        moment = float(rng.exponential(200.0))
        while moment < seconds:
            length, factor = float(rng.uniform(10, 120)), float(rng.uniform(1.03, 1.3))
            first = int(moment / par[at.SPELL_SECONDS])
            spells[first : first + 1 + int(length / par[at.SPELL_SECONDS])] *= factor
            moment += length + float(rng.exponential(300.0))
    sizes = np.array(rig.sizes or (1,), dtype=np.int64)
    return Machine(par, rig.k_quirk, sizes, rig.size_quirk, spells, quantiles())
