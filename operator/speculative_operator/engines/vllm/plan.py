"""One spec resolved against the capability data: actuator, runner, the K that may occur, the boot schedule.

Used by every other module of this adapter, so that command line, environment and knob space cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from speculative_operator.domain.spec import DeploymentSpec, Method, Mode, OffPolicy
from speculative_operator.domain.table import Actuator
from speculative_operator.engines.matrix.cell import Cell, Question, Variant, find, parse_version
from speculative_operator.engines.matrix.refusing import question_of
from speculative_operator.engines.matrix.vendors import best_actuator, platform_of
from speculative_operator.engines.shared import plan as shared
from speculative_operator.engines.vllm.capability import CELLS, runner_under_schedule
from speculative_operator.engines.vllm.forms import OLDEST, Runner

DEFAULT_MAX_NUM_SEQS = 256
"""vLLM's own default depends on the accelerator; a table and a capture ceiling need a number that is known."""
RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
_SCHEDULED = (Actuator.LIVE, Actuator.TABLE)


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
    cell = find(CELLS, replace(asked, runner=runner))
    actuator = _actuator(spec, asked, cell)
    own = Runner.V1 if actuator in _SCHEDULED and chosen is None and best is Runner.V1 else None
    return Plan(actuator, version, batch, _ks(spec, actuator, runner, batch), cell, runner, own, asked.variant)


def holds_drafts(spec: DeploymentSpec, planned: Plan) -> bool:
    """True when the scheduler holds each request's drafts between two steps, where the payload can take some away.

    That is the synchronous one: vLLM 0.32 allows no other for ngram (config/vllm.py). With several pipeline stages a
    step is drafted while others run, which was not tried. docs/decisions/0007 tells of the other methods.
    """
    method = spec.speculator.method if spec.speculator is not None else None
    return method is Method.NGRAM and planned.runner is Runner.V1 and spec.verifier.pipeline_parallel_size == 1


def rests(spec: DeploymentSpec, planned: Plan) -> bool:
    """True when pods can skip the speculator at K = 0: the actuator is Live, 0 is one K, the row has live off, and
    replicas have no ranks but tensor parallel ones of one node, since agreements between nodes never ran."""
    verifier = spec.verifier
    others = verifier.pipeline_parallel_size * verifier.data_parallel_size * spec.nodes
    if spec.speculator is None or others > 1 or planned.actuator is not Actuator.LIVE or 0 not in planned.ks:
        return False
    if _needs_every_step(spec.speculator.options):
        return False
    return planned.cell is not None and planned.cell.off is not None


def _needs_every_step(options: Mapping[str, Any]) -> bool:
    """True for a speculator that the plug-in never skips (`speculative_worker`): one whose drafts are drawn from its
    probabilities, or whose batches are not padded."""
    sampled = options.get("draft_sample_method") not in (None, "greedy")
    return sampled or bool(options.get("disable_padded_drafter_batch"))


def rests_with(spec: DeploymentSpec, planned: Plan) -> str:
    """The entry of `spec.engine.env` that would let pods skip the speculator; empty where they can, or none helps.

    The user decides: on the V1 runner every K of a schedule has piecewise graphs alone, which on one accelerator cost
    more than the speculator's pass (docs/decisions/0027, 0049).
    """
    if rests(spec, planned):
        return ""
    others = (one for one in spec.engine.env if one.get("name") != RUNNER_VARIABLE)
    chosen = replace(spec, engine=replace(spec.engine, env=(*others, {"name": RUNNER_VARIABLE, "value": "0"})))
    return f'{{name: {RUNNER_VARIABLE}, value: "0"}}' if rests(chosen, plan(chosen)) else ""


def leaves_out(spec: DeploymentSpec, planned: Plan) -> bool:
    """True when pods can skip the speculator at K = 0 and the spec asks for it (`offPolicy: Live`)."""
    return spec.speculation.off_policy is OffPolicy.LIVE and rests(spec, planned)


def user_runner(spec: DeploymentSpec) -> Runner | None:
    """The runner that `spec.engine.env` asks for by a plain value."""
    for variable in spec.engine.env:
        if variable.get("name") == RUNNER_VARIABLE:
            return {"0": Runner.V1, "1": Runner.V2}.get(str(variable.get("value", "")))
    return None


def boot_schedule(ks: tuple[int, ...], max_num_seqs: int) -> list[list[int]]:
    """A schedule that holds every K of `ks` at the wide end: `[[1, N-m, floor], [N-m+1, N-m+1, K2], ..., [N, N, 0]]`.

    The engine captures graphs for a K up to the widest batch at which it occurs (docs/engines.md). Nearly all batch
    sizes get the smallest K above 0, the mildest one, in case that the file with the real table is never read.
    """
    floor = min((k for k in ks if k > 0), default=0)
    others = sorted((k for k in ks if k != floor), reverse=True)
    start = max_num_seqs - len(others)
    rows = [[1, start, floor]] if start >= 1 else []
    return rows + [[start + place, start + place, k] for place, k in enumerate(others, 1)]


def _actuator(spec: DeploymentSpec, asked: Question, cell: Cell | None) -> Actuator:
    if spec.speculation.mode is Mode.STATIC and spec.speculation.schedule is None:
        return Actuator.RESTART
    best = best_actuator(cell, platform_of(asked.engine, asked.vendor, asked.version))
    return Actuator.TABLE if best is Actuator.LIVE and not spec.engine.live else best


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
