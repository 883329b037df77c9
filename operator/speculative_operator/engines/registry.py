"""Which adapter serves which `engine.type`, and the one query that feeds them all. Used by reconcile and shell."""

from __future__ import annotations

import math

from speculative_operator.domain.spec import DeploymentSpec, EngineType
from speculative_operator.engines.base import Engine
from speculative_operator.engines.sglang.adapter import SglangEngine
from speculative_operator.engines.tensorrt_llm.adapter import TensorRtLlmEngine
from speculative_operator.engines.tgi.adapter import TgiEngine
from speculative_operator.engines.vllm import telemetry
from speculative_operator.engines.vllm.adapter import VllmEngine

ENGINES: dict[EngineType, Engine] = {
    EngineType.VLLM: VllmEngine(),
    EngineType.SGLANG: SglangEngine(),
    EngineType.TENSORRT_LLM: TensorRtLlmEngine(),
    EngineType.TGI: TgiEngine(),
}


def engine_for(spec: DeploymentSpec) -> Engine:
    """The adapter of `spec.engine.type`."""
    return ENGINES[spec.engine.type]


CELLS = frozenset(telemetry.NAMES) - {telemetry.INFO, telemetry.TABLE_VERSION}
"""Names with a series for each K and batch bucket, or position: a hundred or more of a pod, without which all works."""


def queries(namespace: str, range_seconds: float, *, cells: bool = True) -> str:
    """One PromQL selector for the raw samples of every serving pod in `namespace` over the last `range_seconds`.

    A plain range selector: no rate(), no increase(), which extrapolate. Ask it with an instant query. Without `cells`
    each pod has some forty series at most.
    """
    wanted = sorted({name for engine in ENGINES.values() for name in engine.metric_names if cells or name not in CELLS})
    seconds = max(1, math.ceil(range_seconds))
    return f'{{__name__=~"{"|".join(wanted)}",namespace="{_escaped(namespace)}"}}[{seconds}s]'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
