"""What TensorRT-LLM would reject, or silently do otherwise, found before a pod exists. Read by `adapter`.

`draft_len_schedule` had two meanings. In 1.2 its keys were lower bounds (NVIDIA/TensorRT-LLM#8194) and the verifier was
still run over the longest draft, so that a smaller K saved nothing there: such releases keep one K. Since #10860 and
#12262 (both merged by spring 2026, into 1.3) the keys are inclusive upper bounds and verification shrinks too; release
candidate 15 of 1.3.0 is the first that was seen with it (#15022). In earlier candidates the same file may mean either,
so they keep one K as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, EngineType, Method, Mode, Speculator, Verifier
from speculative_operator.engines.base import Notice, Refusal
from speculative_operator.engines.matrix.cell import CELLS, Version, parse_version, show_version
from speculative_operator.engines.shared.arguments import ALWAYS, Flags, of_verifier
from speculative_operator.engines.shared.checks import UNSUPPORTED, refusals_of, refuse_field
from speculative_operator.engines.shared.plan import Offer, plan

OLDEST: Version = (1, 0, 0)
CONFIG_FLAG_SINCE: Version = (1, 2, 0)
"""Before, `--config` is spelt `--extra_llm_api_options`."""
SCHEDULE_SINCE: Version = (1, 3, 0)
FIRST_KNOWN_CANDIDATE = 15
DEFAULT_MAX_BATCH = 256
"""trtllm-serve's own default, 2048, would have tables and CUDA graphs reach where no cache does."""
DECODING_TYPES = {
    Method.EAGLE3: "Eagle3", Method.MTP: "MTP", Method.DRAFT_MODEL: "Draft_Target", Method.NGRAM: "NGram",
    Method.SUFFIX: "SA", Method.DFLASH: "DFlash", Method.DSPARK: "DSpark",
}  # fmt: skip
OLD_EAGLE3 = "Eagle"
"""Name of Eagle3 before 1.3; newer releases take it as an alias (#10124)."""
PARALLEL = "PARD"
"""Decoding type of a draft_model that drafts all tokens in one pass."""

_CANDIDATE = re.compile(r"v?1\.3\.0[.-]?rc(\d+).*")


def one_k_reason(spec: DeploymentSpec) -> str:
    """Why a release candidate gets no schedule, which it may read either way; empty for other releases."""
    match = _CANDIDATE.fullmatch(spec.engine.version.strip())
    if match is not None and int(match[1]) < FIRST_KNOWN_CANDIDATE:
        return (
            f"release candidate {spec.engine.version} may read draft_len_schedule as lower or as upper bounds; use "
            f"1.3.0rc{FIRST_KNOWN_CANDIDATE} or newer"
        )
    return ""


def has_schedule(spec: DeploymentSpec) -> bool:
    """True when the release is known to read the schedule as inclusive upper bounds."""
    return (parse_version(spec.engine.version) or OLDEST) >= SCHEDULE_SINCE and not one_k_reason(spec)


OFFER = Offer(
    engine=EngineType.TENSORRT_LLM,
    cells=CELLS[EngineType.TENSORRT_LLM],
    oldest=OLDEST,
    why_oldest="builds engines ahead of serving, which the operator does not",
    default_batch=DEFAULT_MAX_BATCH,
    # Graphs are captured for the pairs of batch and K that the schedule holds, so few K keep them few.
    table_ks=frozenset({1, 2, 3, 5, 7}),
    falling=True,
    fixed_k_reason=one_k_reason,
)


_OF_CHECKPOINT = "TensorRT-LLM takes it from the checkpoint; remove it"
_FILE = "the operator writes that file, with K in it"

FLAGS = Flags(
    owned={
        **of_verifier({
            "--tp_size": "tensorParallelSize", "--pp_size": "pipelineParallelSize", "--ep_size": "expertParallel",
            "--max_batch_size": "maxNumSeqs", "--max_seq_len": "maxModelLen", "--max_num_tokens": "maxNumBatchedTokens",
            "--kv_cache_free_gpu_memory_fraction": "gpuMemoryUtilizationPercent", "--kv_cache_dtype": "kvCacheDtype",
            "--revision": "revision",
        }),
        **dict.fromkeys(("--host", "--port"), ALWAYS),
        "--backend": "only the pytorch backend speculates as the operator knows it",
        "--config": _FILE,
        "--max_beam_width": "speculation and beam search exclude each other",
    },
    aliases={
        "--tensor_parallel_size": "--tp_size", "--pipeline_parallel_size": "--pp_size",
        "--moe_expert_parallel_size": "--ep_size", "--extra_llm_api_options": "--config",
        "--free_gpu_memory_fraction": "--kv_cache_free_gpu_memory_fraction",
    },
)  # fmt: skip


def refusals(spec: DeploymentSpec) -> tuple[Refusal, ...]:
    """Why TensorRT-LLM cannot serve `spec`; empty when it can."""
    return refusals_of(spec, OFFER, FLAGS, _verifier, _speculator)


def notices(spec: DeploymentSpec) -> tuple[Notice, ...]:
    """Notices where the release cannot be tuned although the mode asks for it."""
    if spec.speculator is None or not spec.speculates or spec.speculation.mode not in (Mode.AUTO, Mode.RECOMMEND):
        return ()
    why = one_k_reason(spec)
    if not why and not has_schedule(spec):
        version = show_version(plan(spec, OFFER).version)
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
