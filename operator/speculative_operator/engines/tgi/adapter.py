"""The TGI engine behind the Protocol of `engines.base`. Chosen by `registry`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from speculative_operator.domain import names
from speculative_operator.domain.knobs import KnobSpace
from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.domain.table import KTable
from speculative_operator.engines.base import EngineContainer, Notice, Refusal
from speculative_operator.engines.shared.container import container
from speculative_operator.engines.shared.plan import knobs, plan
from speculative_operator.engines.tgi import checks, reading
from speculative_operator.engines.tgi.arguments import DRAIN_SECONDS, arguments
from speculative_operator.engines.tgi.capability import OFFER

_ENV = {"HUGGINGFACE_HUB_CACHE": f"{names.CACHE_MOUNT}/huggingface/hub"}
"""The image sets it to /data, which no volume is mounted at."""


class TgiEngine:
    """Stateless; one instance serves all deployments."""

    metric_names: tuple[str, ...] = reading.METRIC_NAMES

    def refusals(self, spec: DeploymentSpec) -> tuple[Refusal, ...]:
        return checks.refusals(spec)

    def notices(self, spec: DeploymentSpec) -> tuple[Notice, ...]:
        return checks.notices(spec)

    def knobs(self, spec: DeploymentSpec) -> KnobSpace:
        return knobs(spec, OFFER)

    def container(self, spec: DeploymentSpec, table: KTable) -> EngineContainer:
        """Raises ValueError for a spec that `refusals` refuses because of its sources or accelerators."""
        planned = plan(spec, OFFER)
        return container(
            spec,
            planned,
            with_speculator=False,
            args=arguments(spec, planned, table),
            command=(),
            env=_ENV,
            shutdown_seconds=DRAIN_SECONDS,
        )

    def read(
        self,
        series: Sequence[Series],
        pods: Collection[str],
        since: Mapping[str, float],
        now: float,
        stale_after: float,
    ) -> dict[str, PodWindow | Gap]:
        return reading.read(pods)
