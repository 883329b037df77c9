"""Up to how many tokens per step vLLM captures CUDA graphs; above it a step runs eagerly, several times slower.

Asked by `adapter` for the knob space.
"""

from __future__ import annotations

from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.engines.vllm.plan import Plan
from speculative_operator.engines.vllm.user_arguments import flag_of

_NVIDIA = "nvidia.com/"
_CEILING = 512
_CEILING_BLACKWELL = 1024
_BLACKWELL = ("b100", "b200", "b300")
"""Data-center Blackwell (compute capability 10.x), as its product names and node labels spell it."""


def capture_ceiling(spec: DeploymentSpec, plan: Plan) -> int | None:
    """vLLM 0.32: min(max_num_seqs * (K + 1) * 2, 512), 1024 on data-center Blackwell, K the largest of the process.

    A user's `--max-cudagraph-capture-size` or `--cudagraph-capture-sizes` takes its place. None: no graphs
    (`--enforce-eager`, other vendors) or not known.
    """
    given = _given(spec.engine.args)
    if "--enforce-eager" in given or not spec.accelerator.resource.startswith(_NVIDIA):
        return None
    for flag in ("--max-cudagraph-capture-size", "--cudagraph-capture-sizes"):
        if flag in given:
            sizes = [int(value) for value in given[flag] if value.isdecimal()]
            return max(sizes, default=0) or None
    blackwell = any(name in spec.accelerator.product.lower() for name in _BLACKWELL)
    return min(plan.max_num_seqs * (plan.max_k + 1) * 2, _CEILING_BLACKWELL if blackwell else _CEILING)


def _given(args: tuple[str, ...]) -> dict[str, list[str]]:
    """Flag -> its values as written."""
    found: dict[str, list[str]] = {}
    values: list[str] = []
    for argument in args:
        flag = flag_of(argument)
        if not flag:
            values.append(argument)
            continue
        _, equals, value = argument.partition("=")
        values = found.setdefault(flag, [])
        values.extend([value] if equals else [])
    return found
