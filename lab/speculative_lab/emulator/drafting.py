"""Which runner serves a speculative method, and what the drafter does when K falls below its maximum (pure).

vLLM 0.32 has two model runners that treat a changed K differently; `config` asks here once at start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from speculative_lab.emulator.errors import ConfigError
from speculative_lab.emulator.speculative import Speculative

RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"


class Runner(StrEnum):
    V1 = "V1"
    V2 = "V2"


class Reaction(StrEnum):
    """What drafting does at a K below the maximum."""

    FOLLOWS = "follows"
    """K tokens are drafted."""
    VERIFIES_LESS = "verifies less"
    """The drafter runs in full, only verification shrinks."""
    DIES = "dies"
    """The engine core fails an assertion."""


@dataclass(frozen=True, slots=True)
class Drafting:
    """How the speculator behaves in this process."""

    runner: Runner | None
    """None where the engine is not vLLM."""
    reaction: Reaction = Reaction.FOLLOWS
    draft_free: bool = False
    drafts_blocks: bool = False
    """One pass drafts all tokens."""
    always_drafts: bool = True
    """False when a step without a match drafts nothing for a request (n-gram and suffix look-up on V1)."""
    passes_at_zero: float = 1.0
    """Draft passes per step at K = 0."""
    skipped: bool = False
    """Workers skip the drafter in steps that are told to be off."""


_ONLY_V1 = frozenset({"suffix", "medusa"})
_DIE_ON_V1 = frozenset({"suffix", "medusa", "ngram_gpu"})
_DRAFT_FREE = frozenset({"ngram", "ngram_gpu", "suffix"})
_BLOCK = frozenset({"dflash", "dspark", "medusa"})
_FOLLOW_ON_V2 = frozenset({"eagle", "eagle3", "mtp"})
WORKER_EXTENSION = "speculative_worker.Extension"
_FOLLOW_BY_WORKER = frozenset({"draft_model", "ngram"})
"""Methods that draft in full at every K on the V2 runner, unless the plug-in's worker is there."""
_SKIPPED = _FOLLOW_ON_V2 | _FOLLOW_BY_WORKER | {"dflash", "dspark"}
"""Methods whose drafter that worker skips, on the V2 runner."""


def drafting(config: Speculative, environment: Mapping[str, str], worker: str = "") -> Drafting:
    """Behaviour of `config` with the class that --worker-extension-cls names. Raises ConfigError when the runner that
    the environment asks for cannot serve it."""
    runner = _runner(config, environment.get(RUNNER_VARIABLE, ""))
    changed = runner is Runner.V2 and worker == WORKER_EXTENSION
    reaction = Reaction.FOLLOWS if changed and config.method in _FOLLOW_BY_WORKER else _reaction(config.method, runner)
    draft_free = config.method in _DRAFT_FREE
    block = config.method in _BLOCK or config.parallel_drafting
    full = reaction is Reaction.VERIFIES_LESS and not block
    return Drafting(
        runner=runner,
        reaction=reaction,
        draft_free=draft_free,
        drafts_blocks=block,
        always_drafts=not draft_free or runner is Runner.V2,
        passes_at_zero=0.0 if draft_free else float(config.k) if full else 1.0,
        skipped=changed and config.method in _SKIPPED,
    )


def _runner(config: Speculative, wish: str) -> Runner:
    needs_v1 = config.method in _ONLY_V1 or config.heterogeneous_vocab or _parallel_eagle(config)
    needs_v2 = config.method == "dspark" or config.adaptive_verification
    if needs_v1 and (needs_v2 or wish == "1"):
        raise ConfigError(
            f"{RUNNER_VARIABLE}=1: method {config.method} in this form is served by the V1 model runner only"
        )
    if needs_v2 and wish == "0":
        raise ConfigError(
            f"{RUNNER_VARIABLE}=0: method {config.method} in this form is served by the V2 model runner only"
        )
    return Runner.V1 if needs_v1 or wish == "0" else Runner.V2


def _parallel_eagle(config: Speculative) -> bool:
    return config.parallel_drafting and config.method in ("eagle", "eagle3", "draft_model")


def _reaction(method: str, runner: Runner) -> Reaction:
    if runner is Runner.V1:
        return Reaction.DIES if method in _DIE_ON_V1 else Reaction.FOLLOWS
    return Reaction.FOLLOWS if method in _FOLLOW_ON_V2 else Reaction.VERIFIES_LESS
