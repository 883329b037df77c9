"""Which adapter serves which `engine.type`, and the one query that feeds them all. Used by reconcile and shell."""

from __future__ import annotations

import math

from speculative_operator.domain.spec import DeploymentSpec, EngineType
from speculative_operator.engines.base import Engine
from speculative_operator.engines.unsupported import UnsupportedEngine
from speculative_operator.engines.vllm.adapter import VllmEngine

_VLLM = VllmEngine()
_UNSUPPORTED = UnsupportedEngine()

ENGINES: dict[EngineType, Engine] = {
    EngineType.VLLM: _VLLM,
    EngineType.SGLANG: _UNSUPPORTED,
    EngineType.TENSORRT_LLM: _UNSUPPORTED,
    EngineType.TGI: _UNSUPPORTED,
}


def engine_for(spec: DeploymentSpec) -> Engine:
    """The adapter of `spec.engine.type`; for an engine that this release does not run, one that refuses."""
    return ENGINES[spec.engine.type]


def queries(namespace: str, range_seconds: float) -> str:
    """One PromQL selector for the raw samples of every serving pod in `namespace` over the last `range_seconds`.

    A plain range selector: no rate(), no increase(), which extrapolate. Ask it with an instant query.
    """
    wanted = sorted({name for engine in ENGINES.values() for name in engine.metric_names})
    seconds = max(1, math.ceil(range_seconds))
    return f'{{__name__=~"{"|".join(wanted)}",namespace="{_escaped(namespace)}"}}[{seconds}s]'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
