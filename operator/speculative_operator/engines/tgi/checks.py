"""Everything that TGI would reject, or silently do otherwise, found before a pod exists. Called by `adapter`."""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, Method, Mode, Speculator, Verifier
from speculative_operator.engines.base import Notice, Refusal
from speculative_operator.engines.shared.checks import refusals_of, refuse_field
from speculative_operator.engines.shared.flags import ALWAYS, SPECULATION, Flags
from speculative_operator.engines.tgi.capability import NOTHING_TUNED, OFFER

FLAGS = Flags(
    owned={
        "--model-id": "set spec.verifier.model instead",
        "--revision": "set spec.verifier.revision instead",
        "--hostname": ALWAYS,
        "--port": ALWAYS,
        "--num-shard": "set spec.verifier.tensorParallelSize instead",
        "--sharded": "set spec.verifier.tensorParallelSize instead",
        "--max-batch-size": "set spec.verifier.maxNumSeqs instead",
        "--max-concurrent-requests": "set spec.verifier.maxNumSeqs instead",
        "--max-total-tokens": "set spec.verifier.maxModelLen instead",
        "--max-batch-prefill-tokens": "set spec.verifier.maxNumBatchedTokens instead",
        "--dtype": "set spec.verifier.dtype instead",
        "--quantize": "set spec.verifier.quantization instead",
        "--kv-cache-dtype": "set spec.verifier.kvCacheDtype instead",
        "--cuda-memory-fraction": "set spec.verifier.gpuMemoryUtilizationPercent instead",
        "--graceful-termination-timeout": ALWAYS,
        "--speculate": SPECULATION,
    },
    aliases={"-p": "--port"},
)


def refusals(spec: DeploymentSpec) -> tuple[Refusal, ...]:
    """Why TGI cannot serve `spec`; empty when it can."""
    return refusals_of(spec, OFFER, FLAGS, _verifier, _speculator)


def notices(spec: DeploymentSpec) -> tuple[Notice, ...]:
    """Notices: TGI is in maintenance mode (its README since 2025-12-11), and cannot be tuned where the mode asks."""
    unmaintained = "TGI is in maintenance mode: small fixes only; engine.type: vLLM or SGLang is maintained"
    found = (Notice(Reason.ENGINE_UNMAINTAINED, unmaintained),)
    if not spec.speculates or spec.speculation.mode not in (Mode.AUTO, Mode.RECOMMEND):
        return found
    return (Notice(Reason.UNSUPPORTED_BY_ENGINE, f"{NOTHING_TUNED}; set speculation.mode: Static, or use vLLM"), *found)


def _verifier(verifier: Verifier) -> Iterator[Refusal]:
    for field, size in (
        ("verifier.dataParallelSize", verifier.data_parallel_size),
        ("verifier.pipelineParallelSize", verifier.pipeline_parallel_size),
    ):
        if size > 1:
            yield refuse_field(field, "TGI only splits tensors; set 1 and raise spec.replicas", size)
    if verifier.expert_parallel:
        yield refuse_field("verifier.expertParallel", "TGI only splits tensors; remove it")
    if verifier.lora is not None:
        why = "TGI loads adapters by name; remove it and give --lora-adapters in engine.args"
        yield refuse_field("verifier.lora", why)


def _speculator(spec: DeploymentSpec, speculator: Speculator) -> Iterator[Refusal]:
    source = speculator.source
    if speculator.method is Method.MEDUSA and source is not None and source.uri != spec.verifier.source.uri:
        why = (
            "TGI finds Medusa heads in the verifier's own checkpoint; name the checkpoint with the heads in "
            "verifier.model and remove speculator.model"
        )
        yield refuse_field("speculator.model", why, source.uri)
    if speculator.quantization:
        why = "TGI's drafts have no weights to quantize; remove it"
        yield refuse_field("speculator.quantization", why, speculator.quantization)
    if speculator.prompt_lookup_min is not None or speculator.prompt_lookup_max is not None:
        yield refuse_field("speculator.promptLookup", "TGI looks up single tokens; remove it")
