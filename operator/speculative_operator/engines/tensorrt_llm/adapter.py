"""TensorRT-LLM behind `engines.base.Engine`: the arguments of `trtllm-serve`, releases 1.0 to 1.4, and its YAML
file, which says what flags cannot. Chosen by `registry`; nothing passes a shell.

The server answers under whatever model name a request gives, so the served name is no argument of it. K is none either:
it stands in the file that --config names.

Never in that file: `acceptance_window` and `acceptance_length_threshold` (also spelt `acceptance_rate_*`), a gate that
turns speculation off for the life of the process; `max_concurrency`, which excludes a schedule; relaxed acceptance,
which is not lossless.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.domain.spec import DeploymentSpec, Method, Speculator, Verifier
from speculative_operator.domain.table import Actuator, KTable
from speculative_operator.engines.base import Engine, EngineContainer
from speculative_operator.engines.shared.arguments import ALL_INTERFACES, above_one, flag_arguments, locate
from speculative_operator.engines.shared.container import environment, serving_container, startup_seconds
from speculative_operator.engines.shared.plan import Plan, knobs, plan
from speculative_operator.engines.tensorrt_llm import capability, reading
from speculative_operator.engines.tensorrt_llm.capability import (
    CONFIG_FLAG_SINCE,
    DECODING_TYPES,
    OFFER,
    OLD_EAGLE3,
    PARALLEL,
    SCHEDULE_SINCE,
)

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
    capability.refusals,
    capability.notices,
    partial(knobs, offer=OFFER),
    container,
    reading.read,
    needed=reading.read.need.required,
)


def _arguments(spec: DeploymentSpec, plan: Plan) -> Iterator[str]:
    verifier = spec.verifier
    yield locate(verifier.source, "verifier").model
    yield from ("--host", ALL_INTERFACES, "--port", str(spec.port), "--backend", "pytorch")
    yield from flag_arguments(
        ("--tp_size", verifier.tensor_parallel_size),
        ("--pp_size", above_one(verifier.pipeline_parallel_size)),
        ("--ep_size", verifier.tensor_parallel_size if verifier.expert_parallel else None),
        ("--max_batch_size", plan.max_batch),
        ("--max_seq_len", verifier.max_model_len),
        ("--max_num_tokens", verifier.max_num_batched_tokens),
    )
    flag = "--config" if plan.version >= CONFIG_FLAG_SINCE else "--extra_llm_api_options"
    yield from (flag, f"{names.CONFIG_MOUNT}/{FILE}")
