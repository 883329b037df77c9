"""TGI behind `engines.base.Engine`: the arguments of text-generation-launcher 3.3, and why its pods yield no windows.
Chosen by `registry`; nothing passes a shell.

Its metrics (huggingface/text-generation-inference 3.3.7, backends/v3/src/backend.rs) count accepted drafts
(`tgi_request_skipped_tokens`) and passes, but neither how many tokens were drafted nor what a step takes as a request
sees it. A tuner given windows without drafts would take the pods for ones without a speculator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

from speculative_operator.domain import names
from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, Verifier
from speculative_operator.domain.table import KTable
from speculative_operator.engines.base import Engine, EngineContainer
from speculative_operator.engines.shared.container import environment, serving_container, startup_seconds
from speculative_operator.engines.shared.plan import Plan, knobs, plan
from speculative_operator.engines.shared.sources import locate
from speculative_operator.engines.tgi import checks
from speculative_operator.engines.tgi.capability import OFFER

_ENV = {"HUGGINGFACE_HUB_CACHE": f"{names.CACHE_MOUNT}/huggingface/hub"}
"""The image sets it to /data, which no volume is mounted at."""
_ALL_INTERFACES = "0.0.0.0"  # noqa: S104  (the pod's own network namespace; a NetworkPolicy says who may reach it)
_DRAIN_SECONDS = 90
"""--graceful-termination-timeout, TGI's default, written out because the pod has to wait as long."""
_UNREADABLE = Gap(
    Reason.UNSUPPORTED_BY_ENGINE, "TGI's metrics do not include drafted tokens, so the tuner cannot measure K"
)


def container(spec: DeploymentSpec, table: KTable) -> EngineContainer:
    """The container that serves `spec` with the K of `table`."""
    planned = plan(spec, OFFER)
    return serving_container(
        spec,
        with_speculator=False,
        args=_arguments(spec, planned, table),
        env=environment(spec, _ENV),
        startup_seconds=startup_seconds(spec, planned),
        shutdown_seconds=_DRAIN_SECONDS,
    )


def read(
    series: Sequence[Series], pods: Collection[str], since: Mapping[str, float], now: float, stale_after: float
) -> dict[str, PodWindow | Gap]:
    """A gap for each of `pods`."""
    return dict.fromkeys(pods, _UNREADABLE)


ENGINE = Engine((), checks.refusals, checks.notices, partial(knobs, offer=OFFER), container, read)


def _arguments(spec: DeploymentSpec, plan: Plan, table: KTable) -> tuple[str, ...]:
    drafting = ("--speculate", str(table.max_k)) if plan.drafts(table) else ()
    return (*_serving(spec, plan), *_verifier(spec.verifier), *drafting, *spec.engine.args)


def _serving(spec: DeploymentSpec, plan: Plan) -> Iterator[str]:
    source = locate(spec.verifier.source, "verifier")
    yield from ("--model-id", source.model)
    if source.revision:
        yield from ("--revision", source.revision)
    # Left out, the launcher takes the variable HOSTNAME, which in a pod is its name.
    yield from ("--hostname", _ALL_INTERFACES, "--port", str(spec.port))
    yield from ("--max-concurrent-requests", str(plan.max_batch), "--max-batch-size", str(plan.max_batch))
    yield from ("--graceful-termination-timeout", str(_DRAIN_SECONDS))


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
