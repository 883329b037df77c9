"""The input and the outcome of one reconcile. The input is made by the shell and read by `snapshot`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from speculative_operator.comparing.measures import Sample
from speculative_operator.domain.actions import Action, Condition
from speculative_operator.domain.decision import Estimate
from speculative_operator.domain.jobs import JobSeen, Progress
from speculative_operator.domain.memo import Memo
from speculative_operator.domain.platform import CanarySeen
from speculative_operator.domain.reasons import Reason, without_credentials
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.pairing.catalogue import Catalogue, catalogue_of, load_packaged
from speculative_operator.pairing.catalogue_rows import CatalogueError
from speculative_operator.render import Capabilities
from speculative_operator.tuner import Memory

__all__ = ["Catalogue", "CatalogueError", "Event", "Key", "Outcome", "World", "catalogue_of", "load_packaged"]

Key = tuple[str, str]
"""Kind and name of a child."""

ENOUGH_DRAFTS = 500.0
"""Verifications from which on an acceptance is believed: its standard error is then below 5 % of a token."""


@dataclass(frozen=True, slots=True)
class Record:
    """What one object did since the present step of a canary's analysis began, as far back as samples are kept."""

    samples: tuple[Sample, ...] = ()
    drafts: float = 0.0
    """Verifications of drafts, and below the draft tokens."""
    draft_tokens: float = 0.0
    accepted: float = 0.0

    @classmethod
    def from_samples(cls, samples: Sequence[Sample]) -> Record:
        """What an object did by its samples."""
        counts = ((one.drafts, one.draft_tokens, one.accepted) for one in samples)
        return cls(tuple(samples), *(math.fsum(own) for own in zip(*counts, strict=True)))

    @property
    def gained(self) -> float | None:
        """Draft tokens that a verification accepts; None where there was none."""
        return self.accepted / self.drafts if self.drafts > 0 else None

    @property
    def acceptance(self) -> tuple[int, float] | None:
        """Draft tokens of a verification, and how many of them it accepts; None where too few were seen to believe."""
        k = round(self.draft_tokens / self.drafts) if self.drafts >= ENOUGH_DRAFTS else 0
        return (k, self.accepted / self.drafts) if k > 0 else None


@dataclass(frozen=True, slots=True)
class Evidence:
    """By which a canary is judged: what it and the object did, and its spec."""

    stable: Record
    canary: Record
    spec: DeploymentSpec
    gap: str = ""
    """Why the last reading of figures brought nothing; empty where it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known beside an object and what belongs to it."""

    capabilities: Capabilities = field(default_factory=Capabilities)
    problems: tuple[Condition, ...] = ()
    """What went wrong with earlier actions and still holds, such as a manifest that the API server refused."""
    applied: Mapping[Key, Mapping[str, Any]] = field(default_factory=dict)
    """What the API server returned for our last apply of a child: drift is judged against it, so that its
    normalisation never looks like a hand edit. May be empty, as after a restart."""
    jobs: tuple[JobSeen, ...] = ()
    """The object's Jobs as far as they and their pods tell; each is also among `children`, by which it is deleted,
    but for one that waits for its turn."""
    arriving: Mapping[str, Progress] = field(default_factory=dict)
    """Name of a serving pod that brings its weights itself -> how far it is; not of every one."""
    claims: frozenset[str] = frozenset()
    """Names of the PersistentVolumeClaims of the object's namespace that bear our label; caches of weights, nobody's
    children."""
    payloads: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Name of each ConfigMap of the plug-in in the object's namespace -> its files (`render.payload`)."""
    foreign_claims: frozenset[str] = frozenset()
    """Names of the claims that others had made where the operator was to make one: they serve as well."""
    catalogue: Catalogue = field(default_factory=load_packaged)
    """Speculators to pick from, where the spec leaves it to the operator."""
    leaving: Mapping[str, Memory] = field(default_factory=dict)
    """What the tuner remembers of pairs whose pods are being replaced, by their label."""
    kept: frozenset[str] = frozenset()
    """Folders of caches that other objects of the namespace use, as `records.keys` reads them from their status: what
    a Job that tidies up must leave alone."""
    canary: CanarySeen | None = None
    """What is seen of the object that `spec.route.canary` names; None where there is none of that name."""
    evidence: Evidence | None = None
    """By which a canary is judged; None until figures since the begin of its step were asked for."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """The object's spec as its user wrote it, of which a candidate's is made."""
    candidate_body: Mapping[str, Any] | None = None
    """The object by the name of this one's candidate, whoever made it; None where there is none."""
    candidate_pods: tuple[Mapping[str, Any], ...] = ()
    """Its serving pods."""
    memo: Memo = field(default_factory=Memo, compare=False, repr=False)
    """What was computed for the object at this reconcile and the last one: the one thing here that changes."""


@dataclass(frozen=True, slots=True)
class World(Surroundings):
    """One object and all that is known of it at one moment, as the shell has it. Nothing but `spec` is trusted:
    `snapshot` reads the rest, and nobody else does."""

    spec: DeploymentSpec
    status: Mapping[str, Any]
    """The status as the API server has it; empty on the first reconcile."""
    children: Mapping[Key, Mapping[str, Any]]
    """Every object of a kind we own that carries our label or one of our children's names. Jobs too."""
    pods: tuple[Mapping[str, Any], ...]
    """Serving pods, those of old templates included."""
    notes: Mapping[str, Any] | None = None
    """What the operator kept for itself at its last reconcile of the object (`notes`); None after a restart: then the
    ConfigMap tells."""


@dataclass(frozen=True, slots=True)
class Event:
    """A transition worth an Event on the object."""

    type: str
    """Normal or Warning."""
    reason: Reason
    message: str
    decision: bool = False
    """True for a decision of the tuner, which may come often."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", without_credentials(self.message))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one reconcile: what is to be done, said and remembered."""

    actions: tuple[Action, ...]
    status: dict[str, Any]
    """The whole status as it should be, without the notes."""
    events: tuple[Event, ...]
    memory: Memory | None
    tries_changed: bool = False
    """True when nothing but the trials has changed: counted, but no event and no entry of the history."""
    leaving: Mapping[str, Memory] = field(default_factory=dict)
    """As `Surroundings.leaving`, after this reconcile."""
    estimate: Estimate | None = None
    """Figures of the newest look at the pods; None where there was none."""
    notes: Mapping[str, Any] | None = None
    """What the operator keeps for itself (`notes`); None: nothing is to change."""
    stands_for: float = 0.0
    """Seconds for which the same reconcile would come out the same while nothing but time passes (`domain.clock`)."""
