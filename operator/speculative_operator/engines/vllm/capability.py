"""What each vLLM release can turn for each method on each model runner, as data.

Asked by `plan`, which resolves one spec; a test holds docs/engines.md to it.
The versions come from comparing releases 0.18 to 0.32.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.spec import Method
from speculative_operator.engines.vllm.version import Version

OLDEST: Version = (0, 11, 0)
"""First release with `inter_token_latency_seconds` and `kv_cache_usage_perc`, which `reading` needs."""
SHUTDOWN_TIMEOUT_SINCE: Version = (0, 18, 0)
SCHEDULE_SINCE: Version = (0, 24, 0)
"""First release with `num_speculative_tokens_per_batch_size`."""
V2_SCHEDULE_SINCE: Version = (0, 32, 0)
"""First release whose V2 runner drafts what the schedule says; before, only V1 does."""
LIVE_PROVEN: tuple[tuple[int, int], ...] = ((0, 32),)
"""Release lines on which the mounted scheduler was proven. The payload holds the same list and is inert elsewhere."""


class Runner(StrEnum):
    """vLLM's model runners; `VLLM_USE_V2_MODEL_RUNNER` chooses."""

    V1 = "V1"
    V2 = "V2"


@dataclass(frozen=True, slots=True)
class MethodFacts:
    """How one method behaves. Empty sets mean: on no runner."""

    since: Version
    retunable: frozenset[Runner]
    """Runners on which K may differ from step to step without harm."""
    follows: frozenset[Runner]
    """Runners on which a smaller K drafts less; on the others only verification shrinks."""
    preferred: Runner = Runner.V2
    """Runner under a schedule; V2 is the default of 0.32 and is left to the engine, V1 is asked for."""
    needs_source: bool = True
    passes_at_zero: float = 1.0
    block_drafter: bool = False
    refused: str = ""
    """Remedy, for a method that no runner implements."""


_BOTH, _V1, _V2, _NONE = frozenset(Runner), frozenset({Runner.V1}), frozenset({Runner.V2}), frozenset[Runner]()

METHODS: dict[Method, MethodFacts] = {
    Method.EAGLE: MethodFacts((0, 11, 0), retunable=_BOTH, follows=_BOTH),
    Method.EAGLE3: MethodFacts((0, 11, 0), retunable=_BOTH, follows=_BOTH),
    Method.MTP: MethodFacts((0, 11, 0), retunable=_BOTH, follows=_BOTH, needs_source=False),
    # V2 drafts in full whatever K is, and without CUDA graphs for the drafter.
    Method.DRAFT_MODEL: MethodFacts((0, 14, 0), retunable=_BOTH, follows=_V1, preferred=Runner.V1),
    Method.DFLASH: MethodFacts((0, 23, 0), retunable=_BOTH, follows=_NONE, block_drafter=True),
    Method.DSPARK: MethodFacts((0, 25, 1), retunable=_V2, follows=_NONE, block_drafter=True, needs_source=False),
    # V2 fills misses with drafts that cannot be accepted, so it verifies more than it found.
    Method.NGRAM: MethodFacts(
        (0, 11, 0), retunable=_BOTH, follows=_V1, preferred=Runner.V1, needs_source=False, passes_at_zero=0.0
    ),
    # From here on the engine fails an assertion, or never hears of K, when a step has another K than the largest.
    Method.NGRAM_GPU: MethodFacts((0, 18, 0), retunable=_NONE, follows=_NONE, needs_source=False, passes_at_zero=0.0),
    Method.SUFFIX: MethodFacts(
        (0, 12, 0), retunable=_NONE, follows=_NONE, preferred=Runner.V1, needs_source=False, passes_at_zero=0.0
    ),
    Method.MEDUSA: MethodFacts((0, 11, 0), retunable=_NONE, follows=_NONE, preferred=Runner.V1),
    Method.MLP_SPECULATOR: MethodFacts(
        (0, 11, 0), retunable=_NONE, follows=_NONE, refused="no model runner of vLLM implements it; use eagle3 or mtp"
    ),
}


def runner_under_schedule(method: Method, version: Version) -> Runner:
    """The runner that serves `method` best when K may change; V2 cannot be trusted with a schedule before 0.32."""
    facts = METHODS[method]
    if version < V2_SCHEDULE_SINCE and Runner.V1 in facts.retunable:
        return Runner.V1
    return facts.preferred


def best_actuator(method: Method, version: Version, runner: Runner, data_parallel_size: int) -> Actuator:
    """The gentlest way to change K: Live, else Table, else Restart.

    Data parallelism drops the schedule (or, in 0.24 and 0.25, may deadlock on it), so it leaves Restart. Releases
    newer than the proven ones are held to what the newest known one does without the mounted scheduler: Table.
    """
    if data_parallel_size > 1 or version < SCHEDULE_SINCE or runner not in METHODS[method].retunable:
        return Actuator.RESTART
    if runner is Runner.V2 and version < V2_SCHEDULE_SINCE:
        return Actuator.RESTART
    return Actuator.LIVE if version[:2] in LIVE_PROVEN else Actuator.TABLE
