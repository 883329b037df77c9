"""When a reconcile of an object would only find again what the last one found, and is not made. Used by `reconciler`.

It rests on two reconciles in a row that were given the same and did nothing, and on the time for which the second one
says that its outcome stands (`Outcome.stands_for`). In doubt the reconcile is made: it costs a few milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from speculative_operator.domain.reading import mapping
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.shell.cache import Snapshot
from speculative_operator.shell.ledger import Ledger
from speculative_operator.shell.rounds import Round
from speculative_operator.shell.sources import Sources

LONGEST = 300.0
"""Most seconds without a reconcile: what a comparison with the clock does not show must not wait for ever."""
Given = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Rest:
    """What the last quiet reconcile was given, and from when to when (unix seconds) another would come out the same."""

    given: Given | None = None
    since: float = 0.0
    until: float = 0.0
    again: float = 0.0
    """Seconds between two looks whether it still holds."""

    def holds(self, given: Given | None, now: float) -> bool:
        """True where a reconcile with what is `given` need not be made."""
        return given is not None and given == self.given and self.since <= now < self.until

    def after(self, given: Given | None, stands_for: float, now: float, again: float) -> Rest:
        """The rest after one more quiet reconcile: what the first has kept for itself is given to the second alone."""
        return Rest(given, now, now + min(stands_for, LONGEST) if given == self.given else now, again)


def given_of(snapshot: Snapshot, sources: Sources, used: float) -> Given | None:
    """What a reconcile is given, by versions; None for new figures of pods. `used`: time of the last round used."""
    meta = snapshot.owner["metadata"]
    bodies = (*snapshot.children.values(), *snapshot.pods, *snapshot.claims.values(), *snapshot.payloads.values())
    versions = tuple(body["metadata"].get("resourceVersion") for body in bodies)
    found = sources.latest(meta["namespace"])
    gap = found.gap.reason if found is not None and found.gap is not None else None
    if found is not None and gap is None and is_news(found, snapshot, used):
        return None
    return meta.get("resourceVersion"), versions, snapshot.excess, gap, sources.capabilities(), sources.catalogue()


def is_news(found: Round, snapshot: Snapshot, used: float) -> bool:
    """True where the round is another than the one `used`, and the object has pods that it may speak of."""
    # Another one, not a later one: a clock that was set back must not blind us until it has caught up.
    return found.time != used and bool(snapshot.ready)


def is_still(snapshot: Snapshot, spec: DeploymentSpec, ledger: Ledger) -> bool:
    """True where nothing moves but by news of what `given_of` looks at: no Job runs, no pod fetches its weights, no
    problem waits to be tried again, and no other object's pods are looked at."""
    cache, route = spec.weights.cache, spec.route
    fetching = cache is not None and cache.in_pods and len(snapshot.ready) < len(snapshot.pods)
    led = (route is not None and route.canary is not None) or mapping(snapshot.owner, "status", "measured", "candidate")
    return not (snapshot.workers or fetching or led or ledger.problems or ledger.foreign)
