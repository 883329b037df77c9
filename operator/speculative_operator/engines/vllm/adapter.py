"""The vLLM engine behind the Protocol of `engines.base`. Chosen by `registry`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib import resources

from speculative_operator.domain.knobs import Actuator, KnobSpace
from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.domain.table import KTable
from speculative_operator.engines import images
from speculative_operator.engines.base import EngineContainer, Notice, Refusal
from speculative_operator.engines.matrix.cell import Variant
from speculative_operator.engines.shared.container import weights_seconds
from speculative_operator.engines.shared.sources import located
from speculative_operator.engines.vllm import checks, notices, reading
from speculative_operator.engines.vllm.arguments import SHUTDOWN_SECONDS, arguments, drafts
from speculative_operator.engines.vllm.capability import SHUTDOWN_TIMEOUT_SINCE, passes_at_zero
from speculative_operator.engines.vllm.environment import COMPILED, environment
from speculative_operator.engines.vllm.graphs import capture_sizes, raised_ceiling
from speculative_operator.engines.vllm.plan import Plan, holds_drafts, leaves_out, plan, rests
from speculative_operator.engines.vllm.weights import apart

_START_SECONDS = 900
"""Loading, compiling, profiling; 16 minutes are reported. Too small a budget kills pods that were coming up."""
_START_SECONDS_PER_K = 60
_START_SECONDS_RAISED = 120
"""For the graphs above the engine's own ceiling."""


class VllmEngine:
    """Stateless; one instance serves all deployments."""

    metric_names: tuple[str, ...] = reading.METRIC_NAMES

    def refusals(self, spec: DeploymentSpec) -> tuple[Refusal, ...]:
        image = images.refusal(spec)
        return (*checks.refusals(spec), *((image,) if image is not None else ()))

    def notices(self, spec: DeploymentSpec) -> tuple[Notice, ...]:
        return notices.notices(spec)

    def knobs(self, spec: DeploymentSpec) -> KnobSpace:
        planned = plan(spec)
        facts, speculator = planned.facts, spec.speculator
        if facts is None or speculator is None:
            return KnobSpace(actuator=Actuator.NONE, ks=(0,), max_batch=planned.max_num_seqs, passes_at_zero=0.0)
        sizes = capture_sizes(spec, planned)
        return KnobSpace(
            actuator=planned.actuator,
            ks=planned.ks,
            max_batch=planned.max_num_seqs,
            capture_ceiling_tokens=sizes[-1] if sizes else None,
            capture_sizes=sizes,
            draft_passes_follow_k=planned.actuator is Actuator.RESTART or planned.runner in facts.follows,
            passes_at_zero=0.0
            if planned.actuator is Actuator.RESTART or leaves_out(spec, planned)
            else passes_at_zero(speculator.method, planned.runner, planned.max_k),
            block_drafter=facts.block_drafter or planned.variant is Variant.PARALLEL,
            draft_free=speculator.method.draft_free,
            rests=rests(spec, planned),
            per_request=planned.actuator is Actuator.LIVE and holds_drafts(spec, planned),
        )

    def container(self, spec: DeploymentSpec, table: KTable) -> EngineContainer:
        """Raises ValueError for a spec that `refusals` refuses because of its sources."""
        planned = plan(spec)
        sources = located(spec, with_speculator=drafts(planned, table) and apart(spec))
        live = planned.actuator is Actuator.LIVE
        startup = _startup_seconds(spec, planned)
        verifier = spec.verifier
        return EngineContainer(
            image=images.image_of(spec),
            command=images.command_of(spec),
            args=arguments(spec, planned, table),
            env=environment(spec, planned, startup),
            payload=_payload() if live else {},
            telemetry=live,
            limits=images.limits_of(spec),
            startup_seconds=startup,
            shutdown_seconds=SHUTDOWN_SECONDS if planned.version >= SHUTDOWN_TIMEOUT_SINCE else 0,
            user=images.user_of(spec),
            shared_memory=images.needs_of(spec).shared_memory
            or verifier.tensor_parallel_size * verifier.pipeline_parallel_size * verifier.data_parallel_size > 1,
            compiled=COMPILED,
            pvc_mounts=tuple({source.pvc.claim: source.pvc for source in sources if source.pvc}.values()),
            image_mounts=tuple(source.image for source in sources if source.image),
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


def _startup_seconds(spec: DeploymentSpec, planned: Plan) -> int:
    """Never less than the 600 s that the engine gives itself; more for graphs, a vendor's compiler and the weights, and
    where starts were measured to take long."""
    more = _START_SECONDS_RAISED if raised_ceiling(spec, planned) is not None else 0
    more += images.needs_of(spec).compile_seconds + weights_seconds(spec)
    return max(_START_SECONDS + _START_SECONDS_PER_K * len(planned.ks) + more, spec.engine.startup_seconds)


@cache
def _payload() -> dict[str, str]:
    """The files that run inside the pods: part of this distribution, constant like code. A test holds them to the
    package's own list."""
    folder = resources.files("speculative_operator.payload")
    files = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".py"))
    return {name: folder.joinpath(name).read_text(encoding="utf-8") for name in files if name != "__init__.py"}
