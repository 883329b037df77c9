"""Names of models as people write them: which two are the same, and which is another's quantization by its name.

Used by `catalogue`. Names are compared by their last part, without case: mirrors and copies keep it.
"""

from __future__ import annotations

import re

_SUFFIX = re.compile(
    r"[-_.](?:fp8|fp4|nvfp4|mxfp4|mxfp8|int4|int8|bf16|fp16|awq|gptq|gguf|bnb|autoround|quark|dynamic|static|"
    r"block|pertensor|per[-_]?tensor|per[-_]?channel|quantized|compressed|4bit|8bit|w4a16|w8a16|w8a8|w4a4|w4a8|fp8kv|"
    r"g\d+|marlin|exl\d|mlx)$"
)
_RENAMED = "meta-llama-"
"""Meta's repositories lost this prefix: `Meta-Llama-3.1-8B` is `Llama-3.1-8B`."""


def tail(name: str) -> str:
    """Last part of a name or URI, without revision, in lower case: `hf://Qwen/Qwen3-8B@main` -> `qwen3-8b`."""
    plain = name.split("://", 1)[-1].split("@", 1)[0].rstrip("/")
    last = plain.rsplit("/", 1)[-1].lower()
    return last.replace(_RENAMED, "llama-", 1) if last.startswith(_RENAMED) else last


def stem(name: str) -> str:
    """`tail` without the words that name a quantization: `RedHatAI/Qwen3-8B-FP8-dynamic` -> `qwen3-8b`."""
    found = tail(name)
    while (shorter := _SUFFIX.sub("", found)) != found and shorter:
        found = shorter
    return found
