"""From the pair that a spec asks for to the pair that pods may be made of. Called by `tick` before it renders.

    read (a Job)  ->  pin and compare  ->  fetch (a Job, with a claim as cache)  ->  pods  (fetch, with another cache)

Until a pair has come all the way, pods stay as they are: those of the pair before serve on, with their table. A pair
that could not be read because a source did not answer is served unread, as without this module; a pair that a source
refuses, or whose models do not fit each other, gets no pods at all. Branches and tags are resolved once; when one has
moved, pods follow only when the user asks for it. Running pods keep their versions where the versions that were asked
for, or lost from the status, cannot be read, and where no Job reads models any more.
"""

from __future__ import annotations

from dataclasses import replace

from speculative_operator.domain.actions import Action
from speculative_operator.domain.jobs import JobSeen, Purpose
from speculative_operator.domain.models import ModelFacts
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.domain.spec import MOUNTED, Cache, Scheme
from speculative_operator.reconcile.pair import jobs, verdicts
from speculative_operator.reconcile.pair.arrival import arrival, refusal_of_pods, stuck, too_small
from speculative_operator.reconcile.pair.choices import (
    Pairing,
    compares,
    from_template,
    home_of,
    not_followed_notice,
    running_pair,
    unread_pairing,
)
from speculative_operator.reconcile.pair.pinning import PairedSpec, former_pair, pin_models, unpinned
from speculative_operator.reconcile.pair.stages import Stage, Stages
from speculative_operator.reconcile.pair.verdicts import Judged
from speculative_operator.reconcile.snapshot.records import (
    Failure,
    Known,
    Record,
    Wanted,
    blank,
    following,
    pack,
    wanted_of,
)
from speculative_operator.reconcile.snapshot.results import Result
from speculative_operator.reconcile.snapshot.take import Snapshot
from speculative_operator.reconcile.snapshot.template import sets_environment
from speculative_operator.render.metadata import pair_hash

BLOCKED_SECONDS = 300.0
"""Seconds until a failed Job is retried that pods wait for: users often repair the cause by hand, in a Secret."""
UNREAD_SECONDS = 3600.0
"""The same where pods were made of an unread pair, and nothing waits for the Job."""
LOOK_SECONDS = 900.0
"""Seconds between two looks into a cache from which pods do not start."""
RENEW_SECONDS = 12 * 3600.0
"""Seconds between two renewals of marks of use in a claim: a sixtieth of the time for which other objects go by a
mark."""


_OWN_WAYS = frozenset({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HOME", "HF_HUB_CACHE"})
"""Environment variables by which an engine finds models where no Job looks."""


def pairing_of(world: Snapshot, spec: ResolvedSpec, now: float) -> Pairing:
    """The pairing of one object, whose speculator is picked in `spec`; `now` in unix seconds. Raises RenderError."""
    checks = compares(world)
    if not checks and not (world.capabilities.job_image and world.spec.weights.cache is not None):
        return unread_pairing(world, spec)
    return _Way(world, spec, now, checks=checks).pairing()


class _Way:
    """The way of one pair through one reconcile, step by step."""

    def __init__(self, world: Snapshot, spec: ResolvedSpec, now: float, *, checks: bool) -> None:
        self._world, self._spec, self._now, self._checks = world, spec, now, checks
        self._wanted = wanted_of(spec)
        fetches = any(source.scheme not in MOUNTED for source in self._wanted.sources)
        self._cache = spec.weights.cache if fetches else None
        self._place = self._cache.place if self._cache is not None else ""
        self._home = home_of(self._cache)
        self._running = running_pair(world)
        self._current = world.status.pair.trusted
        held = (one for one in (self._current, world.status.coming) if one.covers(self._wanted))
        self._record = next(held, None) or blank(self._wanted, spec)
        self._mine = self._record is self._current
        self._coming: Record | None = None
        """The record of the versions that were asked for, while running pods keep theirs."""
        self._actions: list[Action] = []

    def pairing(self) -> Pairing:
        inspecting = self._inspect()
        if self._record.failure is not None and self._repins:
            self._coming, self._record, self._mine = self._record, self._current, True
        known = self._record.known
        if known is None:
            return self._unread(inspecting)
        found = verdicts.judge_pair(self._spec, known, self._world.memo) if self._checks else None
        self._record = replace(self._record, verdict=found.word if found is not None else "")
        if found is not None and not found.verdict.compatible:
            self._actions += jobs.leftover(self._world, Purpose.FETCH)
            return self._hold(Stages(Stage.MISMATCH, self._place, judged=found, known=known))
        stages = self._fetch(known, found)
        if stages.stage is not Stage.READY:
            return self._hold(stages)
        return self._ready(known, stages, found)

    @property
    def _repins(self) -> bool:
        """True where pods run, and the same sources were read before: only newer versions of them are asked for."""
        return self._current.known is not None and self._record.known is None and self._asked_anew

    @property
    def _asked_anew(self) -> bool:
        """True where running pods have the same sources, and the annotation `repin` has another value."""
        same = self._current.covers(replace(self._wanted, repin=self._current.repin))
        return bool(self._running) and not self._mine and same

    # -- steps

    def _inspect(self) -> JobSeen | None:
        """Has a Job read the pair where it is not known. Returns the Job as last seen; None without one."""
        record = self._record
        if record.known is not None:
            self._actions += jobs.leftover(self._world, Purpose.INSPECT)
            return None
        waits = self._place or record.failure is None or self._final(record.failure) or self._repins
        pause = BLOCKED_SECONDS if waits else UNREAD_SECONDS
        wanted = jobs.inspection(self._world, self._wanted)
        tried = jobs.attempt(self._world, wanted, record.failure, pause, self._now)
        self._actions += tried.actions
        facts, failure = _facts(tried.result, self._wanted), tried.failure
        if tried.result is not None and facts is None:
            message = "the operator cannot read the Job's result; operator and Job may be different releases"
            failure = Failure(Reason.PAIR_UNREAD, message, self._now, "")
        if facts is not None:
            self._record = record.with_facts(*facts, self._now)
        else:
            self._record = replace(record, failure=failure)
        return tried.seen

    def _final(self, failure: Failure) -> bool:
        """True where a source would refuse the engine as it refused the Job. False for images, which the kubelet pulls
        with its own secrets, and for an engine that the pod template or HF_HUB_OFFLINE gives another way to its
        weights."""
        if not failure.final or any(source.scheme is Scheme.OCI for source in self._wanted.sources):
            return False
        own = sets_environment(self._spec.template)
        return not own and not any(one.get("name") in _OWN_WAYS for one in self._spec.engine.env)

    def _fetch(self, known: Known, found: Judged | None) -> Stages:
        """Brings the pair into the cache, where there is one, and returns how far the pair has come."""
        record, ready = self._record, Stages(Stage.READY, self._place, judged=found, known=known)
        if not self._place:
            self._record = replace(record, cache="")
            self._actions += jobs.leftover(self._world, Purpose.FETCH)
            return ready
        if self._cache is not None and self._cache.in_pods:
            self._actions += jobs.leftover(self._world, Purpose.FETCH)
            return self._fetch_by_pods(self._cache, known, ready)
        lies = record.cache == self._home
        doubt = stuck(self._world.pods, pin_models(self._spec, known, self._home).hashes) if lies else ""
        if lies and not self._looks_again(record, doubt):
            self._record = replace(record, failure=None)
            self._actions += jobs.leftover(self._world, Purpose.FETCH)
            return ready
        return self._fetch_by_job(known, ready, doubt, lies=lies)

    def _fetch_by_job(self, known: Known, ready: Stages, doubt: str, *, lies: bool) -> Stages:
        """Has a Job fetch the pair, or look whether it `lies` in the cache as the status says."""
        record = self._record
        keep = {*self._world.kept, *self._current.keys, *self._current.previous, *record.keys}
        wanted = jobs.fetching(self._world, known.models, tuple(keep), self._now)
        if wanted is None:
            self._record = replace(record, cache=self._home)
            return ready
        claim = jobs.claim(self._world, self._world.spec.weights.cache)
        self._actions += claim
        if claim and not lies:
            # Whose claim it is tells what its Job may do to it.
            self._record = replace(record, cache="")
            return replace(ready, stage=Stage.FETCHING)
        pause = UNREAD_SECONDS if lies and not doubt else BLOCKED_SECONDS
        tried = jobs.attempt(self._world, wanted, record.failure, pause, self._now)
        self._actions += tried.actions
        self._record = replace(record, failure=tried.failure)
        if tried.result is not None:
            self._record = replace(self._record, cache=self._home, cached_at=self._now)
            return ready
        comes = tried.seen is not None and tried.seen.progress is not None
        if lies and not comes:
            # Nothing shows yet that something is missing: pods may be stuck for another reason.
            return replace(ready, doubt=doubt, failure=tried.failure if doubt else None)
        self._record = replace(self._record, cache="")
        failure = None if comes else tried.failure
        stage = Stage.FETCHING if failure is None else Stage.NOT_FETCHED
        return replace(ready, stage=stage, job=tried.seen, failure=failure)

    def _looks_again(self, record: Record, doubt: str) -> bool:
        """True where a Job is to look whether models lie in the cache as status has it: pods do not start from there,
        or their marks of use are to be renewed before others take them for unused."""
        since = self._now - record.cached_at if record.cached_at is not None else None
        if doubt:
            return since is None or not 0 <= since < LOOK_SECONDS
        renews = self._cache is not None and self._cache.collect
        return renews and bool(self._running) and (since is None or not 0 <= since < RENEW_SECONDS)

    def _fetch_by_pods(self, cache: Cache, known: Known, ready: Stages) -> Stages:
        """Lets pods be made at once that fetch the pair themselves, unless the cache is too small for it."""
        short = too_small(cache, known.models if self._spec.speculates else (known.verifier,))
        if short:
            failure = Failure(Reason.CACHE_FULL, short, self._now, "")
            return replace(ready, stage=Stage.NOT_FETCHED, failure=failure)
        self._record = replace(self._record, cache=cache.home, failure=None)
        target = pin_models(self._spec, known, cache.home)
        if target.pinned.weights.cache is None or not target.pinned.weights.cache.brought:
            return replace(ready, place="")
        before = self._world.status.condition(ConditionType.WEIGHTS_READY)
        found = arrival(cache, self._world.pods, target.hashes, self._world.arriving, before)
        refusal = refusal_of_pods(cache, self._world.rollout.refused)
        if refusal is not None and found.reason is None:
            found = replace(found, reason=refusal[0], message=refusal[1])
        return replace(ready, arrival=found)

    # -- ends

    def _unread(self, job: JobSeen | None) -> Pairing:
        self._actions += jobs.leftover(self._world, Purpose.FETCH)
        failure, plain = self._record.failure, unpinned(self._spec)
        if failure is None:
            stages = Stages(Stage.READING, self._place, job=job)
            # The pods that run are of what the spec says: nobody waits for a look at it.
            goes_on = not self._place and self._running in plain.hashes
        else:
            stages = Stages(Stage.UNREAD, self._place, failure=failure)
            goes_on = not self._place and not self._final(failure)
        left = plain if self._running in plain.hashes else from_template(self._world, self._spec, self._current)
        # Pods of which nobody knows whether they are of the spec's sources are no pods to be replaced unread.
        if not goes_on or (left is None and self._running and not self._current.hash):
            return self._hold(stages)
        choice = left if left is not None else plain
        lost = failure is not None and choice.pinned is not self._spec
        record, coming = (self._current, self._record) if lost and self._asked_anew else (self._record, None)
        record = replace(record, hash=pair_hash(choice.pinned), verdict="")
        return self._finish(Pairing((choice,), replace(stages, goes_on=True), record, coming))

    def _ready(self, known: Known, stages: Stages, found: Judged | None) -> Pairing:
        spec, drafter = self._spec, self._spec.speculator
        target, plain = pin_models(spec, known, self._record.cache), unpinned(spec)
        record = following(self._record, None if self._mine else self._current)
        if not known.adopted or known.drafter != drafter:
            record = replace(record, facts=pack(replace(known, drafter=drafter, adopted=True)))
        pairing = Pairing(
            choices=(*self._run_on(plain, target), target),
            stages=stages,
            record=record,
            coming=self._coming,
            facts=found.facts if found is not None else None,
        )
        return self._finish(pairing)

    def _run_on(self, plain: PairedSpec, target: PairedSpec) -> tuple[PairedSpec, ...]:
        """The spec that running pods were made of before their pair was read, or whose versions the status has lost: no
        reason to replace them. Empty where there is none."""
        if not self._running or self._running in target.hashes:
            return ()
        if not self._place and self._running in plain.hashes:
            return (plain,)
        known = bool(self._current.hash) and self._asked_anew
        left = from_template(self._world, self._spec, self._current, self._place) if not known else None
        return (left,) if left is not None else ()

    def _hold(self, stages: Stages) -> Pairing:
        """The pairing by which pods stay as they are. Where there are none yet, its record is the pair that they will
        be made of first."""
        if not self._running:
            return self._finish(Pairing((), stages, self._record, frozen=True))
        known = self._current.known
        former = former_pair(self._spec, known, self._current.asked, self._current.cache) if known is not None else None
        runs = [one for one in (former, unpinned(self._spec)) if one is not None and self._running in one.hashes]
        current = self._record if self._mine else self._current
        coming = self._coming if self._mine else self._record
        return self._finish(Pairing(tuple(runs[:1]), stages, current, coming, frozen=True))

    def _finish(self, pairing: Pairing) -> Pairing:
        known = self._record.known
        hashes = {pair_hash(self._spec)}
        if known is not None:
            hashes.add(pair_hash(pin_models(self._spec, known, self._home).pinned))
            hashes.add(pair_hash(pin_models(self._spec, known, "").pinned))
        unread = self._coming.failure if self._coming is not None else None
        return replace(
            pairing,
            conditions=pairing.stages.conditions(self._spec) if pairing.stages is not None else (),
            actions=tuple(self._actions),
            notices=(not_followed_notice(unread),) if unread is not None else (),
            same=frozenset(hashes),
        )


def _facts(result: Result | None, wanted: Wanted) -> tuple[ModelFacts, ModelFacts | None] | None:
    """The facts of both models in the result of a Job; None where a model that was asked for is missing or
    unreadable."""
    if result is None or result.verifier is None or (wanted.speculator is not None and result.speculator is None):
        return None
    return result.verifier, result.speculator if wanted.speculator is not None else None
