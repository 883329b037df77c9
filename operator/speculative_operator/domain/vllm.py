"""Facts of vLLM by which both the API and the engine's adapter refuse specs, and what its options say to others."""

from __future__ import annotations

from speculative_operator.domain.spec import DeploymentSpec, Method

IN_ONE_PASS = (Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE3)
"""Methods whose weights may have been trained to draft all tokens at once (P-EAGLE, PARD). Source: vLLM 0.32,
config/speculative.py."""
ADAPTIVE = (Method.DRAFT_MODEL, Method.EAGLE, Method.EAGLE3, Method.MTP, Method.DFLASH, Method.DSPARK)
"""Methods that estimate how likely each draft is accepted (`enable_adaptive_verification`). For the others vLLM ignores
the key. Source: vLLM 0.32, v1/worker/gpu/spec_decode/speculator.py."""
FIELDS_OF_KEYS = {
    "method": "speculator.method",
    "model": "speculator.model",
    "revision": "speculator.revision",
    "quantization": "speculator.quantization",
    "draft_tensor_parallel_size": "speculator.tensorParallelSize",
    "tensor_parallel_size": "speculator.tensorParallelSize",
    "parallel_drafting": "speculator.parallelDrafting",
    "use_heterogeneous_vocab": "speculator.heterogeneousVocabulary",
    "prompt_lookup_min": "speculator.promptLookup.min",
    "prompt_lookup_max": "speculator.promptLookup.max",
    "num_speculative_tokens": "speculation.maxSpeculativeTokens or speculation.numSpeculativeTokens",
    "num_speculative_tokens_per_batch_size": "speculation.schedule",
    "enable_adaptive_verification": "speculation.adaptiveVerification",
}
"""Key of `--speculative-config` -> the field of the spec that sets it. All other keys are the user's
(`speculator.options`)."""


def drafting_kv_cache_dtype(spec: DeploymentSpec) -> str:
    """Number format of the speculator's KV cache: its own option, else the verifier's; empty: the engine's choice."""
    options = spec.speculator.options if spec.speculator is not None else {}
    return str(options.get("kv_cache_dtype") or spec.verifier.kv_cache_dtype)
