"""Carries out a tick's actions, and remembers which were refused. Used by `reconciler`; the only writer of children.

What the API server refuses becomes a problem that the next tick shows as a condition: a refused manifest is not sent
again until it or the spec changes, a forbidden one only now and then.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.actions import Action, ApplyChild, Condition, DeleteChild, PokePod, Truth
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.render.metadata import digest
from speculative_operator.shell.bodies import Body, Key, Slot, home_of, slot_of, tags, trim
from speculative_operator.shell.cache import Cache, Snapshot
from speculative_operator.shell.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NamespaceTerminatingError,
    NotFoundError,
    OutdatedError,
    UnavailableError,
)
from speculative_operator.shell.kube import Kube, Still
from speculative_operator.shell.ledger import (
    NO_IMAGES,
    PATIENCE,
    Ledger,
    Problem,
    changed_back_condition,
    image_volumes,
    keeps_images,
)
from speculative_operator.shell.resources import (
    CHILD_BY_KIND,
    CLAIM,
    CONFIG_MAP,
    OWNER,
    POD,
    SERVING_RUNTIME,
    WORKLOADS,
    Resource,
)
from speculative_operator.shell.sizes import outline
from speculative_operator.shell.telemetry import Telemetry

log = logging.getLogger(__name__)

FORBIDDEN_PAUSE = 60.0
"""seconds until a write is tried again that is forbidden or fails: permissions and webhooks change by hand."""
FOREIGN_PAUSE = 60.0
"""seconds for which an object of somebody else is remembered; nothing watches it."""
FOREIGN_CLAIM_PAUSE = 600.0
"""The same for a claim, which serves as well as one of ours."""
_REASONS = {ForbiddenError: Reason.FORBIDDEN, UnavailableError: Reason.WRITE_FAILED}


@dataclass(frozen=True, slots=True)
class Report:
    """What became of the actions: `acted` counts successful ones, `refused` says that `Ledger.problems` changed."""

    acted: int = 0
    refused: bool = False
    again: bool = False
    """The cluster was not as the tick saw it: look again at once."""


class Writer:
    """Writes the children of all objects. `leading` is asked before each write, `rediscover` when an optional kind is
    gone."""

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        telemetry: Telemetry,
        leading: Callable[[], bool],
        rediscover: Callable[[], None],
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._telemetry = telemetry
        self._leading = leading
        self._rediscover = rediscover
        self._sharing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Namespace -> held while its payload is made, so that objects that come together send it once."""

    async def carry_out(
        self,
        key: Key,
        snapshot: Snapshot,
        actions: Sequence[Action],
        ledger: Ledger,
        now: float,
    ) -> Report:
        """Apply what the namespace shares, then all children at once, then poke pods, which need those. No workload is
        written without the ConfigMap of the plug-in, for which its pods would wait.

        Raises the worst ApiError when one says to try the whole reconcile again later.
        """
        children = [action for action in actions if isinstance(action, ApplyChild | DeleteChild)]
        shared = [one for one in children if isinstance(one, ApplyChild) and _is_shared(one)]
        reports = [await self._share(key, snapshot, one, ledger, now) for one in shared]
        lacking = any(one.again for one in reports) or any(slot_of(one.manifest) in ledger.problems for one in shared)
        others = [one for one in children if one not in shared and not (lacking and _is_workload(one))]
        first = [one for one in others if isinstance(one, DeleteChild) or not _resource(one).last]
        pokes = [action for action in actions if isinstance(action, PokePod)]
        reports.append(await self._together([self._child(key, snapshot, one, ledger, now) for one in first]))
        # KServe would make pods of the runtime that is there, which may be somebody else's.
        blocked = reports[-1].again or any(kind == SERVING_RUNTIME.kind for kind, _ in ledger.problems)
        last = [] if blocked else [one for one in others if one not in first]
        reports.append(await self._together([self._child(key, snapshot, one, ledger, now) for one in last]))
        reports.append(await self._together([self._poke(snapshot, action) for action in pokes]))
        wanted = {slot_of(action.manifest) for action in children if isinstance(action, ApplyChild)}
        past = ledger.forget(wanted)
        return _join((*reports, Report(refused=past)))

    async def _share(self, key: Key, snapshot: Snapshot, action: ApplyChild, ledger: Ledger, now: float) -> Report:
        """Make the ConfigMap of the plug-in, unless another object of the namespace has just made it."""
        async with self._sharing[key[0]]:
            known = self._cache.snapshot(key)
            if known is not None and action.manifest["metadata"]["name"] in known.payloads:
                return Report()
            return await self._child(key, snapshot, action, ledger, now)

    async def _together(self, coroutines: Sequence[Coroutine[Any, Any, Report]]) -> Report:
        results = await asyncio.gather(*coroutines, return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            raise worst(failures)
        return _join([result for result in results if isinstance(result, Report)])

    async def _child(
        self,
        key: Key,
        snapshot: Snapshot,
        action: ApplyChild | DeleteChild,
        ledger: Ledger,
        now: float,
    ) -> Report:
        if not self._still(key, snapshot):
            return Report(again=True)
        try:
            if isinstance(action, DeleteChild):
                return await self._delete(key, snapshot, action)
            if action.manifest["kind"] == OWNER.kind:
                return await self._create(key, snapshot, action)
            slot = slot_of(action.manifest)
            if slot[0] == CLAIM.kind and slot[1] not in snapshot.claims:
                # A read finds whether it is somebody else's, not a write that fails: it is asked for again and again.
                await self._look(slot, key, ledger, now)
                if slot in ledger.foreign:
                    return Report(again=True)
            return await self._apply(key, snapshot, action, ledger, now)
        except OutdatedError:
            return Report(again=True)

    async def _apply(self, key: Key, snapshot: Snapshot, action: ApplyChild, ledger: Ledger, now: float) -> Report:
        manifest = action.manifest
        slot = slot_of(manifest)
        mark, generation = digest(manifest, 16), snapshot.owner["metadata"].get("generation", 0)
        if not ledger.may_apply(slot, mark, generation, now):
            return Report()
        held = snapshot.children.get(slot) if slot[0] != CLAIM.kind else snapshot.claims.get(slot[1])
        uid = held["metadata"]["uid"] if held is not None else None
        resource = _resource(action)
        foreseen = await self._foreseen(key, action, ledger, uid, now)
        if foreseen is not None:
            ledger.problems[slot] = Problem(foreseen[0], mark, generation, foreseen[1])
            return Report(refused=True)
        try:
            still = partial(self._still, key, snapshot, replaces=slot[0] in WORKLOADS)
            body = await self._send(resource, manifest, held, uid, still)
        except NotFoundError:
            if resource.optional:
                self._rediscover()
            return Report()  # else the namespace is gone, and with it our object: a watch will say so
        except (ConflictError, InvalidError, ForbiddenError, UnavailableError) as failure:
            problem = await self._refusal(failure, slot, key, ledger, now)
            if problem is None:
                return Report(again=True)
            ledger.problems[slot] = _problem(problem, slot, mark, generation, now)
            log.warning("%s", problem, extra=tags(key))
            return Report(refused=True)
        self._cache.put(body)
        ledger.made[slot] = body
        self._telemetry.action("apply", slot[0])
        healed = slot in ledger.problems
        if ledger.note_applied(slot, mark, now) == PATIENCE:
            log.warning("another writer keeps changing %s %s back; applying it less often", *slot, extra=tags(key))
        log.info("applied %s %s: %s", *slot, action.why, extra={**tags(key), "reason": str(action.reason)})
        return Report(acted=1, refused=healed)

    async def _send(
        self, resource: Resource, manifest: Mapping[str, Any], held: Body | None, uid: str | None, still: Still
    ) -> Body:
        """Apply `manifest`, to a workload only as it was decided upon: an autoscaler, or the leader before us, may have
        written it since. Where only the status of a rollout's second object was written, apply it once more: the first
        is written, so the next tick would take the second for a repair and lose what to go back to. Returns the stored
        object."""
        version = held["metadata"].get("resourceVersion") if held is not None and resource.kind in WORKLOADS else None
        apply = partial(self._kube.apply, resource, manifest, uid=uid, still=still)
        try:
            return trim(await apply(version=version))
        except ConflictError:
            if held is None or not resource.last:
                raise
            metadata = manifest["metadata"]
            found = trim(await self._kube.get(resource, metadata["namespace"], metadata["name"]))
            if _without_status(found) != _without_status(held):
                raise
            return trim(await apply(version=found["metadata"]["resourceVersion"]))

    async def _foreseen(
        self, key: Key, action: ApplyChild, ledger: Ledger, uid: str | None, now: float
    ) -> tuple[Condition, float] | None:
        """The condition that says why the manifest is not sent, and until when; None where it is sent."""
        manifest, (kind, name) = action.manifest, slot_of(action.manifest)
        if kind not in WORKLOADS:
            return None
        resource = CHILD_BY_KIND[kind]
        if action.reason is Reason.REPAIRED and ledger.is_repeated((kind, name), digest(manifest, 16), now):
            found = changed_back_condition(action, await self._kube.get(resource, key[0], name))
            log.warning("%s", found.message, extra=tags(key))
            return found, inf
        if image_volumes(manifest) and not await keeps_images(self._kube, resource, manifest, uid):
            found = Condition(
                ConditionType.READY, Truth.FALSE, Reason.UNSUPPORTED_SOURCE, f"{kind} {name}: {NO_IMAGES}", (kind, name)
            )
            return found, now + FORBIDDEN_PAUSE
        return None

    async def _refusal(self, error: ApiError, slot: Slot, key: Key, ledger: Ledger, now: float) -> ApiError | None:
        """The error that is shown as a problem; None where the next tick only has to see the child as it is. Raises
        errors that may pass by themselves, until they have come PATIENCE times in a row."""
        if isinstance(error, UnavailableError) and ledger.note_failed(slot) < PATIENCE:
            raise error
        if not isinstance(error, ConflictError):
            return error
        try:
            await self._look(slot, key, ledger, now)
        except ForbiddenError as hidden:
            return hidden
        return None

    async def _look(self, slot: Slot, key: Key, ledger: Ledger, now: float) -> None:
        """Read a child that is not what the cache says, so that the next tick sees whose it is."""
        kind, name = slot
        try:
            body = await self._kube.get(CHILD_BY_KIND[kind], key[0], name)
        except NotFoundError:
            held = self._cache.snapshot(key)
            if held is not None and slot in held.children:
                self._cache.remove(held.children[slot])
            return
        body.setdefault("kind", kind)
        if home_of(body) in (key, (key[0], "")):
            self._cache.put(body)
        else:
            ledger.foreign[slot] = (outline(body), now + (FOREIGN_CLAIM_PAUSE if kind == CLAIM.kind else FOREIGN_PAUSE))

    async def _create(self, key: Key, snapshot: Snapshot, action: ApplyChild) -> Report:
        """Create a candidate. One by its name, whoever made it, is never changed; a refusal is logged, and the next
        reconcile tries again until the candidate's time is over: nothing that serves waits for it. Its own watch brings
        it: from the cache it would be no news, and nobody would reconcile it."""
        if not self._still(key, snapshot):
            return Report(again=True)
        try:
            await self._kube.create(OWNER, key[0], action.manifest)
        except ConflictError:
            return Report()
        except ApiError as error:
            log.warning("no candidate: %s", error, extra=tags(key))
            return Report()
        self._telemetry.action("apply", OWNER.kind)
        log.info("created candidate %s: %s", slot_of(action.manifest)[1], action.why, extra=tags(key))
        return Report(acted=1)

    async def _delete(self, key: Key, snapshot: Snapshot, action: DeleteChild) -> Report:
        still = partial(self._still, key, snapshot)
        try:
            await self._kube.delete(_WRITTEN[action.kind], key[0], action.name, action.uid, still=still)
        except NotFoundError:
            return Report()
        except ConflictError:
            return Report(again=True)
        self._telemetry.action("delete", action.kind)
        log.info("deleted %s %s: %s", action.kind, action.name, action.why, extra=tags(key))
        return Report(acted=1)

    async def _poke(self, snapshot: Snapshot, action: PokePod) -> Report:
        pod = next((pod for pod in snapshot.pods if pod["metadata"]["name"] == action.pod), None)
        if pod is None:
            return Report()
        metadata = {"uid": pod["metadata"]["uid"], "annotations": {names.ANNOTATION_POKE: action.value}}
        try:
            body = await self._kube.merge(
                POD, pod["metadata"]["namespace"], action.pod, {"metadata": metadata}, still=self._leading
            )
        except (NotFoundError, ConflictError, OutdatedError, ForbiddenError, InvalidError):
            return Report()  # refused: the kubelet delivers the table by itself, a minute or two later
        self._cache.put(body)
        self._telemetry.action("poke", POD.kind)
        return Report(acted=1)

    def _still(self, key: Key, snapshot: Snapshot, *, replaces: bool = False) -> bool:
        """True while the object is the one the tick saw and wants what it wanted, and this replica may write. With
        `replaces` also only while no pod has found a node since: an old one might end for it without need."""
        owner = self._cache.owner(key)
        if owner is None or not self._leading():
            return False
        now = self._cache.snapshot(key) if replaces else None
        if now is not None and _placed(now) - _placed(snapshot):
            return False
        seen, meta = snapshot.owner["metadata"], owner["metadata"]
        return (
            meta["uid"] == seen["uid"]
            and meta.get("generation") == seen.get("generation")
            and (meta.get("annotations") or {}).get(names.ANNOTATION_PAUSED)
            == (seen.get("annotations") or {}).get(names.ANNOTATION_PAUSED)
            and not meta.get("deletionTimestamp")
        )


_WRITTEN = {**CHILD_BY_KIND, OWNER.kind: OWNER}
"""Children by their kind, and a candidate."""


def _resource(action: ApplyChild) -> Resource:
    return _WRITTEN[action.manifest["kind"]]


def _is_workload(action: ApplyChild | DeleteChild) -> bool:
    return isinstance(action, ApplyChild) and action.manifest["kind"] in WORKLOADS


def _is_shared(action: ApplyChild) -> bool:
    """True for the ConfigMap of the plug-in, which has no owner."""
    return action.manifest["kind"] == CONFIG_MAP.kind and "ownerReferences" not in action.manifest["metadata"]


def _without_status(body: Body) -> Body:
    metadata = {name: value for name, value in body["metadata"].items() if name != "resourceVersion"}
    kept = {name: value for name, value in body.items() if name not in ("status", "apiVersion", "kind")}
    return {**kept, "metadata": metadata}


def _join(reports: Sequence[Report]) -> Report:
    return Report(
        sum(report.acted for report in reports),
        any(report.refused for report in reports),
        any(report.again for report in reports),
    )


def worst(failures: Sequence[BaseException]) -> BaseException:
    """The failure that decides how the reconcile ends: a terminating namespace ends it, else the longest wait wins."""
    for failure in failures:
        if not isinstance(failure, ApiError):
            return failure
    for failure in failures:
        if isinstance(failure, NamespaceTerminatingError):
            return failure
    return max(failures, key=lambda failure: getattr(failure, "retry_after", None) or 0.0)


def _placed(snapshot: Snapshot) -> set[str]:
    """Serving pods that have a node."""
    return {pod["metadata"]["uid"] for pod in snapshot.pods if (pod.get("spec") or {}).get("nodeName")}


def _problem(error: ApiError, slot: Slot, mark: str, generation: int, now: float) -> Problem:
    reason = next((one for kind, one in _REASONS.items() if isinstance(error, kind)), Reason.RENDER_INVALID)
    # Longer messages quote the whole object back; conditions hold 32 KiB, people read less.
    message = f"{slot[0]} {slot[1]}: {error.message}"[:1000]
    condition = Condition(ConditionType.READY, Truth.FALSE, reason, message, slot)
    return Problem(condition, mark, generation, inf if reason is Reason.RENDER_INVALID else now + FORBIDDEN_PAUSE)
