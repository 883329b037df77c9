"""The arguments of text-generation-launcher 3.3. Called by `adapter`; nothing passes a shell."""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain import names
from speculative_operator.domain.spec import DeploymentSpec, Verifier
from speculative_operator.domain.table import KTable
from speculative_operator.engines.shared.plan import Plan
from speculative_operator.engines.shared.sources import locate

_ALL_INTERFACES = "0.0.0.0"  # noqa: S104  (the pod's own network namespace; a NetworkPolicy says who may reach it)
DRAIN_SECONDS = 90
"""--graceful-termination-timeout, TGI's default, written out because the pod has to wait as long."""


def arguments(spec: DeploymentSpec, plan: Plan, table: KTable) -> tuple[str, ...]:
    """The whole list for `spec` with `table` in force: the operator's, then the user's."""
    drafting = ("--speculate", str(table.max_k)) if plan.drafts(table) else ()
    return (*_serving(spec, plan), *_verifier(spec.verifier), *drafting, *spec.engine.args)


def _serving(spec: DeploymentSpec, plan: Plan) -> Iterator[str]:
    source = locate(spec.verifier.source, "verifier")
    yield from ("--model-id", source.model)
    if source.revision:
        yield from ("--revision", source.revision)
    # Left out, the launcher takes the variable HOSTNAME, which in a pod is its name.
    yield from ("--hostname", _ALL_INTERFACES, "--port", str(names.SERVING_PORT))
    yield from ("--max-concurrent-requests", str(plan.max_batch), "--max-batch-size", str(plan.max_batch))
    yield from ("--graceful-termination-timeout", str(DRAIN_SECONDS))


def _verifier(verifier: Verifier) -> Iterator[str]:
    yield from ("--num-shard", str(verifier.tensor_parallel_size))
    if verifier.max_model_len is not None:
        yield from ("--max-total-tokens", str(verifier.max_model_len))
    if verifier.max_num_batched_tokens is not None:
        yield from ("--max-batch-prefill-tokens", str(verifier.max_num_batched_tokens))
    if verifier.dtype:
        yield from ("--dtype", verifier.dtype)
    if verifier.quantization:
        yield from ("--quantize", verifier.quantization)
    if verifier.kv_cache_dtype:
        yield from ("--kv-cache-dtype", verifier.kv_cache_dtype)
    if verifier.gpu_memory_utilization_percent is not None:
        yield from ("--cuda-memory-fraction", f"{verifier.gpu_memory_utilization_percent / 100:g}")
