"""How many tokens a step may hold (`--max-num-batched-tokens`), so that the drafts of a full batch fit in, and the
numbers of tokens per step for which vLLM captures CUDA graphs, with the ceiling that the operator sets.

vLLM pads a step to the next number; above the largest it runs eagerly, several times slower. Asked by `adapter` for the
knob space, by `arguments` and by `checks`. Rules of vLLM 0.32: config/speculative.py, config/vllm.py and
engine/arg_utils.py (`max_num_new_slots_for_drafting`, `_set_max_num_scheduled_tokens`, `get_batch_defaults`,
`_set_cudagraph_sizes`), config/compilation.py (`adjust_cudagraph_sizes_for_spec_decode`); tests/vllm holds them to that
code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from speculative_operator.domain.platform import Vendor
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, Method, Speculator
from speculative_operator.engines.base import Refusal
from speculative_operator.engines.matrix.rows import Version
from speculative_operator.engines.vllm.flags import FLAGS
from speculative_operator.engines.vllm.plan import Plan, Runner, boot_schedule
from speculative_operator.physics.catalog import accelerator_of

ADVISED = 8192
"""vLLM warns below it when it speculates; also its own default for the API server on an H100."""
_LEAST = 2048
"""vLLM's least default on a GPU."""
_LARGEST = 16384
_TPU = 256
_STEP = 1024
_GIB = 2**30
_SLOTS_ONCE_SINCE: Version = (0, 32, 0)
"""Before, the slots of all requests together had to be less than the tokens of a step."""
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
_FIELD = "spec.verifier.maxNumBatchedTokens"


def drafting_slots(speculator: Speculator, k: int) -> int:
    """Slots that each request needs in a drafting pass beside the tokens that are verified."""
    method = speculator.method
    if method is Method.DFLASH:
        return k
    if method is Method.DSPARK or speculator.parallel_drafting:
        return k if method is Method.DRAFT_MODEL else k - 1
    return 1 if method is Method.DRAFT_MODEL else 0


def token_need(spec: DeploymentSpec, plan: Plan) -> int:
    """Tokens of a step in which every request verifies the largest K and drafts the next ones; 0 without drafts."""
    if not plan.speculates or spec.speculator is None:
        return 0
    return plan.max_batch * (plan.max_k + 1 + drafting_slots(spec.speculator, plan.max_k))


def budget_flag(spec: DeploymentSpec, plan: Plan) -> int | None:
    """Value of the flag: the user's, else what drafts need where the engine's default is less or not known.

    None leaves it to the engine, whose default has room. A larger step lengthens the prompts' chunks and so the
    pauses between tokens: on small accelerators it is raised no further than drafts need.
    """
    given = spec.verifier.max_num_batched_tokens
    if given is not None:
        return given
    need, default = token_need(spec, plan), _default(spec)
    if need <= (default or _LEAST):
        return None
    rounded = -(-need // _STEP) * _STEP
    return rounded if default is not None else max(ADVISED, rounded)


def budget(spec: DeploymentSpec, plan: Plan) -> int:
    """The least number of tokens that a step may hold, by the user, the operator or the engine's default."""
    return budget_flag(spec, plan) or _default(spec) or _LEAST


def budget_refusals(spec: DeploymentSpec, plan: Plan) -> Iterator[Refusal]:
    """Refuses budgets with which the engine would not start, and ranks of adapters that it does not know."""
    lora, given = spec.verifier.lora, spec.verifier.max_num_batched_tokens
    if lora is not None and lora.max_rank not in _RANKS:
        ranks = ", ".join(map(str, _RANKS))
        message = f"verifier.lora.maxRank {lora.max_rank}: vLLM accepts {ranks}; use the next larger one"
        yield Refusal("spec.verifier.lora.maxRank", Reason.UNSUPPORTED_BY_ENGINE, message)
    if given is None:
        return
    floor, why = max(_floors(spec, plan))
    if given < floor:
        yield Refusal(_FIELD, Reason.SPEC_INVALID, f"verifier.maxNumBatchedTokens {given}: {why}; use {floor} or more")


def _floors(spec: DeploymentSpec, plan: Plan) -> Iterator[tuple[int, str]]:
    seqs = plan.max_batch
    yield seqs, f"each of {seqs} requests (verifier.maxNumSeqs) needs a token"
    if not plan.speculates or spec.speculator is None:
        return
    slots = drafting_slots(spec.speculator, plan.max_k)
    together = slots if plan.version >= _SLOTS_ONCE_SINCE else slots * seqs
    yield together + 1, f"drafts of method {spec.speculator.method} take {together} slots of a step"
    if spec.verifier.lora is not None:
        whole = seqs * (plan.max_k + 1)
        yield whole, f"with adapters {seqs} requests times {plan.max_k} drafts and a token must fit in a step"


def _default(spec: DeploymentSpec) -> int | None:
    """The engine's own default on the spec's accelerators; None where they are not known."""
    vendor, product = spec.accelerator.vendor, spec.accelerator.product
    if vendor is Vendor.TPU:
        return _TPU
    if vendor is Vendor.CPU:
        return _LEAST * spec.verifier.tensor_parallel_size * spec.verifier.pipeline_parallel_size
    found = accelerator_of(spec)
    if found is None:
        return None if vendor in (Vendor.NVIDIA, Vendor.AMD, Vendor.OTHER) else _LEAST
    if found.memory_bytes >= 160 * _GIB:
        return _LARGEST
    return ADVISED if found.memory_bytes >= 70 * _GIB and "a100" not in product.lower() else _LEAST


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

    Given where a full batch exceeds the engine's own ceiling, up to 1024 tokens, from 0.32 on, unless the user's flags
    decide about graphs: a batch with the largest K on whole NVIDIA accelerators known to hold 70 GiB or more, a batch
    without drafts elsewhere. The price is 30 to 50 % more graphs than at 512, hence start-up time and memory
    (docs/engines.md has the figures).
    """
    if not plan.speculates or plan.version < _RAISE_SINCE or spec.accelerator.vendor not in _CAPTURING:
        return None
    tokens = plan.max_batch * (plan.max_k + 1) if _roomy(spec) else -(-plan.max_batch // _COARSE) * _COARSE
    wanted = min(tokens, RAISED, budget(spec, plan)) // _COARSE * _COARSE
    return wanted if wanted > _limit(spec) and not _decides_graphs(spec.engine.args) else None


def boot(spec: DeploymentSpec, plan: Plan) -> list[list[int]]:
    """The boot schedule of `spec`, within the graphs that the engine captures."""
    flags = _flags(spec.engine.args)
    captures = not flags.eager and flags.ceiling != 0 and spec.accelerator.vendor in _CAPTURING
    ceiling = flags.ceiling or raised_ceiling(spec, plan) or _limit(spec) if captures else None
    return boot_schedule(plan.ks, plan.max_batch, ceiling)


def _roomy(spec: DeploymentSpec) -> bool:
    asked = spec.accelerator
    found = accelerator_of(spec)
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
        yield from (size for size in _decoding_steps(spec, plan, k, limit) if size <= min(largest, most))


def _decoding_steps(spec: DeploymentSpec, plan: Plan, k: int, limit: int) -> Iterator[int]:
    """Tokens of decoding steps: requests on the same grid, times K + 1, up to the widest batch with that K."""
    if k == 0:
        yield plan.max_batch
        return
    widest = {k: plan.max_batch}
    if plan.has_schedule:
        widest = {row[2]: row[1] for row in boot(spec, plan)}
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
    given = FLAGS.values_by_flag(args)
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
    return any(flag in _SHAPING or flag.startswith(("-O", "-cc")) for flag in FLAGS.values_by_flag(args))


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
