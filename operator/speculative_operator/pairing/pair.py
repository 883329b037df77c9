"""One pair with all that it is judged by: the facts of both models, the spec, and the rules of the engine's release.

Made once by `judge` and handed to every module of `compared`. `engines.pairs` fills the rules: `pairing` knows no
engine. Every rule has the value that finds least, so that an engine of which nothing is known leads to no Error that
rests on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from speculative_operator.domain.models import ModelFacts
from speculative_operator.domain.spec import DeploymentSpec, EngineType, Method, Mode, Speculator
from speculative_operator.pairing.speculator_files import Nature

HEADS = frozenset({Method.EAGLE, Method.EAGLE3, Method.DFLASH, Method.DSPARK, Method.MEDUSA})
"""Methods whose weights were trained on one verifier's hidden states."""
BLOCKS = frozenset({Method.DFLASH, Method.DSPARK})
INNER = frozenset({Method.EAGLE3, Method.DFLASH, Method.DSPARK})
"""Methods that read hidden states from inside the verifier."""


class Fact(StrEnum):
    """What the source of an engine's release says: a rule of its starts, or names of models that it knows."""

    SAME_VOCABULARY_SIZE = "SameVocabularySize"
    """A draft_model whose `vocab_size` differs at all, padding included, is refused at start."""
    WHOLE_HEADS = "WholeHeads"
    """An EAGLE-3 head that drafts as many tokens as the verifier has is taken to need no map: its own `vocab_size` must
    be as many too, or its first draft ends the engine."""
    HETEROGENEOUS = "Heterogeneous"
    """One vocabulary can be mapped to another."""
    DIVISIBLE_MODULES = "DivisibleModules"
    """A K above the number of mtp modules must be a multiple of it."""
    DIVISIBLE_HEADS = "DivisibleHeads"
    """Attention heads of speculator and verifier must divide by their tensor parallel size."""
    PARALLEL_TOKEN = "ParallelToken"  # noqa: S105  (the name of a rule)
    """Drafting in one pass needs a token for places to fill in the speculator's `config.json`."""
    STRETCHES_POSITIONS = "StretchesPositions"
    """Heads that draft by the verifier's positions are served beyond their own `max_position_embeddings`."""
    CHECKS_LENGTHS = "ChecksLengths"
    """A `maxModelLen` beyond what `config.json` allows is refused at start."""
    CHECKS_QUANTIZATION = "ChecksQuantization"
    """A quantization that differs from the checkpoint's own is refused at start."""
    RENAMED = "Renamed"
    """Parts of a name by which a `draft_model` is taken for one of another method."""
    FORMAT = "Format"
    """`speculators_model_type` that is read."""
    MODULES = "Modules"
    """Types and architectures of models whose mtp modules run."""
    NO_INNER_STATES = "NoInnerStates"
    """Architectures of verifiers whose inner hidden states are not given."""
    RELAY = "Relay"
    """Architectures of verifiers that pass these states from one stage of a pipeline to the next."""
    NO_RELAY = "NoRelay"
    """Architectures of verifiers that do not pass them on."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """A combination with drafts whose output was reported wrong, or that was reported to reuse fewer cached prompts."""

    verifier: str
    """`hybrid`: layers with a recurrent state, such as linear attention; `adapters`: LoRA adapters; `any`."""
    effect: str
    """A sentence with its source."""
    remedy: str
    of_reuse: bool = False
    """The answers are right, and cached prompts are computed again."""


@dataclass(frozen=True, slots=True)
class EngineRules:
    """One engine at one release, for one spec."""

    engine: EngineType = EngineType.VLLM
    version: str = ""
    refusals: tuple[tuple[str, str], ...] = ()
    """(field, message with remedy) of what the engine refuses of the spec whatever the files say."""
    largest_k: int | None = None
    """K that the engine is started with; None: unknown, then that of the spec counts."""
    facts: Mapping[Fact, frozenset[str]] = field(default_factory=dict)
    """Names for each fact that is known; one empty name for a rule that holds."""
    wrong: tuple[Wrong, ...] = ()
    """What was reported of this release with the method and the arguments of the spec."""

    def has(self, rule: Fact) -> bool:
        """True where the release is known to have a rule."""
        return rule in self.facts

    def names(self, fact: Fact) -> frozenset[str]:
        """Names that the release is known to have; none where nothing is known."""
        return self.facts.get(fact, frozenset())


@dataclass(frozen=True, slots=True)
class Pair:
    """A verifier and a speculator of its own, for one spec and one engine."""

    verifier: ModelFacts
    speculator: ModelFacts
    """Facts of the speculator; the verifier's own where it drafts with modules of its own."""
    spec: DeploymentSpec
    requested: Speculator
    rules: EngineRules
    nature: Nature
    """The method by the speculator's files."""
    k: int
    """The largest K that may occur."""

    @property
    def method(self) -> Method:
        """The speculator's method as the spec asks for it."""
        return self.requested.method

    @property
    def inside(self) -> bool:
        """True when the verifier's own checkpoint holds the speculator."""
        return self.speculator is self.verifier

    @property
    def separate_head(self) -> bool:
        """True for a head that lies in files of its own and reads this verifier's hidden states."""
        return not self.inside and (self.method in HEADS or self.method is Method.MTP)


def largest_k(spec: DeploymentSpec, rules: EngineRules) -> int:
    """The largest K that may occur: the engine adapter's, else the spec's."""
    if rules.largest_k is not None:
        return max(1, rules.largest_k)
    speculation = spec.speculation
    if speculation.mode is Mode.STATIC:
        if speculation.schedule is not None:
            return max(1, *speculation.schedule.ks)
        return speculation.num_speculative_tokens or speculation.max_speculative_tokens
    return speculation.max_speculative_tokens
