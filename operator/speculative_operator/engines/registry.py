"""Which adapter serves which `engine.type`, and the one query that feeds them all. Used by reconcile and shell."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from speculative_operator.domain.promql import one_of, quote
from speculative_operator.domain.spec import DeploymentSpec, EngineType
from speculative_operator.engines.base import Engine
from speculative_operator.engines.samples import describe_missing
from speculative_operator.engines.sglang import adapter as sglang
from speculative_operator.engines.shared.reading import TARGET_LABELS
from speculative_operator.engines.tensorrt_llm import adapter as tensorrt_llm
from speculative_operator.engines.vllm import adapter as vllm
from speculative_operator.engines.vllm import pieces, telemetry

ENGINES: dict[EngineType, Engine] = {
    EngineType.VLLM: vllm.ENGINE,
    EngineType.SGLANG: sglang.ENGINE,
    EngineType.TENSORRT_LLM: tensorrt_llm.ENGINE,
}


def engine_for(spec: DeploymentSpec) -> Engine:
    """The adapter of `spec.engine.type`."""
    return ENGINES[spec.engine.type]


def missing(found: Collection[str]) -> str:
    """What an engine needs and is not among the names `found` of series of its pods; empty where nothing is missing."""
    lacking = (
        describe_missing(name)
        for engine in ENGINES.values()
        if not set(found).isdisjoint(engine.metric_names)
        for name in engine.needed
        if name not in found
    )
    return next(lacking, "")


NAMES = frozenset(name for engine in ENGINES.values() for name in engine.metric_names)
"""Series that any reader looks at."""
_BUCKETS = {name for name in NAMES if name.endswith("_bucket")}
CELLS = (frozenset(telemetry.NAMES) - {pieces.INFO, telemetry.TABLE_VERSION}) | _BUCKETS
"""Names with a series for each K and batch bucket, position, tried K or bucket of latency: a hundred or more of a pod,
without which all works."""


LABELS = TARGET_LABELS | {
    *("pod", "engine", "position", "source", "kv_cache_size_tokens", "num_gpu_blocks", "block_size"),
    *("k", "batch", "live", "engine_version"),
    *(*pieces.TRIED_LABELS, pieces.SIDE),
    *("le", "is_streaming"),
    *("mode", "pp_rank", "token_position"),
}
"""Labels that any reader looks at: vLLM's, its payload's, SGLang's and TensorRT-LLM's."""


def query(
    namespace: str,
    pods: Mapping[str, Sequence[str]],
    range_seconds: float,
    *,
    cells: bool = True,
    address_label: str = "",
    matchers: str = "",
    labels: tuple[str, str] | None = ("namespace", "pod"),
) -> str:
    """One PromQL selector for the raw samples of `pods` (name -> IP addresses) over the last `range_seconds`.

    A plain range selector: no rate(), no increase(), which extrapolate. Ask it with an instant query. Without `cells`
    each pod has some forty series at most. With `address_label` only targets at the pods' addresses are asked for;
    `matchers` are added as they stand; `labels` are the names of the labels for namespace and pod;
    None asks by addresses alone.
    """
    wanted = sorted(name for name in NAMES if cells or name not in CELLS)
    seconds = max(1, math.ceil(range_seconds))
    parts = [f'__name__=~"{"|".join(wanted)}"']
    if labels is not None:
        parts += [f'{labels[0]}="{quote(namespace)}"', f'{labels[1]}=~"{quote(one_of(pods))}"']
    if address_label:
        hosts = [f"[{ip}]" if ":" in ip else ip for own in pods.values() for ip in own]
        bare = [ip for own in pods.values() for ip in own if ":" in ip]
        parts.append(f'{address_label}=~"({quote(one_of((*hosts, *bare)))})(:[0-9]+)?"')
    return f"{{{','.join((*parts, *filter(None, (matchers,))))}}}[{seconds}s]"
