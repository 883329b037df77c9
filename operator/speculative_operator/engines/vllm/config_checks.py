"""What vLLM would refuse of `speculation.adaptiveVerification`, and the keys of `speculator.options` that are not the
user's, found before a pod exists. Called by `checks`.

Adaptive verification: in each step vLLM picks, of all drafts of all requests, those whose estimated acceptance is worth
their time, and verifies no others. Its conditions are those of vLLM 0.32 config/vllm.py
(`_validate_adaptive_verification`, `_get_v1_model_runner_unsupported_features`), config/speculative.py and
v1/worker/gpu/spec_decode/adaptive_verification.py (`maybe_create_adaptive_verification_manager`).
"""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, Method, Speculator
from speculative_operator.domain.vllm import FIELDS_OF_KEYS
from speculative_operator.engines.base import Refusal
from speculative_operator.engines.matrix.cell import Variant, Version, show_version
from speculative_operator.engines.vllm.capability import Runner
from speculative_operator.engines.vllm.graphs import FLAGS, capture_sizes
from speculative_operator.engines.vllm.plan import RUNNER_VARIABLE, Plan, user_runner
from speculative_operator.physics.catalog import find_accelerator

ADAPTIVE_SINCE: Version = (0, 32, 0)
"""First release whose speculators other than DSpark estimate what is accepted, so that their drafts can be trimmed."""
_ADAPTIVE = "spec.speculation.adaptiveVerification"
_GRAPHLESS = (Vendor.CPU, Vendor.INTEL_GPU, Vendor.TPU, Vendor.GAUDI, Vendor.NEURON)
_FLASH_ATTENTION_2 = ("A100", "A10", "A30", "A40", "L4", "RTX-A6000", "RTX-3090", "RTX-4090", "V100")
"""Beginnings of the names of accelerators on which vLLM's attention has no graphs for steps of unequal lengths: that
takes FlashAttention 3 or 4, or Triton (vLLM 0.32 v1/attention/backends)."""
_ATTENTION_FLAGS = ("--attention-backend", "--attention-config", "-ac")
_OF_VARIANT = {
    Variant.PARALLEL: "remove speculator.parallelDrafting, or adaptiveVerification",
    Variant.HETEROGENEOUS: "remove speculator.heterogeneousVocabulary, or adaptiveVerification",
}


def options_refusals(speculator: Speculator) -> Iterator[Refusal]:
    """Refuses keys that a field of the spec sets."""
    for key, value in speculator.options.items():
        if (field := FIELDS_OF_KEYS.get(key)) is not None:
            message = f"speculator.options has {key} {value!r}: remove it and set {field} instead"
            yield Refusal("spec.speculator.options", Reason.SPEC_INVALID, message)


def adaptive_refusals(spec: DeploymentSpec, speculator: Speculator, planned: Plan) -> Iterator[Refusal]:
    """Refuses adaptive verification where vLLM would not start with it; nothing where the spec does not ask for it."""
    if not spec.speculation.adaptive_verification:
        return
    if planned.version < ADAPTIVE_SINCE:
        since = show_version(ADAPTIVE_SINCE)
        yield _refuse(
            f"needs engine.version {since} or newer, not {show_version(planned.version)}; set it, or remove this"
        )
        return
    yield from _without_graphs(spec, planned)
    if planned.runner is not Runner.V2:
        chosen = f"remove {RUNNER_VARIABLE} from engine.env" if user_runner(spec) is Runner.V1 else "remove this"
        remedy = _OF_VARIANT.get(planned.variant, chosen)
        yield _refuse(f"needs vLLM's V2 model runner, and V1 serves {speculator.method} here; {remedy}")
    verifier = spec.verifier
    if verifier.lora is not None:
        yield _refuse("does not work with the adapters of verifier.lora; remove one of the two")
    if verifier.pipeline_parallel_size > 1:
        size = verifier.pipeline_parallel_size
        yield _refuse(f"does not work with verifier.pipelineParallelSize {size}; set 1, or remove this")
    if speculator.options.get("use_local_argmax_reduction") and speculator.method is not Method.DSPARK:
        yield _refuse(
            "needs the logits that speculator.options.use_local_argmax_reduction omits; remove one of the two"
        )


def _without_graphs(spec: DeploymentSpec, planned: Plan) -> Iterator[Refusal]:
    vendor, product = spec.accelerator.vendor, spec.accelerator.product
    if vendor in _GRAPHLESS:
        yield _refuse(f"needs full CUDA graphs, which {vendor} accelerators have not; remove this")
    elif vendor in (Vendor.NVIDIA, Vendor.AMD) and not capture_sizes(spec, planned):
        yield _refuse("needs full CUDA graphs, which engine.args turn off; remove that argument, or this")
    found = find_accelerator(product) if product else None
    named = any(FLAGS.name(argument) in _ATTENTION_FLAGS for argument in spec.engine.args)
    if found is not None and found.name.startswith(_FLASH_ATTENTION_2) and not named:
        yield _refuse(
            f"needs attention with CUDA graphs for steps of unequal lengths, which vLLM's own choice on {found.name}, "
            "FlashAttention 2, has not; add --attention-backend=TRITON_ATTN to engine.args, or remove this"
        )


def _refuse(why: str) -> Refusal:
    return Refusal(_ADAPTIVE, Reason.UNSUPPORTED_BY_ENGINE, f"speculation.adaptiveVerification true {why}")
