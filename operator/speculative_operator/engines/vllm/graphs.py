"""For which numbers of tokens per step vLLM captures CUDA graphs.

A step is padded to the next of them; above the largest it runs eagerly, several times slower. Asked by `adapter` for
the knob space.
"""

from __future__ import annotations

from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.engines.vllm.plan import Plan
from speculative_operator.engines.vllm.user_arguments import flag_of

_NVIDIA = "nvidia.com/"
_CEILING = 512
_CEILING_BLACKWELL = 1024
_COARSE_FROM = 256
"""Sizes are 8 tokens apart below, 16 from there on."""
_DIGITS = 9
_BLACKWELL = ("b100", "b200", "b300")
"""Data-center Blackwell (compute capability 10.x), as its product names and node labels spell it."""


def capture_sizes(spec: DeploymentSpec, plan: Plan) -> tuple[int, ...]:
    """Sizes in tokens, ascending, that vLLM 0.32 captures for `spec`.

    1, 2, 4, every 8th below 256 and every 16th from there, up to min(max_num_seqs * (K + 1) * 2, 512), 1024 on
    data-center Blackwell, K the largest of the process. A user's `--max-cudagraph-capture-size` takes the place of that
    limit, `--cudagraph-capture-sizes` that of the sizes. Empty: no graphs (`--enforce-eager`, other vendors).
    """
    given = _given(spec.engine.args)
    if "--enforce-eager" in given or not spec.accelerator.resource.startswith(_NVIDIA):
        return ()
    if "--cudagraph-capture-sizes" in given:
        return tuple(sorted({size for size in _numbers(given["--cudagraph-capture-sizes"]) if size > 0}))
    if "--max-cudagraph-capture-size" in given:
        return _up_to(max(_numbers(given["--max-cudagraph-capture-size"]), default=0))
    blackwell = any(name in spec.accelerator.product.lower() for name in _BLACKWELL)
    return _up_to(min(plan.max_num_seqs * (plan.max_k + 1) * 2, _CEILING_BLACKWELL if blackwell else _CEILING))


def _up_to(limit: int) -> tuple[int, ...]:
    """The engine's own sizes."""
    fine, coarse = range(8, _COARSE_FROM, 8), range(_COARSE_FROM, limit + 1, 16)
    return tuple(size for size in (1, 2, 4, *fine, *coarse) if size <= limit)


def _numbers(values: list[str]) -> list[int]:
    """Whole numbers among `values`, which may be separated by commas or stand in a list's brackets."""
    words = " ".join(values).replace(",", " ").replace("[", " ").replace("]", " ").split()
    return [int(word) for word in words if word.isdecimal() and len(word) < _DIGITS]


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
