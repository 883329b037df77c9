"""TensorRT-LLM behind `engines.base.Engine`: what it would reject or silently do otherwise, the arguments of
`trtllm-serve`, releases 1.0 to 1.4, and its YAML file, which says what flags cannot. Chosen by `registry`; nothing
passes a shell.

The server answers under whatever model name a request gives, so the served name is no argument of it. K is none either:
it stands in the file that --config names.

Never in that file: `acceptance_window` and `acceptance_length_threshold` (also spelt `acceptance_rate_*`), a gate that
turns speculation off for the life of the process; `max_concurrency`, which excludes a schedule; relaxed acceptance,
which is not lossless.

`draft_len_schedule` had two meanings. In 1.2 its keys were lower bounds (NVIDIA/TensorRT-LLM#8194) and the verifier was
still run over the longest draft, so that a smaller K saved nothing there: such releases keep one K. Since #10860 and
#12262 (both merged by spring 2026, into 1.3) the keys are inclusive upper bounds and verification shrinks too; release
candidate 15 of 1.3.0 is the first that was seen with it (#15022). In earlier candidates the same file may mean either,
so they keep one K as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.domain.spec import DeploymentSpec, EngineType, Method, Mode, Speculator, Verifier
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.engines.base import Engine, EngineContainer, Notice, Refusal
from speculative_operator.engines.matrix.rows import Version, show_version
from speculative_operator.engines.shared.arguments import (
    ALL_INTERFACES,
    locate,
    verifier_arguments,
)
from speculative_operator.engines.shared.checks import refusals_of, refuse_field
from speculative_operator.engines.shared.container import environment, serving_container, startup_seconds
from speculative_operator.engines.shared.flags import ALWAYS, Flags, of_verifier
from speculative_operator.engines.shared.plan import Offer, Plan, knobs, plan
from speculative_operator.engines.tensorrt_llm import reading

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


OFFER = Offer(
    engine=EngineType.TENSORRT_LLM,
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

VERIFIER_FLAGS = {
    "--tp_size": "tensorParallelSize", "--pp_size": "pipelineParallelSize", "--ep_size": "expertParallel",
    "--max_batch_size": "maxNumSeqs", "--max_seq_len": "maxModelLen", "--max_num_tokens": "maxNumBatchedTokens",
}  # fmt: skip
FLAGS = Flags(
    EngineType.TENSORRT_LLM,
    owned={
        **of_verifier({
            **VERIFIER_FLAGS, "--kv_cache_free_gpu_memory_fraction": "gpuMemoryUtilizationPercent",
            "--kv_cache_dtype": "kvCacheDtype", "--revision": "revision",
        }),
        **dict.fromkeys(("--host", "--port"), ALWAYS),
        "--backend": "only the pytorch backend speculates as the operator knows it",
        "--config": _FILE,
        "--max_beam_width": "speculation and beam search exclude each other",
    },
    more_aliases={
        "--tensor_parallel_size": "--tp_size", "--pipeline_parallel_size": "--pp_size",
        "--moe_expert_parallel_size": "--ep_size", "--extra_llm_api_options": "--config",
        "--free_gpu_memory_fraction": "--kv_cache_free_gpu_memory_fraction",
    },
)  # fmt: skip


def refusals(spec: DeploymentSpec) -> tuple[Refusal, ...]:
    """Why TensorRT-LLM cannot serve `spec`; empty when it can."""
    return refusals_of(spec, OFFER, FLAGS, _verifier_refusals, _speculator_refusals)


def notices(spec: DeploymentSpec) -> tuple[Notice, ...]:
    """Notices where the release cannot be tuned although the mode asks for it."""
    if spec.speculator is None or not spec.speculates or spec.speculation.mode not in (Mode.AUTO, Mode.RECOMMEND):
        return ()
    why, version = one_k_reason(spec), plan(spec, OFFER).version
    if not why and version < SCHEDULE_SINCE:
        why = (
            f"TensorRT-LLM {show_version(version)} keeps one K for the life of a pod and exports too little to measure "
            f"it; use 1.3.0rc{FIRST_KNOWN_CANDIDATE} or newer"
        )
    return (Notice(Reason.UNSUPPORTED_BY_ENGINE, why),) if why else ()


def _verifier_refusals(verifier: Verifier) -> Iterator[Refusal]:
    if verifier.data_parallel_size > 1:
        why = "TensorRT-LLM has no replicas within a server; set 1 and raise spec.replicas"
        yield refuse_field("verifier.dataParallelSize", why, verifier.data_parallel_size)
    if verifier.quantization:
        why = f"{_OF_CHECKPOINT} and name a quantized checkpoint in verifier.model"
        yield refuse_field("verifier.quantization", why, verifier.quantization)


def _speculator_refusals(spec: DeploymentSpec, speculator: Speculator) -> Iterator[Refusal]:
    if speculator.quantization:
        yield refuse_field("speculator.quantization", _OF_CHECKPOINT, speculator.quantization)
    if speculator.source is not None and speculator.source.revision:
        why = "TensorRT-LLM loads the newest from the hub; use pvc:// or oci:// for another, or remove it"
        yield refuse_field("speculator.revision", why, speculator.source.revision)
    if speculator.prompt_lookup_min is not None:
        why = "TensorRT-LLM has a longest run only; set promptLookup.max instead"
        yield refuse_field("speculator.promptLookup.min", why)


FILE = "engine.yaml"


def configuration(spec: DeploymentSpec, plan: Plan, table: KTable) -> str:
    """Text of the file for `spec` with `table` active."""
    # The metrics of requests and of iterations are off unless asked for.
    content: dict[str, Any] = {"return_perf_metrics": True, "enable_iter_perf_stats": True, **_verifier(spec.verifier)}
    if spec.speculator is not None and plan.drafts(table) and table.max_k > 0:
        content["speculative_config"] = speculative_config(spec.speculator, plan, table)
    return "".join(f"{key}: {_flow(value)}\n" for key, value in content.items())


def _flow(value: Any) -> str:
    """`value` as JSON, except that whole numbers stay keys of a schedule, as YAML allows and the engine expects."""
    if not isinstance(value, dict):
        return json.dumps(value)
    entries = (f"{key if isinstance(key, int) else json.dumps(key)}: {_flow(inner)}" for key, inner in value.items())
    return "{" + ", ".join(entries) + "}"


def _verifier(verifier: Verifier) -> dict[str, Any]:
    source = locate(verifier.source, "verifier")
    content: dict[str, Any] = {"revision": source.revision} if source.revision else {}
    if verifier.dtype:
        content["dtype"] = verifier.dtype
    cache: dict[str, Any] = {"dtype": verifier.kv_cache_dtype} if verifier.kv_cache_dtype else {}
    if verifier.gpu_memory_utilization_percent is not None:
        # The engine's share is of the memory left after the weights; that cannot exceed the share of all.
        cache["free_gpu_memory_fraction"] = verifier.gpu_memory_utilization_percent / 100
    if cache:
        content["kv_cache_config"] = cache
    if verifier.lora is not None:
        content["lora_config"] = {"max_lora_rank": verifier.lora.max_rank, "max_loras": verifier.lora.max_adapters}
    return content


def speculative_config(speculator: Speculator, plan: Plan, table: KTable) -> dict[str, Any]:
    """The value of `speculative_config`; K is `max_draft_len`, for MTP spelt `num_nextn_predict_layers`."""
    method, k = speculator.method, table.max_k
    content: dict[str, Any] = {"decoding_type": decoding_type(speculator, plan)}
    # The older name of the two: newer releases take it for max_draft_len, older ones know no other for MTP.
    content["num_nextn_predict_layers" if method is Method.MTP else "max_draft_len"] = k
    if speculator.source is not None:
        content["speculative_model_dir"] = locate(speculator.source, "speculator").model
    if method is Method.NGRAM and speculator.prompt_lookup_max is not None:
        content["max_matching_ngram_size"] = speculator.prompt_lookup_max
    if plan.actuator is Actuator.TABLE:
        content["draft_len_schedule"] = schedule(table)
    return content


def decoding_type(speculator: Speculator, plan: Plan) -> str:
    if speculator.parallel_drafting:
        return PARALLEL
    if speculator.method is Method.EAGLE3 and plan.version < SCHEDULE_SINCE:
        return OLD_EAGLE3
    return DECODING_TYPES[speculator.method]


def schedule(table: KTable) -> dict[int, int]:
    """`table` with inclusive upper bounds as keys: {4: 4, 8: 2} is K = 4 up to 4 requests, 2 up to 8, 0 above.

    K is 1 at least, and the last key is the largest batch, so that no step ever goes without drafts. The engine wants
    the smallest key at its largest K, which a falling table has. Raises ValueError for a table that rises.
    """
    ks = [max(1, band.k) for band in table]
    if ks != sorted(ks, reverse=True):
        raise ValueError(f"table {table} rises with load, which draft_len_schedule cannot")
    return {band.last: k for band, k in zip(table, ks, strict=True)}


_SHUTDOWN_SECONDS = 120
"""After SIGTERM uvicorn lets open requests end before the server stops; the pod waits for it no longer than this."""


def container(spec: ResolvedSpec, table: KTable) -> EngineContainer:
    """The container that serves `spec` by `table`. Raises ValueError for a table that rises, too."""
    planned = plan(spec, OFFER)
    return serving_container(
        spec,
        with_speculator=planned.drafts(table) and table.max_k > 0,
        args=(*_arguments(spec, planned), *spec.engine.args),
        command=("trtllm-serve",),
        env=environment(spec, {}),
        startup_seconds=startup_seconds(spec, planned),
        shutdown_seconds=_SHUTDOWN_SECONDS,
        files={FILE: configuration(spec, planned, table.resize(planned.max_batch))},
        metrics_path="/prometheus/metrics",
    )


ENGINE = Engine(
    reading.read.names,
    refusals,
    notices,
    partial(knobs, offer=OFFER),
    container,
    reading.read,
    needed=reading.read.need.required,
)


def _arguments(spec: DeploymentSpec, plan: Plan) -> Iterator[str]:
    verifier = spec.verifier
    yield locate(verifier.source, "verifier").model
    yield from ("--host", ALL_INTERFACES, "--port", str(spec.port), "--backend", "pytorch")
    yield from verifier_arguments(verifier, VERIFIER_FLAGS, plan.max_batch, verifier.tensor_parallel_size)
    flag = "--config" if plan.version >= CONFIG_FLAG_SINCE else "--extra_llm_api_options"
    yield from (flag, f"{names.CONFIG_MOUNT}/{FILE}")
