"""What a reconcile reads, or shares with others, beside its own object in the cache: rounds of metrics, Jobs, the
catalogue, and the canary that `spec.route.canary` names. Used by `reconciler`; `app` fills it in, and has `informer`
ask which objects must look again when a canary changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from speculative_operator.api.convert import to_domain
from speculative_operator.api.wire import SpecError
from speculative_operator.domain import names
from speculative_operator.domain.platform import CanarySeen
from speculative_operator.domain.reading import is_controlled_by, items, mapping, mappings, text, whole
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.reconcile.snapshot.candidates import outputs_differ
from speculative_operator.reconcile.world import Catalogue, load_packaged
from speculative_operator.render import Capabilities
from speculative_operator.render.metadata import digest
from speculative_operator.shell.bodies import Body, Key
from speculative_operator.shell.cache import Cache, Snapshot
from speculative_operator.shell.jobs import Jobs
from speculative_operator.shell.past import Past
from speculative_operator.shell.report import Budget
from speculative_operator.shell.resources import CHILD_BY_KIND
from speculative_operator.shell.rounds import Round
from speculative_operator.shell.turns import Turns

_SERVED_NAME = "--served-model-name"
"""The option by which vLLM and SGLang are told the name of their model; the other engines are told none."""
_STATUSES = "containerStatuses"


@dataclass(frozen=True, slots=True)
class Sources:
    """What a reconcile reads, or shares with others, beside the cache."""

    latest: Callable[[str], Round | None]
    """Returns a namespace's newest Prometheus round."""
    capabilities: Callable[[], Capabilities]
    """Returns what the cluster offers."""
    jobs: Jobs
    turns: Turns
    budget: Budget
    """Limits the writes of figures."""
    past: Past
    """Reads what a canary did."""
    catalogue: Callable[[], Catalogue] = load_packaged
    """Returns the rows from which speculators are picked."""


class Canaries:
    """Which objects lead requests to a canary or a candidate, as of the last look at each object."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._of: dict[Key, Key] = {}
        """Object -> its canary."""

    def look(self, spec: DeploymentSpec) -> CanarySeen | None:
        """The canary of an object as the cache has it; None where the spec names none, or where it is gone."""
        own = (spec.namespace, spec.name)
        if spec.route is None or spec.route.canary is None:
            self.forget(own)
            return None
        key = self._of[own] = (spec.namespace, spec.route.canary.name)
        return _look(self._cache, key, spec.verifier.served_name)

    def candidate(self, spec: DeploymentSpec) -> Snapshot | None:
        """The object by the name of the candidate of an object, whoever made it; None where there is none."""
        own, key = (spec.namespace, spec.name), (spec.namespace, names.candidate(spec.name))
        found = self._cache.snapshot(key)
        if found is not None or spec.measure is not None:
            self._of.setdefault(own, key)
        return found

    def spec_of(self, own: Key) -> DeploymentSpec | None:
        """The spec of an object's canary, as of the last look; None where there is none that can be read."""
        owner = self._cache.owner(self._of[own]) if own in self._of else None
        try:
            return to_domain(owner) if owner is not None else None
        except SpecError:
            return None

    def leading_to(self, key: Key) -> Iterator[Key]:
        """Objects whose canary is `key`."""
        return (own for own, canary in tuple(self._of.items()) if canary == key)

    def forget(self, own: Key) -> None:
        """Forget the canary of an object that has none any more, or that is gone."""
        self._of.pop(own, None)


def _look(cache: Cache, key: Key, model: str) -> CanarySeen | None:
    snapshot = cache.snapshot(key)
    if snapshot is None or snapshot.owner["metadata"].get("deletionTimestamp"):
        return None
    try:
        spec = to_domain(snapshot.owner)
    except SpecError:
        return CanarySeen()
    service = snapshot.children.get((CHILD_BY_KIND["Service"].kind, names.child(spec.name)))
    return CanarySeen(
        served_name=spec.verifier.served_name,
        service=service is not None and is_controlled_by(service, spec.uid),
        answering=sum(_answers(pod, model) for pod in snapshot.ready),
        made_of=_made_of(snapshot.owner),
        restarts=sum(whole(one, "restartCount") for pod in snapshot.pods for one in mappings(pod, "status", _STATUSES)),
        outputs_differ=outputs_differ(snapshot.owner),
    )


def _made_of(owner: Body) -> str:
    """Hash of an object without what may be edited in the middle of its analysis."""
    spec = {key: value for key, value in mapping(owner, "spec").items() if key not in ("replicas", "route")}
    return digest([text(owner, "metadata", "uid"), spec], 16)


def _answers(pod: Body, model: str) -> bool:
    """True unless the pod's engine was told to answer for another model: pods may be of an earlier spec."""
    for container in mappings(pod, "spec", "containers"):
        args = items(container, "args")
        if _SERVED_NAME in args:
            return model in args[args.index(_SERVED_NAME) + 1 :][:1]
    return True
