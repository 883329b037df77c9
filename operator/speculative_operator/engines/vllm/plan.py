"""What vLLM's releases have, and one spec resolved against that and against the rows of the matrix: actuator, runner,
the K that may occur, the boot schedule.

Used by every other module of this adapter, so that command line, environment and knob space cannot disagree. The
versions come from comparing the sources of releases 0.11 to 0.33.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from speculative_operator.domain.spec import DeploymentSpec, EngineType, Method, Mode, OffPolicy
from speculative_operator.domain.table import Actuator
from speculative_operator.engines.matrix.refusing import question_of
from speculative_operator.engines.matrix.rows import (
    CELLS,
    GENTLEST,
    Cell,
    Question,
    Variant,
    Version,
    find,
    parse_version,
    platform_of,
)
from speculative_operator.engines.shared import plan as shared

OLDEST: Version = (0, 11, 0)
"""First release with `inter_token_latency_seconds` and `kv_cache_usage_perc`, which `reading` needs."""
SHUTDOWN_TIMEOUT_SINCE: Version = (0, 18, 0)
V2_SCHEDULE_SINCE: Version = (0, 32, 0)
"""First release that takes the V2 runner by itself, and whose V2 runner drafts what the schedule says."""
DEFAULT_MAX_NUM_SEQS = 256
"""vLLM's own default depends on the accelerator; a table and a capture ceiling need a number that is known."""
RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
_SCHEDULED = (Actuator.LIVE, Actuator.TABLE)
_COMMON = 4


class Runner(StrEnum):
    """vLLM's model runners; RUNNER_VARIABLE chooses."""

    V1 = "V1"
    V2 = "V2"


LIVE_PROVEN = tuple((0, minor) for minor in range(24, 34))
"""Release lines on which the plug-in was run, by `realengine.matrix` and tests/vllm: 0.24 and 0.30 by their scheduler
classes alone, for their builds for CPUs cannot verify drafts; 0.33 is its Python over the kernels of 0.32. The payload
holds the same list, for its label `proven`."""
UNPROVEN: Version = (0, LIVE_PROVEN[-1][1] + 1, 0)
"""First release on which the plug-in was not run. It checks itself at its start, and says there what it lacks."""
BLOCK_METHODS = frozenset(
    cell.method for cell in CELLS[EngineType.VLLM] if cell.drafts_blocks and cell.variant is Variant.PLAIN
)
"""Methods whose plain form drafts all K tokens in one pass."""


def runner_under_schedule(asked: Question) -> Runner:
    """The runner that serves the method best when K may change, whatever runner and parallelism are asked for.

    The gentlest actuator counts first, then that a smaller K drafts less (a block is one pass at every K), then what
    the release takes by itself: V2 from 0.32 on, V1 before.
    """
    platform = platform_of(asked.engine, asked.vendor, asked.version)
    order = (Runner.V2, Runner.V1) if asked.version >= V2_SCHEDULE_SINCE else (Runner.V1, Runner.V2)
    served: list[tuple[int, bool, Runner]] = []
    for runner in order:
        cell = find(replace(asked, runner=runner, data_parallel_size=1))
        if cell is not None and (platform is None or platform.runner in ("", runner)):
            served.append((GENTLEST.index(cell.actuator), not (cell.follows_k or cell.drafts_blocks), runner))
    return min(served, key=lambda one: one[:2])[2] if served else Runner.V1


@dataclass(frozen=True, slots=True)
class Plan(shared.Plan):
    """What the adapter will do for a spec."""

    runner: Runner = Runner.V2
    required_runner: Runner | None = None
    """Runner that the container's environment must ask for; None leaves the choice to the engine or to the user."""
    variant: Variant = Variant.PLAIN

    @property
    def max_k(self) -> int:
        """The largest K; never below 1, because vLLM refuses `num_speculative_tokens` 0."""
        return max(1, *self.ks)

    @property
    def has_schedule(self) -> bool:
        """True when the engine is started with a schedule."""
        return self.actuator in _SCHEDULED


def plan(spec: DeploymentSpec) -> Plan:
    """The plan of `spec`. For a version that cannot be read it assumes the oldest (`checks` refuses that spec)."""
    version = parse_version(spec.engine.version) or OLDEST
    batch = spec.verifier.max_num_seqs or DEFAULT_MAX_NUM_SEQS
    if not spec.speculates:
        return Plan(Actuator.NONE, version, batch, (0,))
    asked = question_of(spec, version)
    best, chosen = runner_under_schedule(asked), user_runner(spec)
    runner = chosen or best
    cell = find(replace(asked, runner=runner))
    actuator = _actuator(spec, cell)
    # From 0.32 on the engine takes V2 by itself, and V1 where V2 lacks the method.
    asks = actuator in _SCHEDULED and chosen is None and version < V2_SCHEDULE_SINCE
    own = Runner.V1 if asks and best is Runner.V1 else None
    return Plan(actuator, version, batch, _ks(spec, actuator, runner, batch), cell, runner, own, asked.variant)


def has_worker(planned: Plan) -> bool:
    """True when pods are started with the plug-in's worker: their K is live on the V2 runner, and the method is one
    whose speculator the worker makes follow K."""
    live_on_v2 = planned.actuator is Actuator.LIVE and planned.runner is Runner.V2
    return live_on_v2 and planned.cell is not None and planned.cell.skips


def can_skip(spec: DeploymentSpec, planned: Plan) -> bool:
    """True when pods can skip the speculator at K = 0: they have the worker, 0 is one K, and replicas have no ranks
    but tensor parallel ones of one node, since agreements between nodes never ran."""
    verifier = spec.verifier
    others = verifier.pipeline_parallel_size * verifier.data_parallel_size * spec.nodes
    # The plug-in never skips a speculator whose drafts are drawn from its probabilities (`speculative_worker`).
    if spec.speculator is None or spec.speculator.options.get("draft_sample_method") not in (None, "greedy"):
        return False
    return has_worker(planned) and others == 1 and 0 in planned.ks


def skips(spec: DeploymentSpec, planned: Plan) -> bool:
    """True when pods can skip the speculator at K = 0 and the spec asks for it (`offPolicy: Skip`)."""
    return spec.speculation.off_policy is OffPolicy.SKIP and can_skip(spec, planned)


def follows_k(spec: DeploymentSpec, planned: Plan) -> bool:
    """True when the speculator drafts less at a smaller K."""
    if spec.speculator is None or planned.cell is None or not planned.has_schedule:
        return True
    # By itself the V2 runner drafts in full with a draft model at every K; the plug-in's worker makes it follow K.
    alone = planned.runner is Runner.V2 and not has_worker(planned)
    return planned.cell.follows_k and not (alone and spec.speculator.method is Method.DRAFT_MODEL)


def user_runner(spec: DeploymentSpec) -> Runner | None:
    """The runner that `spec.engine.env` asks for by a plain value."""
    for variable in spec.engine.env:
        if variable.get("name") == RUNNER_VARIABLE:
            return {"0": Runner.V1, "1": Runner.V2}.get(str(variable.get("value", "")))
    return None


def boot_schedule(ks: tuple[int, ...], max_num_seqs: int, ceiling: int | None = None) -> list[list[int]]:
    """A schedule that holds every K of `ks` at the wide end: `[[1, E, floor], [E+1, E+1, K2], ..., [E+m, N, 0]]`.

    The engine captures graphs for a K up to the widest batch at which it occurs (docs/engines.md). Nearly all batch
    sizes get the smallest K above 0, the mildest one, in case that the file with the real table is never read; those
    whose tokens exceed the largest graph of `ceiling` tokens get 0, where it is one of `ks`. E is a multiple of 4: its
    tokens are then a captured size of every other K, too.
    """
    floor = min((k for k in ks if k > 0), default=0)
    others = sorted((k for k in ks if k != floor), reverse=True)
    within = max_num_seqs if ceiling is None else min(max_num_seqs, max(ceiling // (floor + 1), len(others) + 1))
    end = within - len(others)
    end -= end % _COMMON if end > _COMMON else 0
    rows = [[1, end, floor]] if end >= 1 else []
    rows += [[end + place, end + place, k] for place, k in enumerate(others, 1)]
    if rows[-1][2] > floor and rows[-1][1] < max_num_seqs:
        rows.append([rows[-1][1] + 1, max_num_seqs, floor])
    rows[-1][1] = max_num_seqs
    return rows


def _actuator(spec: DeploymentSpec, cell: Cell | None) -> Actuator:
    if cell is None or (spec.speculation.mode is Mode.STATIC and spec.speculation.schedule is None):
        return Actuator.RESTART
    return Actuator.TABLE if cell.actuator is Actuator.LIVE and not spec.engine.live else cell.actuator


def _ks(spec: DeploymentSpec, actuator: Actuator, runner: Runner, batch: int) -> tuple[int, ...]:
    top, start = spec.speculation.max_speculative_tokens, spec.speculation.num_speculative_tokens
    scheduled = actuator in _SCHEDULED
    # With adaptive verification one set of graphs serves steps of any lengths up to the largest K.
    any_k = runner is Runner.V1 or spec.speculation.adaptive_verification
    in_table = set(range(1, top + 1)) if any_k else _graph_friendly(top)
    ks = shared.choose_ks(spec, batch, in_table if scheduled else None, zero_in_table=True)
    return _at_most(ks, batch, start) if scheduled and spec.speculation.mode is not Mode.STATIC else ks


def _graph_friendly(top: int) -> set[int]:
    """K up to `top` whose verified length K + 1 is a power of two, and `top` itself where it lies well above them.

    V2 keeps one graph set per K and finds a graph by the next captured token count only: these K share their counts
    and keep full graphs at 99 to 100 % of batch sizes, where {0, 1, 2, 3} has 56 to 98 % (computed, docs/engines.md).
    """
    ks = {power - 1 for power in (2, 4, 8, 16, 32) if power - 1 <= top}
    return ks | {top} if top > 1.5 * max(ks) else ks


def _at_most(ks: tuple[int, ...], count: int, start: int | None) -> tuple[int, ...]:
    """As many of `ks` as a boot schedule for `count` requests can hold: drops inner values first, then 0 last."""
    kept = list(ks)
    inner = [k for k in kept if k not in (0, start, kept[-1])]
    for k in [*inner, *([start] if start is not None and start != kept[-1] else []), 0]:
        if len(kept) > count and k in kept:
            kept.remove(k)
    return tuple(kept)
