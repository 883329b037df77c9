"""SGLang behind `engines.base.Engine`. Chosen by `registry`."""

from __future__ import annotations

from functools import partial

from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.domain.table import KTable
from speculative_operator.engines.base import Engine, EngineContainer
from speculative_operator.engines.sglang import checks, reading
from speculative_operator.engines.sglang.arguments import FILE, adaptive, arguments
from speculative_operator.engines.sglang.capability import OFFER
from speculative_operator.engines.shared.container import COMPILED, environment, serving_container, startup_seconds
from speculative_operator.engines.shared.plan import knobs, plan

_SHUTDOWN_SECONDS = 120
"""After SIGTERM the engine drains the requests it has; this is the longest that the pod waits for it."""
_ENV = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"}
"""/health would otherwise generate a token for each probe, and wait behind a long prefill."""


def container(spec: DeploymentSpec, table: KTable) -> EngineContainer:
    """The container that serves `spec` by `table`."""
    planned = plan(spec, OFFER)
    active = table.resize(planned.max_batch)
    return serving_container(
        spec,
        with_speculator=planned.drafts(table),
        args=arguments(spec, planned, active),
        command=("python3", "-m", "sglang.launch_server"),
        env=environment(spec, _ENV),
        startup_seconds=startup_seconds(spec, planned),
        shutdown_seconds=_SHUTDOWN_SECONDS,
        compiled=COMPILED,
        files={FILE: adaptive(active)} if planned.actuator is Actuator.TABLE else {},
    )


ENGINE = Engine(
    reading.METRIC_NAMES, checks.refusals, checks.notices, partial(knobs, offer=OFFER), container, reading.read
)
