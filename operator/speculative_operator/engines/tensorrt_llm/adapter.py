"""The TensorRT-LLM engine behind the Protocol of `engines.base`. Chosen by `registry`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from speculative_operator.domain.knobs import KnobSpace
from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.domain.table import KTable
from speculative_operator.engines.base import EngineContainer, Notice, Refusal
from speculative_operator.engines.shared.container import container
from speculative_operator.engines.shared.plan import knobs, plan
from speculative_operator.engines.tensorrt_llm import checks, reading
from speculative_operator.engines.tensorrt_llm.arguments import COMMAND, arguments
from speculative_operator.engines.tensorrt_llm.capability import OFFER
from speculative_operator.engines.tensorrt_llm.configuration import FILE, configuration

_SHUTDOWN_SECONDS = 120
"""After SIGTERM uvicorn lets open requests end before the server stops; the pod waits for it no longer than this."""


class TensorRtLlmEngine:
    """Stateless; one instance serves all deployments."""

    metric_names: tuple[str, ...] = reading.METRIC_NAMES

    def refusals(self, spec: DeploymentSpec) -> tuple[Refusal, ...]:
        return checks.refusals(spec)

    def notices(self, spec: DeploymentSpec) -> tuple[Notice, ...]:
        return checks.notices(spec)

    def knobs(self, spec: DeploymentSpec) -> KnobSpace:
        return knobs(spec, OFFER)

    def container(self, spec: DeploymentSpec, table: KTable) -> EngineContainer:
        """Raises ValueError for a spec that `refusals` refuses because of its sources, accelerators or schedule."""
        planned = plan(spec, OFFER)
        return container(
            spec,
            planned,
            with_speculator=planned.drafts(table) and table.max_k > 0,
            args=arguments(spec, planned),
            command=COMMAND,
            env={},
            shutdown_seconds=_SHUTDOWN_SECONDS,
            files={FILE: configuration(spec, planned, table.resized(planned.max_batch))},
            metrics_path="/prometheus/metrics",
        )

    def read(
        self,
        series: Sequence[Series],
        pods: Collection[str],
        since: Mapping[str, float],
        now: float,
        stale_after: float,
    ) -> dict[str, PodWindow | Gap]:
        return reading.read(series, pods, since, now, stale_after)
