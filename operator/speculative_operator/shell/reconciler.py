"""One reconcile of one object, one way: snapshot, observation, tick, actions, status, events. Run by `operator`.

Nothing is read again on the way and `now` is taken once. What fails is raised and tried again later by the queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from speculative_operator.api.convert import to_domain
from speculative_operator.api.wire import SpecError
from speculative_operator.domain import names
from speculative_operator.domain.actions import Action
from speculative_operator.domain.jobs import JobSeen, Phase, Progress, Purpose
from speculative_operator.domain.memo import Memo
from speculative_operator.domain.observation import Observation, PodWindow
from speculative_operator.domain.reading import is_controlled_by, mapping, whole
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.engines.registry import engine_for
from speculative_operator.reconcile.observed.series import Recent, measured, steady
from speculative_operator.reconcile.snapshot import canaries, candidates, notes
from speculative_operator.reconcile.snapshot.notes import Notes
from speculative_operator.reconcile.snapshot.status import read_status
from speculative_operator.reconcile.snapshot.writing import cannot_wait, should_write
from speculative_operator.reconcile.tick import invalid
from speculative_operator.reconcile.world import Evidence, Outcome, World
from speculative_operator.settings import Settings
from speculative_operator.shell.bodies import Body, Key, key_of, ready_since
from speculative_operator.shell.cache import Cache, Snapshot
from speculative_operator.shell.errors import ApiError
from speculative_operator.shell.jobs import READ_EVERY
from speculative_operator.shell.ledger import Ledger
from speculative_operator.shell.report import Reporter
from speculative_operator.shell.resources import CLAIM, CONFIG_MAP
from speculative_operator.shell.rest import Rest, given_of, is_news, is_still
from speculative_operator.shell.sources import Canaries, Sources
from speculative_operator.shell.telemetry import Telemetry
from speculative_operator.shell.turns import late, queued_jobs, reading, without
from speculative_operator.shell.writes import Report, Writer
from speculative_operator.tuner import Memory

SOON = 0.3
"""Seconds until an object is looked at again after something was changed in the cluster for it, or was not as the
reconcile had found it. Pods are told of a new table then, once it has come back by a watch; sooner, a kubelet might be
told before its own watch brought the table."""
NEW_SECONDS = 60.0
"""Seconds for which a pod that became ready may lack figures: Prometheus has to find it, and to scrape it twice."""
FIGURES_SECONDS = 60.0
"""Seconds, and at least two ticks, for which a pod's figures stay in metrics: scrapes and rounds do not keep step."""


Tick = Callable[[World, Memory | None, Observation | None, float], Outcome]
"""`reconcile.tick.tick`, or a fake."""


@dataclass(slots=True)
class _State:
    """What is remembered of one object between reconciles; none of it is needed after a restart."""

    uid: str
    status_at: float
    """unix seconds of the last write of status."""
    memory: Memory | None = None
    leaving: Mapping[str, Memory] = field(default_factory=dict)
    """Label of a pair whose pods are being replaced -> the tuner's memory of it."""
    ledger: Ledger = field(default_factory=Ledger)
    consumed: dict[str, float] = field(default_factory=dict)
    """Pod -> time of the last sample used."""
    round_at: float = 0.0
    notes: Notes | None = None
    notes_at: float = 0.0
    """unix seconds of the last write of notes, or of the first look."""
    lost: tuple[Body, Body] | None = None
    """A status as it was stored, and as it was written, where the definition on the cluster lacks fields of it."""
    memo: Memo = field(default_factory=Memo)
    rest: Rest = field(default_factory=Rest)
    recent: Recent = field(default_factory=Recent)
    """Kept for the object's metrics."""


class Reconciler:
    """Reconciles objects."""

    def __init__(
        self,
        settings: Settings,
        cache: Cache,
        writer: Writer,
        reporter: Reporter,
        telemetry: Telemetry,
        sources: Sources,
        tick: Tick,
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._writer = writer
        self._reporter = reporter
        self._telemetry = telemetry
        self._sources = sources
        self._tick = tick
        self._states: dict[Key, _State] = {}
        self.canaries = Canaries(cache)

    def start_over(self) -> None:
        """Forget all objects, as a restart would."""
        for key in list(self._states):
            self.forget(key)

    def forget(self, key: Key) -> None:
        """Forget an object that is gone."""
        self._sources.turns.leave(key)
        self._sources.past.forget(key)
        self.canaries.forget(key)
        self._states.pop(key, None)
        self._telemetry.of_objects.forget(key)

    def rests(self, key: Key) -> float | None:
        """Seconds until the next look at an object that need not be reconciled now; None for any other."""
        snapshot, state = self._cache.snapshot(key), self._states.get(key)
        if snapshot is None or state is None:
            return None
        if not state.rest.holds(given_of(snapshot, self._sources, state.round_at), time.time()):
            return None
        self._telemetry.tick("quiet")
        found = self._sources.latest(snapshot.owner["metadata"]["namespace"])
        if found is not None and found.gap is not None and is_news(found, snapshot, state.round_at):
            state.round_at = found.time
            self._telemetry.gap(found.gap.reason)
        return state.rest.again

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile one object; returns seconds until its next reconcile, None when it is gone.

        Raises ApiError when the reconcile should be tried again later.
        """
        snapshot = self._cache.snapshot(key)
        if snapshot is None or snapshot.owner["metadata"].get("deletionTimestamp"):
            self.forget(key)
            return None
        now = time.time()
        state = self._state(key, snapshot.owner, now)
        given = given_of(snapshot, self._sources, state.round_at)
        rest, state.rest = state.rest, Rest()
        try:
            # Before anything of it is read: what is too large may take long.
            spec = None if snapshot.excess else to_domain(snapshot.owner)
        except SpecError as problem:
            return await self._refuse(snapshot, state, str(problem), now)
        if spec is None:
            return await self._refuse(snapshot, state, snapshot.excess, now)
        before, left = state.memory, state.leaving
        jobs = await self._sources.jobs.observe(snapshot, now)
        by_pods = spec.weights.cache is not None and spec.weights.cache.in_pods
        arriving = await self._sources.jobs.arriving(snapshot) if by_pods else {}
        outcome = self._decide(spec, snapshot, state, jobs, arriving, now)
        actions = self._in_turn(key, snapshot, outcome.actions, now)
        try:
            with self._telemetry.phase("apply"):
                report = await self._writer.carry_out(key, snapshot, actions, state.ledger, now)
        except ApiError:
            state.memory, state.leaving = _unless_changed(before, outcome.memory), left
            raise
        finally:
            self._sources.turns.release(key)
        if report.again:
            state.memory, state.leaving = _unless_changed(before, outcome.memory), left
            self._telemetry.tick("again")
            return SOON
        if outcome.tries_changed:
            self._count(snapshot.owner, Reason.TRIES_CHANGED)
        self._show(key, spec, outcome.status, state, now)
        with self._telemetry.phase("report"):
            await self._report(snapshot, spec, state, outcome, now)
        if _canary_moved(_told(snapshot.owner, state), outcome.status):
            return SOON  # the route follows the status that is stored by now
        hurries = self._sources.turns.near(key) or downloading(jobs) or bool(arriving)
        again = self._next(snapshot, state, report, hurries)
        if is_still(snapshot, spec, state.ledger) and self._is_quiet(snapshot, state, outcome, report):
            state.rest = rest.after(given, outcome.stands_for, now, again)
        return again

    def _is_quiet(self, snapshot: Snapshot, state: _State, outcome: Outcome, report: Report) -> bool:
        """True where nothing was done or told, and nothing waits to be."""
        done = outcome.actions or outcome.events or outcome.leaving or report.acted or report.refused
        return not done and not should_write(_told(snapshot.owner, state), outcome.status, 0.0, inf)

    def _state(self, key: Key, owner: Body, now: float) -> _State:
        uid = owner["metadata"]["uid"]
        state = self._states.get(key)
        if state is None or state.uid != uid:
            # A status that is there already may have been written a moment ago, before a restart.
            state = self._states[key] = _State(uid, now if owner.get("status") else 0.0, notes_at=now)
        return state

    def _decide(
        self,
        spec: DeploymentSpec,
        snapshot: Snapshot,
        state: _State,
        jobs: tuple[JobSeen, ...],
        arriving: Mapping[str, Progress],
        now: float,
    ) -> Outcome:
        """The outcome of the tick."""
        with self._telemetry.phase("observe"):
            observation = self._observe(spec, snapshot, state)
        strangers = state.ledger.strangers(now)
        claims = {name for kind, name in strangers if kind == CLAIM.kind}
        waited = self._sources.turns.waiting_seconds((spec.namespace, spec.name))
        children = {**{slot: body for slot, body in strangers.items() if slot[0] != CLAIM.kind}, **snapshot.children}
        world = World(
            spec=spec,
            status=snapshot.owner.get("status") or {},
            children=children,
            pods=snapshot.pods,
            capabilities=self._sources.capabilities(),
            problems=(*state.ledger.conditions(), *late(spec.name, waited, at_ease=bool(snapshot.ready))),
            applied=dict(state.ledger.made),
            jobs=(*jobs, *queued_jobs(spec.name, waited)),
            arriving=arriving,
            claims=frozenset(snapshot.claims.keys()),
            payloads={name: body["data"] for name, body in snapshot.payloads.items()},
            foreign_claims=frozenset(claims),
            catalogue=self._sources.catalogue(),
            leaving=state.leaving,
            kept=self._cache.folders_in_use((spec.namespace, spec.name))
            if spec.weights.cache is not None
            else frozenset(),
            canary=self.canaries.look(spec),
            asked=mapping(snapshot.owner, "spec"),
            candidate_body=candidate.owner if (candidate := self.canaries.candidate(spec)) is not None else None,
            candidate_pods=candidate.pods if candidate is not None else (),
            evidence=self._past(spec, snapshot, now),
            notes=state.notes,
            memo=state.memo,
        )
        with self._telemetry.phase("decide"):
            outcome = self._tick(world, state.memory, observation, now)
        state.memory, state.leaving, state.notes = outcome.memory, outcome.leaving, outcome.notes
        if observation is not None:
            state.recent = state.recent.after(observation, outcome.estimate)
        return outcome

    def _past(self, spec: DeploymentSpec, snapshot: Snapshot, now: float) -> Evidence | None:
        """What a canary or candidate and its object did, where one is analysed or measured."""
        status = mapping(snapshot.owner, "status")
        known, measured = canaries.read(mapping(status, "canary")), candidates.read(mapping(status, "measured"))
        running = measured.running if measured is not None and spec.measure is not None else None
        looked_at = running if running is not None else known
        compared = looked_at.compared if looked_at is not None else None
        other = self.canaries.spec_of((spec.namespace, spec.name))
        return self._sources.past.look(spec, other, compared, now)

    def _show(self, key: Key, spec: DeploymentSpec | None, status: Body, state: _State, now: float) -> None:
        """Show the object in the operator's own metrics."""
        limit = max(FIGURES_SECONDS, 2.0 * self._settings.tick_seconds)
        told = read_status(status)
        figures = measured(told, state.recent, now, limit) if spec is not None else ()
        self._telemetry.of_objects.put(key, steady(spec, told), figures, state.recent.newest + limit)

    def _count(self, owner: Body, reason: str) -> None:
        self._telemetry.decision(reason)
        self._telemetry.of_objects.count(key_of(owner), reason)

    def _in_turn(self, key: Key, snapshot: Snapshot, actions: tuple[Action, ...], now: float) -> tuple[Action, ...]:
        """`actions` without a Job that reads where it is not this object's turn; the next tick asks for it again."""
        turns, others = self._sources.turns, without(actions)
        if len(others) == len(actions):
            turns.leave(key)
            return actions
        may = turns.take(key, reading(self._cache.inspections(), now), at_ease=bool(snapshot.ready))
        return actions if may else others

    def _observe(self, spec: DeploymentSpec, snapshot: Snapshot, state: _State) -> Observation | None:
        """An observation of the ready pods, once for each round; None when no pod is ready or the round is known."""
        ready = [pod["metadata"]["name"] for pod in snapshot.ready]
        found = self._sources.latest(spec.namespace)
        if found is None or not is_news(found, snapshot, state.round_at):
            return None
        state.round_at = found.time
        if found.gap is not None:
            self._telemetry.gap(found.gap.reason)
            return Observation(found.time, gap=found.gap)
        stale = self._settings.stale_after_seconds
        seen = engine_for(spec).read(found.take(ready), ready, state.consumed, found.time, stale)
        windows = {pod: one if isinstance(one, PodWindow) else found.gaps.get(pod, one) for pod, one in seen.items()}
        state.consumed = {pod: end for pod, end in state.consumed.items() if pod in windows}
        for pod, window in windows.items():
            if isinstance(window, PodWindow):
                state.consumed[pod] = window.end
            else:
                self._telemetry.gap(window.reason)
        young = (pod["metadata"]["name"] for pod in snapshot.pods if found.time - ready_since(pod) < NEW_SECONDS)
        return Observation(found.time, windows, direct=found.direct, newcomers=frozenset(young))

    async def _report(
        self, snapshot: Snapshot, spec: DeploymentSpec | None, state: _State, outcome: Outcome, now: float
    ) -> None:
        owner, old = snapshot.owner, _told(snapshot.owner, state)
        due = should_write(old, outcome.status, state.status_at, now, self._sources.budget.interval)
        if due and (self._sources.budget.take() or cannot_wait(old, outcome.status)):
            if spec is not None and outcome.notes is not None:
                await self._keep(snapshot, spec, state, outcome.notes, now)
            stored = await self._reporter.status(owner, outcome.status)
            if stored is None:
                return
            state.lost = (stored, outcome.status) if stored != outcome.status else None
            state.status_at = now
            for reason in _new_reasons(old, outcome.status):
                self._count(owner, reason)
        await self._reporter.events(owner, outcome.events, now)

    async def _keep(self, snapshot: Snapshot, spec: DeploymentSpec, state: _State, wanted: Notes, now: float) -> None:
        """Write the notes, before the status that has the pins of their facts."""
        config = snapshot.children.get((CONFIG_MAP.kind, names.notes(spec.name)))
        foreign = config is not None and not is_controlled_by(config, spec.uid)
        found = notes.read(config, spec.uid)
        if foreign or not notes.should_write(found, wanted, state.notes_at, now):
            return
        self._sources.budget.take()
        uid = config["metadata"]["uid"] if config is not None else None
        if await self._reporter.notes(notes.manifest(spec, wanted), uid):
            state.notes_at = now

    async def _refuse(self, snapshot: Snapshot, state: _State, problem: str, now: float) -> float:
        """Tell why the object cannot be served, and leave what runs; returns seconds until the next reconcile."""
        owner = snapshot.owner
        self._telemetry.tick("invalid", Reason.SPEC_INVALID)
        outcome = invalid(owner, problem, now)
        self._show(key_of(owner), None, outcome.status, state, now)
        await self._report(snapshot, None, state, outcome, now)
        return self._settings.resync_seconds

    def _next(self, snapshot: Snapshot, state: _State, report: Report, hurries: bool) -> float:
        problems = state.ledger.problems.values()
        reason = next((str(problem.condition.reason) for problem in problems), "")
        self._telemetry.tick("refused" if reason else "acted" if report.acted else "quiet", reason)
        if report.refused or report.acted:
            return SOON
        # A round makes objects with ready pods due; this is for those without, and for rounds that stay away.
        wait = self._settings.tick_seconds * (1.5 if snapshot.ready else 1.0)
        return min(wait, READ_EVERY) if hurries else wait


def downloading(jobs: Iterable[JobSeen]) -> bool:
    """True while a download has progress to show."""
    return any(job.purpose is Purpose.FETCH and job.phase is Phase.RUNNING for job in jobs)


def _told(owner: Body, state: _State) -> Body:
    """What the status of an object says. Where it stands as the API server stored our last one, all that we wrote, or
    it would be written for ever."""
    held: Body = owner.get("status") or {}
    return state.lost[1] if state.lost is not None and state.lost[0] == held else held


def _canary_moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """True where the new status gives the canary another weight, or asks for a candidate or for its end."""
    before, after = (
        (whole(one, "canary", "weight"), bool(mapping(one, "measured", "candidate"))) for one in (old, new)
    )
    return before != after


def _unless_changed(before: Memory | None, after: Memory | None) -> Memory | None:
    """The memory after a tick whose actions failed: one that recorded a change as made would wait for its effect."""
    if before is None or after is None or after.changed_at == before.changed_at:
        return after
    return before


def _new_reasons(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Reasons of the decisions that the new status records and the old one did not."""
    known = [entry.get("time") for entry in old.get("decisions") or ()]
    return [str(entry.get("reason")) for entry in new.get("decisions") or () if entry.get("time") not in known]
