"""`--speculative-config` as vLLM 0.32 takes it: keys, cross checks, error texts (pure).

Called by `config`. The schedule inside is left raw: vLLM looks at it only after the weights are loaded.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speculative_lab.emulator.errors import ConfigError, invalid

_METHODS = (
    "ngram", "ngram_gpu", "suffix", "medusa", "draft_model", "eagle", "eagle3", "mtp", "dflash",
    "dspark",
)  # fmt: skip
"""Methods that draft tokens; vLLM's others are not emulated."""
_KEYS = frozenset((
    "num_speculative_tokens", "method", "model", "revision", "code_revision", "draft_tensor_parallel_size",
    "tensor_parallel_size", "max_model_len", "quantization", "moe_backend", "attention_backend", "kv_cache_dtype",
    "draft_load_config", "enforce_eager", "prompt_lookup_min", "prompt_lookup_max",
    "suffix_decoding_max_tree_depth", "suffix_decoding_max_cached_requests", "suffix_decoding_max_spec_factor",
    "suffix_decoding_min_token_prob", "num_speculative_tokens_per_batch_size", "parallel_drafting",
    "disable_padded_drafter_batch", "use_heterogeneous_vocab", "disable_eagle_block_drop",
    "rejection_sample_method", "synthetic_acceptance_rates", "synthetic_acceptance_length", "draft_sample_method",
    "enable_adaptive_verification", "index_share_for_mtp_iteration", "use_local_argmax_reduction",
    "dspark_draft_topk",
))  # fmt: skip
_NO_MODEL_NEEDED = frozenset({"ngram", "ngram_gpu", "suffix", "mtp", "dspark"})


@dataclass(frozen=True, slots=True)
class Speculative:
    """A checked speculative configuration."""

    method: str
    k: int
    """Largest K: `num_speculative_tokens`."""
    model: str | None = None
    schedule: object = None
    """Raw `num_speculative_tokens_per_batch_size`; None when there is none."""
    parallel_drafting: bool = False
    heterogeneous_vocab: bool = False
    adaptive_verification: bool = False


def raw_config(namespace: argparse.Namespace) -> dict[str, Any] | None:
    """The JSON object, dashes in its keys as underscores; None when speculation is not asked for. Raises ConfigError
    when the value is no object."""
    given = namespace.speculative_config
    if given is not None and not isinstance(given, Mapping):
        raise invalid("SpeculativeConfig", ("speculative_config", "Input should be a valid dictionary"))
    return {str(key).replace("-", "_"): value for key, value in (given or {}).items()} or None


def checked(raw: Mapping[str, Any], tensor_parallel_size: int) -> Speculative:
    """A `Speculative` from the raw object. Raises ConfigError with vLLM's text where it is known."""
    unknown = [(key, "Unexpected keyword argument") for key in raw if key not in _KEYS]
    if unknown:
        raise invalid("SpeculativeConfig", *unknown)
    values = {key: value for key, value in raw.items() if value is not None}
    method, k = values.get("method") or _detected(values.get("model")), values.get("num_speculative_tokens")
    if method is None or (values.get("model") is None and method not in _NO_MODEL_NEEDED):
        raise ConfigError("num_speculative_tokens was provided but without speculative model.")
    if method not in _METHODS:
        raise invalid("SpeculativeConfig", ("method", f"Input should be one of {', '.join(_METHODS)}"))
    if k is None:
        raise ConfigError("A speculative model was provided, but `num_speculative_tokens` was not provided")
    if type(k) is not int or k < 1:
        raise invalid("SpeculativeConfig", ("num_speculative_tokens", "Input should be an integer greater than 0"))
    if values.get("rejection_sample_method") == "synthetic":
        raise ConfigError("synthetic acceptance is not emulated; leave rejection_sample_method out")
    _check_look_up(method, values)
    ranks = values.get("draft_tensor_parallel_size", tensor_parallel_size)
    if ranks not in (1, tensor_parallel_size):
        raise ConfigError(
            f"draft_tensor_parallel_size={ranks} cannot be other than 1 or target model tensor_parallel_size"
        )
    return Speculative(
        method=method,
        k=k,
        model=values.get("model"),
        schedule=values.get("num_speculative_tokens_per_batch_size"),
        parallel_drafting=bool(values.get("parallel_drafting")) or method in ("dflash", "dspark"),
        heterogeneous_vocab=bool(values.get("use_heterogeneous_vocab")),
        adaptive_verification=bool(values.get("enable_adaptive_verification")),
    )


def _detected(model: str | None) -> str | None:
    """vLLM guesses the method from the model's name; without a telling name it is a draft model."""
    if model is None:
        return None
    found = (word for word in ("eagle3", "eagle", "medusa", "dflash", "dspark", "mtp") if word in model.lower())
    return next(found, "draft_model")


def _check_look_up(method: str, values: Mapping[str, Any]) -> None:
    if method not in ("ngram", "ngram_gpu"):
        return
    low, high = values.get("prompt_lookup_min"), values.get("prompt_lookup_max")
    low, high = low or high or 5, high or low or 5
    if low > high:
        raise ConfigError(f"prompt_lookup_min={low} must be <= prompt_lookup_max={high}")
