"""The SGLang engine behind the Protocol of `engines.base`. Chosen by `registry`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from speculative_operator.domain.knobs import Actuator, KnobSpace
from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.domain.table import KTable
from speculative_operator.engines.base import EngineContainer, Notice, Refusal
from speculative_operator.engines.sglang import checks, reading
from speculative_operator.engines.sglang.arguments import COMMAND, arguments
from speculative_operator.engines.sglang.capability import OFFER
from speculative_operator.engines.sglang.schedule import FILE, adaptive
from speculative_operator.engines.shared.container import COMPILED, container
from speculative_operator.engines.shared.plan import knobs, plan

_SHUTDOWN_SECONDS = 120
"""After SIGTERM the engine drains the requests it has; this is the longest that the pod waits for it."""
_ENV = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"}
"""/health would otherwise generate a token for each probe, and wait behind a long prefill."""


class SglangEngine:
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
        in_force = table.resized(planned.max_batch)
        return container(
            spec,
            planned,
            with_speculator=planned.drafts(table),
            args=arguments(spec, planned, in_force),
            command=COMMAND,
            env=_ENV,
            shutdown_seconds=_SHUTDOWN_SECONDS,
            compiled=COMPILED,
            files={FILE: adaptive(in_force)} if planned.actuator is Actuator.TABLE else {},
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
