"""Engines that the API names and this release does not run: every spec is refused, with the remedy.

Chosen by `registry`. Nothing is ever rendered or read for them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from speculative_operator.domain.knobs import Actuator, KnobSpace
from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.domain.table import KTable
from speculative_operator.engines.base import EngineContainer, Notice, Refusal


class UnsupportedEngine:
    """Refuses all."""

    metric_names: tuple[str, ...] = ()

    def refusals(self, spec: DeploymentSpec) -> tuple[Refusal, ...]:
        return (
            Refusal(
                "spec.engine.type",
                Reason.UNSUPPORTED_BY_ENGINE,
                f"engine.type {spec.engine.type} is not available in this release; set engine.type: vLLM",
            ),
        )

    def notices(self, spec: DeploymentSpec) -> tuple[Notice, ...]:
        return ()

    def knobs(self, spec: DeploymentSpec) -> KnobSpace:
        return KnobSpace(actuator=Actuator.NONE, ks=(0,), max_batch=spec.verifier.max_num_seqs or 1)

    def container(self, spec: DeploymentSpec, table: KTable) -> EngineContainer:
        """Raises ValueError: a refused spec has no container."""
        raise ValueError(f"engine.type {spec.engine.type} cannot serve {table}: look at refusals() first")

    def read(
        self,
        series: Sequence[Series],
        pods: Collection[str],
        since: Mapping[str, float],
        now: float,
        stale_after: float,
    ) -> dict[str, PodWindow | Gap]:
        message = "this release reads no metrics of this engine"
        return {pod: Gap(Reason.UNSUPPORTED_BY_ENGINE, message) for pod in pods}
