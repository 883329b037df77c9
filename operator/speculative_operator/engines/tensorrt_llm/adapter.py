"""TensorRT-LLM behind `engines.base.Engine`: the arguments of `trtllm-serve`, releases 1.0 to 1.4. Chosen by
`registry`; nothing passes a shell.

The server answers under whatever model name a request gives, so the served name is no argument of it. K is none either:
it stands in the file that --config names.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from speculative_operator.domain import names
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.domain.table import KTable
from speculative_operator.engines.base import Engine, EngineContainer
from speculative_operator.engines.shared.container import environment, serving_container, startup_seconds
from speculative_operator.engines.shared.flags import ALL_INTERFACES, above_one, flag_arguments
from speculative_operator.engines.shared.plan import Plan, knobs, plan
from speculative_operator.engines.shared.sources import locate
from speculative_operator.engines.tensorrt_llm import checks, reading
from speculative_operator.engines.tensorrt_llm.capability import CONFIG_FLAG_SINCE, OFFER
from speculative_operator.engines.tensorrt_llm.configuration import FILE, configuration

_SHUTDOWN_SECONDS = 120
"""After SIGTERM uvicorn lets open requests end before the server stops; the pod waits for it no longer than this."""


def container(spec: DeploymentSpec, table: KTable) -> EngineContainer:
    """The container that serves `spec` by `table`. Raises ValueError for a table that rises, too."""
    planned = plan(spec, OFFER)
    return serving_container(
        spec,
        with_speculator=planned.drafts(table) and table.max_k > 0,
        args=(*_arguments(spec, planned), *spec.engine.args),
        command=("trtllm-serve",),
        env=environment(spec, {}),
        startup_seconds=startup_seconds(spec, planned),
        shutdown_seconds=_SHUTDOWN_SECONDS,
        files={FILE: configuration(spec, planned, table.resize(planned.max_batch))},
        metrics_path="/prometheus/metrics",
    )


ENGINE = Engine(
    reading.METRIC_NAMES, checks.refusals, checks.notices, partial(knobs, offer=OFFER), container, reading.read
)


def _arguments(spec: DeploymentSpec, plan: Plan) -> Iterator[str]:
    verifier = spec.verifier
    yield locate(verifier.source, "verifier").model
    yield from ("--host", ALL_INTERFACES, "--port", str(spec.port), "--backend", "pytorch")
    yield from flag_arguments(
        ("--tp_size", verifier.tensor_parallel_size),
        ("--pp_size", above_one(verifier.pipeline_parallel_size)),
        ("--ep_size", verifier.tensor_parallel_size if verifier.expert_parallel else None),
        ("--max_batch_size", plan.max_batch),
        ("--max_seq_len", verifier.max_model_len),
        ("--max_num_tokens", verifier.max_num_batched_tokens),
    )
    flag = "--config" if plan.version >= CONFIG_FLAG_SINCE else "--extra_llm_api_options"
    yield from (flag, f"{names.CONFIG_MOUNT}/{FILE}")
