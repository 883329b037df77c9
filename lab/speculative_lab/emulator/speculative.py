"""`--speculative-config` as vLLM 0.32 takes it: keys, types, cross checks, error texts (pure).

Called by `config`. The schedule inside is left raw: vLLM looks at it only after the weights are loaded.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speculative_lab.emulator.errors import ConfigError, ValidationError
from speculative_lab.emulator.flags import SPECULATIVE_METHODS

_INT, _BOOL, _TEXT, _NUMBER, _LIST, _MAP = "int", "bool", "str", "number", "list", "dict"

KEYS: dict[str, str] = {
    "num_speculative_tokens": _INT,
    "method": _TEXT,
    "model": _TEXT,
    "revision": _TEXT,
    "code_revision": _TEXT,
    "draft_tensor_parallel_size": _INT,
    "tensor_parallel_size": _INT,
    "max_model_len": _INT,
    "quantization": _TEXT,
    "moe_backend": _TEXT,
    "attention_backend": _TEXT,
    "kv_cache_dtype": _TEXT,
    "draft_load_config": _MAP,
    "enforce_eager": _BOOL,
    "prompt_lookup_min": _INT,
    "prompt_lookup_max": _INT,
    "suffix_decoding_max_tree_depth": _INT,
    "suffix_decoding_max_cached_requests": _INT,
    "suffix_decoding_max_spec_factor": _NUMBER,
    "suffix_decoding_min_token_prob": _NUMBER,
    "num_speculative_tokens_per_batch_size": _LIST,
    "parallel_drafting": _BOOL,
    "disable_padded_drafter_batch": _BOOL,
    "use_heterogeneous_vocab": _BOOL,
    "disable_eagle_block_drop": _BOOL,
    "rejection_sample_method": _TEXT,
    "synthetic_acceptance_rates": _LIST,
    "synthetic_acceptance_length": _NUMBER,
    "draft_sample_method": _TEXT,
    "enable_adaptive_verification": _BOOL,
    "index_share_for_mtp_iteration": _BOOL,
    "use_local_argmax_reduction": _BOOL,
    "dspark_draft_topk": _INT,
}
"""Key -> form of its value. None (null) is allowed everywhere."""

_POSITIVE = (
    "num_speculative_tokens",
    "draft_tensor_parallel_size",
    "max_model_len",
    "prompt_lookup_min",
    "prompt_lookup_max",
)
_CHOICES = {
    "method": SPECULATIVE_METHODS,
    "rejection_sample_method": ("standard", "synthetic", "block"),
    "draft_sample_method": ("greedy", "probabilistic"),
}
_NO_MODEL_NEEDED = frozenset({"ngram", "ngram_gpu", "suffix", "mtp", "dspark"})
_NOT_EMULATED = frozenset({"custom_class", "extract_hidden_states"})
_EXPECTED = {_INT: "integer", _BOOL: "boolean", _TEXT: "string", _NUMBER: "number", _LIST: "list", _MAP: "dictionary"}
_TYPES: dict[str, tuple[type, ...]] = {
    _INT: (int,),
    _BOOL: (bool,),
    _TEXT: (str,),
    _NUMBER: (int, float),
    _LIST: (object,),
    _MAP: (dict,),
}


@dataclass(frozen=True, slots=True)
class Speculative:
    """A checked speculative configuration."""

    method: str
    k: int
    """Largest K: `num_speculative_tokens`."""
    model: str | None = None
    schedule: object = None
    """Raw `num_speculative_tokens_per_batch_size`; None when there is none."""
    has_schedule: bool = False
    draft_tensor_parallel_size: int = 1
    kv_cache_dtype: str | None = None
    parallel_drafting: bool = False
    heterogeneous_vocab: bool = False
    adaptive_verification: bool = False


def raw_config(namespace: argparse.Namespace) -> dict[str, Any] | None:
    """The JSON object, dashes in its keys as underscores; None when speculation is not asked for. Raises
    ValidationError when the value is no object."""
    given = namespace.speculative_config
    if given is not None and not isinstance(given, Mapping):
        raise ValidationError(
            "SpeculativeConfig", [("speculative_config", "Input should be a valid dictionary", "dict_type")]
        )
    return {str(key).replace("-", "_"): value for key, value in (given or {}).items()} or None


def checked(raw: Mapping[str, Any], tensor_parallel_size: int) -> Speculative:
    """A `Speculative` from the raw object. Raises ValidationError or ConfigError with vLLM's text where it is known."""
    _check_schema(raw)
    values = {key: value for key, value in raw.items() if value is not None}
    if "tensor_parallel_size" in values:
        raise ConfigError(
            "'tensor_parallel_size' is not a valid argument in the speculative_config."
            " Please pass 'draft_tensor_parallel_size' instead."
        )
    method = values.get("method") or _detected(values.get("model"))
    if method is None or (values.get("model") is None and method not in _NO_MODEL_NEEDED):
        raise ConfigError("num_speculative_tokens was provided but without speculative model.")
    k = values.get("num_speculative_tokens")
    if k is None:
        raise ConfigError("A speculative model was provided, but `num_speculative_tokens` was not provided")
    if method in _NOT_EMULATED:
        raise ConfigError(f"method {method} is not emulated; use one of the methods that draft tokens")
    if values.get("rejection_sample_method") == "synthetic":
        raise ConfigError("synthetic acceptance is not emulated; leave rejection_sample_method out")
    _check_lookup(method, values)
    if method != "dspark" and values.get("enable_adaptive_verification") and values.get("use_local_argmax_reduction"):
        raise ConfigError(
            "Adaptive verification estimates per-position acceptance from the draft logits, which"
            " use_local_argmax_reduction never materializes. Disable one of them."
        )
    draft_tp = int(values.get("draft_tensor_parallel_size", tensor_parallel_size))
    if draft_tp not in (1, tensor_parallel_size):
        raise ConfigError(
            f"draft_tensor_parallel_size={draft_tp} cannot be other than 1 or target model tensor_parallel_size"
        )
    return Speculative(
        method=method,
        k=int(k),
        model=values.get("model"),
        schedule=values.get("num_speculative_tokens_per_batch_size"),
        has_schedule="num_speculative_tokens_per_batch_size" in values,
        draft_tensor_parallel_size=draft_tp,
        kv_cache_dtype=values.get("kv_cache_dtype"),
        parallel_drafting=bool(values.get("parallel_drafting")) or method in ("dflash", "dspark"),
        heterogeneous_vocab=bool(values.get("use_heterogeneous_vocab")),
        adaptive_verification=bool(values.get("enable_adaptive_verification")),
    )


def _check_schema(raw: Mapping[str, Any]) -> None:
    problems: list[tuple[str, str, str]] = []
    for key, value in raw.items():
        if key not in KEYS:
            problems.append((key, "Unexpected keyword argument", "unexpected_keyword_argument"))
        elif value is not None:
            problems += _check_value(key, value)
    if problems:
        raise ValidationError("SpeculativeConfig", problems)


def _check_value(key: str, value: Any) -> list[tuple[str, str, str]]:
    form = KEYS[key]
    number: Any = value
    wrong_bool = isinstance(value, bool) and form in (_INT, _NUMBER)
    if wrong_bool or not isinstance(value, _TYPES[form]):
        return [(key, f"Input should be a valid {_EXPECTED[form]}", f"{form}_type")]
    if key in _POSITIVE and number <= 0:
        return [(key, "Input should be greater than 0", "greater_than")]
    allowed = _CHOICES.get(key)
    if allowed and value not in allowed:
        shown = ", ".join(f"'{word}'" for word in allowed[:-1])
        return [(key, f"Input should be {shown} or '{allowed[-1]}'", "literal_error")]
    return []


def _detected(model: str | None) -> str | None:
    """vLLM guesses the method from the model's name; without a telling name it is a draft model."""
    if model is None:
        return None
    name = model.lower()
    for word in ("ngram", "suffix", "eagle3", "eagle", "medusa", "dflash", "dspark", "mtp"):
        if word in name:
            return word
    return "draft_model"


def _check_lookup(method: str, values: Mapping[str, Any]) -> None:
    if method not in ("ngram", "ngram_gpu"):
        return
    low, high = values.get("prompt_lookup_min"), values.get("prompt_lookup_max")
    low, high = low or high or 5, high or low or 5
    if low > high:
        raise ConfigError(f"prompt_lookup_min={low} must be <= prompt_lookup_max={high}")
