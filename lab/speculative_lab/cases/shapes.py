"""Models and accelerators as published results name them: "2x A100", "gemma-4-31B-it QAT FP8", "Qwen3.8-27B Q4_K_XL".

Called by `rows`. A name that the catalogue does not know is placed by what it says (parameters, precision); what
had to be assumed is told, so that it can be counted.
"""

from __future__ import annotations

import re
from dataclasses import replace

from speculative_operator.domain.models import Accelerator, ModelShape
from speculative_operator.physics.catalog import find_accelerator, find_model, rows

DEFAULT_ACCELERATOR = "H100-SXM"
"""What an unknown accelerator is taken for: the most frequent one in published results. A speed-up is a ratio of times
on the same device, so that only its balance of arithmetic and bandwidth matters."""
DEFAULT_PARAMETERS = 8e9
"""What a model of unknown size is taken for."""
ACTIVE_SHARE = 0.06
"""Active weights of a mixture of experts whose name does not tell them: 0.04-0.09 in the catalogue's large ones."""
WEIGHT_SHARE = 0.85
"""Share of accelerator memory that weights may fill: gives the number of accelerators where none is stated."""
STRIX_HALO = Accelerator("Strix-Halo", 59e12, 59e12, 96e9, 256e9, "vendor data sheet, unverified")
ASCEND_910B = Accelerator("Ascend-910B", 320e12, 320e12, 64e9, 1600e9, "vendor data sheet, unverified")
GB10 = Accelerator("GB10", 62e12, 125e12, 128e9, 273e9, "vendor data sheet, unverified")
_ELSEWHERE = {"strixhalo": STRIX_HALO, "ascend": ASCEND_910B, "npu": ASCEND_910B, "gb10": GB10, "dgxspark": GB10}
"""Accelerators of published results that no Kubernetes node label names."""

_PRECISIONS = (
    (r"w4a16|w4a8|awq|gptq|int4|q4(_[a-z0-9]+)*|mxfp4|nvfp4|fp4|4[- ]?bit", 0.5),
    (r"fp8|int8|w8a8|w8a16|q8(_[a-z0-9]+)*|8[- ]?bit", 1.0),
    (r"bf16|fp16|16[- ]?bit", 2.0),
)
_NATIVE = (("kimi-k2", 0.55), ("deepseek-v4", 0.56), ("deepseek-v3", 1.0), ("deepseek-r1", 1.0), ("gpt-oss", 0.55))
"""Bytes a parameter of checkpoints that come quantised; the names tell nothing."""
_NOISE = re.compile(r"\(.*?\)|\bqat\b|\bgguf\b|\?", re.IGNORECASE)
_SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)\s*([bm])(?![a-z])(?:-a(\d+(?:\.\d+)?)b)?", re.IGNORECASE)
_COUNT = re.compile(r"(?:^|\s)(\d+)\s*x\s*(?=[a-z])|\sx\s*(\d+)", re.IGNORECASE)


def place_accelerator(name: str, stated: str) -> tuple[Accelerator, int | None, tuple[str, ...]]:
    """(accelerator, number of them or None when not told, what was assumed) for the columns `gpu` and `n_gpu`."""
    counted = _COUNT.search(name)
    count = int(stated) if stated.strip().isdecimal() else None
    if counted:
        count = count or int(counted.group(1) or counted.group(2))
    plain = _COUNT.sub(" ", _NOISE.sub(" ", name)).strip()
    short = re.sub(r"[^a-z0-9]", "", plain.lower())
    for part, accelerator in _ELSEWHERE.items():
        if part in short:
            return accelerator, count, ()
    for words in _shorter(plain):
        found = find_accelerator(words)
        if found is not None:
            return found, count, ()
    known = find_accelerator(DEFAULT_ACCELERATOR)
    assert known is not None
    return known, count, (f"accelerator {name or 'not stated'!r} taken for {DEFAULT_ACCELERATOR}",)


def place_model(name: str, mixture: bool) -> tuple[ModelShape, tuple[str, ...]]:
    """(shape with its precision, what was assumed) for the columns `model` and `moe`."""
    plain = re.split(r"\svs\.?\s", name)[0]
    size = precision(plain)
    bare = _NOISE.sub(" ", plain)
    for pattern, _ in _PRECISIONS:
        bare = re.sub(rf"[-_ ]?\b(?:{pattern})\b", " ", bare, flags=re.IGNORECASE)
    bare = bare.strip(" -_")
    found = _catalogued(bare)
    if found is not None:
        return replace(found, bytes_per_parameter=size), ()
    shape, assumed = estimated_shape(bare, mixture)
    return replace(shape, bytes_per_parameter=size), assumed


def precision(name: str) -> float:
    """Bytes a parameter, as far as the name tells; 2 when it tells nothing."""
    for pattern, size in _PRECISIONS:
        if re.search(rf"(?<![a-z0-9])(?:{pattern})(?![a-z0-9])", name, re.IGNORECASE):
            return size
    return next((size for part, size in _NATIVE if part in name.lower()), 2.0)


def estimated_shape(name: str, mixture: bool) -> tuple[ModelShape, tuple[str, ...]]:
    """A shape from a parameter count: P = 12 L h^2 with L = h / 128, 8 KV heads of 128; 128 experts, 8 a token."""
    sizes = list(_SIZE.finditer(name))
    if sizes:
        number = float(sizes[-1].group(1)) * (1e9 if sizes[-1].group(2).lower() == "b" else 1e6)
        told = float(sizes[-1].group(3)) * 1e9 if sizes[-1].group(3) else None
        assumed: tuple[str, ...] = (f"shape of {name!r} from its size",)
    else:
        number, told = DEFAULT_PARAMETERS, None
        assumed = (f"model {name or 'not stated'!r} taken for a dense 8B",)
        mixture = False
    experts = mixture or told is not None
    active = (told or number * ACTIVE_SHARE) if experts else number
    hidden = (number * 128.0 / 12.0) ** (1.0 / 3.0) if not experts else (active * 4.0 * 128.0 / 12.0) ** (1.0 / 3.0)
    shape = ModelShape(
        name=name or "unknown",
        parameters=number,
        active_parameters=active,
        layers=max(round(hidden / 128.0), 1),
        hidden_size=max(round(hidden / 128.0) * 128, 128),
        kv_heads=8,
        head_dim=128,
        experts=128 if experts else 0,
        experts_per_token=8 if experts else 0,
    )
    return shape, assumed


def accelerators_needed(model: ModelShape, accelerator: Accelerator) -> int:
    """The least power of two whose memory takes the weights with room for context."""
    count = 1
    while model.weight_bytes > WEIGHT_SHARE * count * accelerator.memory_bytes and count < 64:
        count *= 2
    return count


def _catalogued(name: str) -> ModelShape | None:
    """An exact name, or the catalogued model that is called so but for "Instruct", "it" or a version's suffix."""
    found = find_model(name)
    if found is not None or not name:
        return found
    catalogued = filter(None, (find_model(row["name"]) for row in rows("models")))
    known = {_plain(shape.name.rsplit("/", 1)[-1]): shape for shape in catalogued}
    sizeless = re.sub(r"[-_ ]\d+(\.\d+)?b$", "", name, flags=re.IGNORECASE)
    return known.get(_plain(name)) or known.get(_plain(sizeless))


def _plain(name: str) -> str:
    words = [word for word in re.split(r"[^a-z0-9.]+", name.lower()) if word]
    kept = [word for word in words if word not in ("instruct", "it", "chat", "hf", "base") and not _suffix(word)]
    return "".join(kept)


def _suffix(word: str) -> bool:
    """A version ("v0.1", "2507") or the active size ("a10b"): published names often leave them out."""
    return re.fullmatch(r"v\d+(\.\d+)?|\d{4}|a\d+(\.\d+)?b", word) is not None


def _shorter(words: str) -> list[str]:
    """The name, then without its last parts: "H100-NVL-94G", "H100-NVL", "H100"; and its parts by themselves."""
    parts = [part for part in re.split(r"[-_/ ]+", words) if part]
    heads = ["-".join(parts[:end]) for end in range(len(parts), 0, -1)]
    return [words, *heads, *parts]
