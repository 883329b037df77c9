"""Numbers of tokens per step for which vLLM captures CUDA graphs, and the ceiling that the operator sets.

vLLM pads a step to the next number; above the largest it runs eagerly, several times slower. Asked by `adapter` for
the knob space and by `arguments`. Rules of vLLM 0.32: config/vllm.py (`_set_cudagraph_sizes`), config/compilation.py
(`adjust_cudagraph_sizes_for_spec_decode`); tests/vllm holds them to that code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.domain.vendor import Vendor
from speculative_operator.engines.matrix.version import Version
from speculative_operator.engines.vllm.batching import budget
from speculative_operator.engines.vllm.forms import Runner
from speculative_operator.engines.vllm.plan import Plan, boot_schedule
from speculative_operator.engines.vllm.user_arguments import FLAGS
from speculative_operator.physics.catalog import find_accelerator

_CAPTURING = (Vendor.NVIDIA, Vendor.AMD)
"""Vendors whose graphs vLLM captures by these rules; on others it captures none, or by rules of a plug-in."""
_CEILING = 512
_CEILING_BLACKWELL = 1024
_COARSE_FROM = 256
"""Sizes are 8 tokens apart below, 16 from there on."""
_COARSE = 16
_DIGITS = 9
_BLACKWELL = ("b100", "b200", "b300")
"""Data-center Blackwell (compute capability 10.x), as its product names and node labels spell it."""
_TIERS_SINCE: Version = (0, 31, 0)
"""First release that adds the sizes of decoding steps for each K of its schedule."""

RAISED = 1024
"""Bound of a raised ceiling: the largest that vLLM takes of its own accord on any accelerator."""
_RAISE_SINCE: Version = (0, 32, 0)
_RAISE_MEMORY = 70 * 2**30
"""Bytes of an accelerator from which on the memory of more graphs is no matter; vLLM's own bound for larger batches."""
_SHAPING = (
    "--enforce-eager", "--cudagraph-capture-sizes", "--max-cudagraph-capture-size", "--compilation-config", "-cc",
    "--optimization-level", "--performance-mode",
)  # fmt: skip
"""Flags by which a user decides about graphs; the operator then adds nothing."""


def capture_sizes(spec: DeploymentSpec, plan: Plan) -> tuple[int, ...]:
    """Sizes in tokens, ascending, that vLLM captures for `spec`; empty where it captures none.

    1, 2, 4, every 8th below 256 and every 16th from there, up to min(max_num_seqs * (K + 1) * 2, 512), 1024 on
    data-center Blackwell, K the largest of the process; and the tokens of decoding steps for each K of the schedule. A
    raised or given ceiling (`--max-cudagraph-capture-size`) takes the place of that limit and leaves the decoding steps
    out, `--cudagraph-capture-sizes` takes the place of all. With Table and Restart, where K comes with a rollout, the
    sizes are those of a process that may use every K.
    """
    flags = _flags(spec.engine.args)
    if flags.eager or flags.ceiling == 0 or spec.accelerator.vendor not in _CAPTURING:
        return ()
    most = budget(spec, plan)
    if flags.sizes is not None:
        sizes = {size for size in flags.sizes if 0 < size <= most}
    else:
        sizes = set(_own(spec, plan, flags.ceiling or raised_ceiling(spec, plan), most))
    # The V1 runner rounds up where decoding steps have graphs of their own, which a schedule takes from it.
    whole = plan.runner is Runner.V1 and plan.speculates and not plan.has_schedule
    return tuple(sorted(_multiples(sizes, plan.max_k + 1) if whole else sizes))


def raised_ceiling(spec: DeploymentSpec, plan: Plan) -> int | None:
    """Value of `--max-cudagraph-capture-size`; None leaves the engine's.

    Given where a full batch with the largest K exceeds the engine's own ceiling, up to 1024 tokens, on whole NVIDIA
    accelerators known to hold 70 GiB or more, from 0.32 on, unless the user's flags decide about graphs. The price is
    30 to 50 % more graphs than at 512, hence start-up time and memory (docs/engines.md has the figures).
    """
    if not plan.speculates or plan.version < _RAISE_SINCE or not _roomy(spec) or _decides_graphs(spec.engine.args):
        return None
    wanted = min(plan.max_batch * (plan.max_k + 1), RAISED, budget(spec, plan)) // _COARSE * _COARSE
    return wanted if wanted > _limit(spec) else None


def _roomy(spec: DeploymentSpec) -> bool:
    asked = spec.accelerator
    found = find_accelerator(asked.product) if asked.product else None
    return asked.resource == "nvidia.com/gpu" and found is not None and found.memory_bytes >= _RAISE_MEMORY


def _limit(spec: DeploymentSpec) -> int:
    blackwell = any(name in spec.accelerator.product.lower() for name in _BLACKWELL)
    return _CEILING_BLACKWELL if blackwell else _CEILING


def _own(spec: DeploymentSpec, plan: Plan, ceiling: int | None, most: int) -> Iterator[int]:
    """Sizes in tokens that the engine chooses by itself, in any order."""
    k = plan.max_k if plan.speculates else 0
    limit = _limit(spec)
    largest = ceiling or min(plan.max_batch * (k + 1) * 2, limit)
    yield from _grid(min(largest, most))
    if most <= largest:
        yield most
    if ceiling is None and plan.version >= _TIERS_SINCE:
        yield from (size for size in _decoding_steps(plan, k, limit) if size <= min(largest, most))


def _decoding_steps(plan: Plan, k: int, limit: int) -> Iterator[int]:
    """Tokens of decoding steps: requests on the same grid, times K + 1, up to the widest batch with that K."""
    if k == 0:
        yield plan.max_batch
        return
    widest = {k: plan.max_batch}
    if plan.has_schedule:
        widest = {row[2]: row[1] for row in boot_schedule(plan.ks, plan.max_batch)}
    for each, requests in widest.items():
        most = min(requests, limit)
        yield from (count * (each + 1) for count in (*_grid(most), most))


def _grid(limit: int) -> list[int]:
    """Batch sizes for which vLLM captures CUDA graphs by default, up to `limit`."""
    fine, coarse = range(8, _COARSE_FROM, 8), range(_COARSE_FROM, limit + 1, _COARSE)
    return [size for size in (1, 2, 4, *fine, *coarse) if size <= limit]


def _multiples(sizes: set[int], query: int) -> set[int]:
    """Sizes rounded up to multiples of `query` tokens, as far as the largest allows."""
    largest = max(sizes, default=0)
    rounded = {-(-size // query) * query for size in sizes}
    return {size for size in rounded if size <= largest} or ({query} if query <= largest else set())


@dataclass(frozen=True, slots=True)
class _Flags:
    eager: bool = False
    sizes: tuple[int, ...] | None = None
    ceiling: int | None = None


def _flags(args: tuple[str, ...]) -> _Flags:
    """Reads from the user's arguments what they say of graphs."""
    given = _values_by_flag(args)
    configs = [_object(text) for text in (*given.get("--compilation-config", []), *given.get("-cc", []))]
    sizes = [*given.get("--cudagraph-capture-sizes", []), *_config_values(configs, "cudagraph_capture_sizes")]
    ceilings = [*given.get("--max-cudagraph-capture-size", []), *_config_values(configs, "max_cudagraph_capture_size")]
    off = any(mode.upper() in ("NONE", "0") for mode in _config_values(configs, "cudagraph_mode"))
    return _Flags(
        eager=off or "--enforce-eager" in given or "-O0" in given or "0" in given.get("--optimization-level", []),
        sizes=tuple(_numbers(sizes)) if sizes else None,
        ceiling=max(_numbers(ceilings), default=None),
    )


def _config_values(configs: list[dict[str, object]], key: str) -> list[str]:
    return [str(config[key]) for config in configs if config.get(key) is not None]


def _decides_graphs(args: tuple[str, ...]) -> bool:
    return any(flag in _SHAPING or flag.startswith(("-O", "-cc")) for flag in _values_by_flag(args))


def _object(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return {str(key).replace("-", "_"): value for key, value in found.items()} if isinstance(found, dict) else {}


def _numbers(values: list[str]) -> list[int]:
    """Whole numbers among `values`, which may be separated by commas or stand in a list's brackets."""
    words = " ".join(values).replace(",", " ").replace("[", " ").replace("]", " ").split()
    return [int(word) for word in words if word.isdecimal() and len(word) < _DIGITS]


def _values_by_flag(args: tuple[str, ...]) -> dict[str, list[str]]:
    """Flag -> its values as written."""
    found: dict[str, list[str]] = {}
    values: list[str] = []
    for argument in args:
        flag = FLAGS.name(argument)
        if not flag:
            values.append(argument)
            continue
        _, equals, value = argument.partition("=")
        values = found.setdefault(flag, [])
        values.extend([value] if equals else [])
    return found
