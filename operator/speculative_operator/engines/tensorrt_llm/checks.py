"""What TensorRT-LLM would reject, or silently do otherwise, found before a pod exists. Called by `adapter`."""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, Method, Mode, Speculator, Verifier
from speculative_operator.engines.base import Notice, Refusal
from speculative_operator.engines.matrix.version import show
from speculative_operator.engines.shared.checks import INVALID, UNSUPPORTED, refusals_of, refuse_field
from speculative_operator.engines.shared.flags import ALWAYS, Flags
from speculative_operator.engines.shared.plan import plan
from speculative_operator.engines.tensorrt_llm.capability import (
    FIRST_KNOWN_CANDIDATE,
    OFFER,
    has_schedule,
    one_k_reason,
)

_OF_CHECKPOINT = "TensorRT-LLM takes it from the checkpoint; remove it"
_FILE = "the operator writes that file, with K in it"

FLAGS = Flags(
    owned={
        "--host": ALWAYS,
        "--port": ALWAYS,
        "--backend": "only the pytorch backend speculates as the operator knows it",
        "--tp_size": "set spec.verifier.tensorParallelSize instead",
        "--pp_size": "set spec.verifier.pipelineParallelSize instead",
        "--ep_size": "set spec.verifier.expertParallel instead",
        "--max_batch_size": "set spec.verifier.maxNumSeqs instead",
        "--max_seq_len": "set spec.verifier.maxModelLen instead",
        "--max_num_tokens": "set spec.verifier.maxNumBatchedTokens instead",
        "--kv_cache_free_gpu_memory_fraction": "set spec.verifier.gpuMemoryUtilizationPercent instead",
        "--kv_cache_dtype": "set spec.verifier.kvCacheDtype instead",
        "--revision": "set spec.verifier.revision instead",
        "--config": _FILE,
        "--max_beam_width": "speculation and beam search exclude each other",
    },
    aliases={
        "--tensor_parallel_size": "--tp_size",
        "--pipeline_parallel_size": "--pp_size",
        "--moe_expert_parallel_size": "--ep_size",
        "--free_gpu_memory_fraction": "--kv_cache_free_gpu_memory_fraction",
        "--extra_llm_api_options": "--config",
    },
)


def refusals(spec: DeploymentSpec) -> tuple[Refusal, ...]:
    """Why TensorRT-LLM cannot serve `spec`; empty when it can."""
    return refusals_of(spec, OFFER, FLAGS, _verifier, _speculator)


def notices(spec: DeploymentSpec) -> tuple[Notice, ...]:
    """Notices where the release cannot be tuned although the mode asks for it."""
    if spec.speculator is None or not spec.speculates or spec.speculation.mode not in (Mode.AUTO, Mode.RECOMMEND):
        return ()
    why = one_k_reason(spec)
    if not why and not has_schedule(spec):
        version = show(plan(spec, OFFER).version)
        why = (
            f"TensorRT-LLM {version} keeps one K for the life of a pod and exports too little to measure it; "
            f"use 1.3.0rc{FIRST_KNOWN_CANDIDATE} or newer"
        )
    return (Notice(Reason.UNSUPPORTED_BY_ENGINE, why),) if why else ()


def _verifier(verifier: Verifier) -> Iterator[Refusal]:
    if verifier.data_parallel_size > 1:
        why = "TensorRT-LLM has no replicas within a server; set 1 and raise spec.replicas"
        yield refuse_field("verifier.dataParallelSize", why, verifier.data_parallel_size)
    if verifier.quantization:
        why = f"{_OF_CHECKPOINT} and name a quantized checkpoint in verifier.model"
        yield refuse_field("verifier.quantization", why, verifier.quantization)


def _speculator(spec: DeploymentSpec, speculator: Speculator) -> Iterator[Refusal]:
    if speculator.quantization:
        yield refuse_field("speculator.quantization", _OF_CHECKPOINT, speculator.quantization)
    if speculator.source is not None and speculator.source.revision:
        why = "TensorRT-LLM loads the newest from the hub; use pvc:// or oci:// for another, or remove it"
        yield refuse_field("speculator.revision", why, speculator.source.revision)
    if speculator.prompt_lookup_min is not None:
        message = "speculator.promptLookup.min: TensorRT-LLM has a longest run only; set promptLookup.max instead"
        yield Refusal("spec.speculator.promptLookup", UNSUPPORTED, message)
    if speculator.prompt_lookup_max is not None and speculator.method is not Method.NGRAM:
        message = f"speculator.promptLookup is of method ngram, not {speculator.method}; remove it"
        yield Refusal("spec.speculator.promptLookup", INVALID, message)
