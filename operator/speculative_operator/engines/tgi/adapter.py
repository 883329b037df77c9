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
from speculative_operator.engines.shared.flags import ALL_INTERFACES, flag_arguments, share
from speculative_operator.engines.shared.plan import Plan, knobs, plan
from speculative_operator.engines.shared.sources import locate
from speculative_operator.engines.tgi import checks
from speculative_operator.engines.tgi.capability import OFFER

_ENV = {"HUGGINGFACE_HUB_CACHE": f"{names.CACHE_MOUNT}/huggingface/hub"}
"""The image sets it to /data, which no volume is mounted at."""
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
    yield from flag_arguments(("--model-id", source.model), ("--revision", source.revision))
    # Left out, the launcher takes the variable HOSTNAME, which in a pod is its name.
    yield from ("--hostname", ALL_INTERFACES, "--port", str(spec.port))
    yield from ("--max-concurrent-requests", str(plan.max_batch), "--max-batch-size", str(plan.max_batch))
    yield from ("--graceful-termination-timeout", str(_DRAIN_SECONDS))


def _verifier(verifier: Verifier) -> Iterator[str]:
    return flag_arguments(
        ("--num-shard", verifier.tensor_parallel_size),
        ("--max-total-tokens", verifier.max_model_len),
        ("--max-batch-prefill-tokens", verifier.max_num_batched_tokens),
        ("--dtype", verifier.dtype),
        ("--quantize", verifier.quantization),
        ("--kv-cache-dtype", verifier.kv_cache_dtype),
        ("--cuda-memory-fraction", share(verifier.gpu_memory_utilization_percent)),
    )
