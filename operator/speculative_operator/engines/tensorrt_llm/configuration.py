"""The YAML file of trtllm-serve: what its flags cannot say. Called by `adapter`.

Never in it: `acceptance_window` and `acceptance_length_threshold` (also spelt
`acceptance_rate_*`), a gate that turns speculation off for the life of the process; `max_concurrency`, which excludes a
schedule; relaxed acceptance, which is not lossless.
"""

from __future__ import annotations

import json
from typing import Any

from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.spec import DeploymentSpec, Method, Speculator, Verifier
from speculative_operator.domain.table import KTable
from speculative_operator.engines.shared.plan import Plan
from speculative_operator.engines.shared.sources import locate
from speculative_operator.engines.tensorrt_llm.capability import (
    DECODING_TYPES,
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
