"""Jobs that read or fetch the models of a pair: when one is made, what its result is, when it is retried; and the
claims of caches. Used by `pairing` and `tick`.

A Job is never changed. A Job with other inputs is deleted, and the next reconcile makes the right one. A Job that
succeeded is deleted once the status holds its result; one that failed stays for its log until the next attempt.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.actions import Action, ApplyChild, Condition, DeleteChild
from speculative_operator.domain.jobs import JobSeen, Phase, Purpose
from speculative_operator.domain.models import ModelFacts
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import MOUNTED, Cache, DeploymentSpec, ModelSource, Scheme
from speculative_operator.reconcile.snapshot.children import Child
from speculative_operator.reconcile.snapshot.records import SIDES, Failure, Wanted
from speculative_operator.reconcile.snapshot.results import Failed, Result
from speculative_operator.reconcile.snapshot.take import Snapshot
from speculative_operator.render.jobs import CACHE, JobInput, cache_claim, job, job_name, of_engine, user
from speculative_operator.render.metadata import canonical, digest

KIND = "Job"
OVERDUE_SECONDS = 600.0
"""Seconds after which a Job that reads models counts as failed: twice its deadline."""
_NO_RESULT = "the Job ended without a result; read the log of its pod"


@dataclass(frozen=True, slots=True)
class Attempt:
    """How far a Job has come."""

    actions: tuple[Action, ...] = ()
    seen: JobSeen | None = None
    """The Job while it runs; None where there is none yet."""
    result: Result | None = None
    """The result of the Job, once it has succeeded."""
    failure: Failure | None = None
    """Why the last Job failed; None without a failure."""


def inspection(world: Snapshot, wanted: Wanted) -> JobInput:
    """The inputs of the Job that reads both models."""
    args = ["inspect", *_side("verifier", wanted.verifier)]
    if wanted.speculator is not None:
        args += _side("speculator", wanted.speculator)
    return _input(world, Purpose.INSPECT, tuple(args), "", claims=_claims(*wanted.sources))


def fetching(world: Snapshot, models: tuple[ModelFacts, ...], keep: tuple[str, ...], now: float) -> JobInput | None:
    """The inputs of the Job that fetches `models` into the cache and, where the cache collects, removes others except
    the folders `keep`, as listed at `now`. None where nothing is to be fetched: the kubelet mounts models of claims and
    images."""
    cache = world.spec.weights.cache
    sides = zip(("verifier", "speculator"), (facts.pin for facts in models), strict=False)
    brought = [(side, pin) for side, pin in sides if pin.scheme not in MOUNTED]
    if cache is None or not brought:
        return None
    args = ["fetch", "--cache", CACHE]
    for side, pin in brought:
        args += _side(side, pin.source)
    wanted = (*args, names.CACHE_FOLDER)
    args += ["--object", user(world.spec)]
    if cache.collect:
        args += ["--collect", "--listed-at", f"{now:.0f}"]
        for key in sorted(keep):
            args += ["--keep", key]
    return _input(world, Purpose.FETCH, tuple(args), canonical(wanted), cache=cache.claim)


def attempt(world: Snapshot, wanted: JobInput, failure: Failure | None, pause: float, now: float) -> Attempt:
    """The state of the Job `wanted`, which is made where it is missing. `failure` is the one of the last Job, `pause`
    the seconds until another is tried after it. Raises RenderError."""
    name = job_name(wanted.spec, wanted.purpose)
    child = world.children.get((KIND, name))
    waits = failure is not None and 0 <= now - failure.at < pause
    if child is None:
        return _missing(world, wanted, failure, now, waits=waits)
    if not child.owned:
        message = f"{KIND} {name} exists and does not belong to this object; delete or rename it"
        return Attempt(failure=_same(failure, Failure(Reason.NAME_CONFLICT, message, now, child.uid)))
    if child.deleting:
        return Attempt(failure=failure)
    if child.wanted != wanted.wanted:
        return Attempt((_deletion(child, "was created for other inputs"),))
    seen = next((one for one in world.jobs if one.name == name), None)
    if seen is None or seen.phase is Phase.RUNNING:
        return Attempt(seen=seen, failure=failure or _overdue(child, wanted.purpose, seen, now))
    return _end(child, seen, world.results.get(name, Result()), failure, now, waits=waits)


def leftover(world: Snapshot, purpose: Purpose) -> tuple[Action, ...]:
    """The action that deletes the object's Job for `purpose`, which nobody waits for any more; empty without a Job."""
    child = world.children.get((KIND, job_name(world.spec, purpose)))
    if child is None or not child.owned or child.deleting or not child.uid:
        return ()
    return (_deletion(child, "is done"),)


def claim(world: Snapshot, cache: Cache | None) -> tuple[Action, ...]:
    """The action that creates the claim of a cache, where the operator is to make it and it is missing. Raises
    RenderError."""
    if cache is None or not cache.size or cache.claim in world.claims | world.foreign_claims:
        return ()
    what = f"PersistentVolumeClaim {cache.claim}"
    return (ApplyChild(cache_claim(world.spec, cache), Reason.CREATED, f"{what} is missing"),)


def of_jobs(problem: Condition) -> bool:
    """True for a problem that speaks of a Job: pods do not depend on it."""
    return problem.about is not None and problem.about[0] == KIND


def _missing(world: Snapshot, wanted: JobInput, failure: Failure | None, now: float, *, waits: bool) -> Attempt:
    name = job_name(wanted.spec, wanted.purpose)
    refused = next((one for one in world.problems if one.about == (KIND, name)), None)
    if refused is not None and failure is None:
        # A quota, an admission rule or a missing permission: waiting would not make the Job.
        failure, waits = Failure(refused.reason, refused.message, now, ""), True
    if waits:
        return Attempt(failure=failure)
    reason = Reason.INSPECTING if wanted.purpose is Purpose.INSPECT else Reason.DOWNLOADING
    action = ApplyChild(job(wanted), reason, f"{KIND} {name} is missing")
    # Until it is there, what keeps it from being made; nothing of an earlier one.
    seen = next((one for one in world.jobs if one.name == name), None)
    return Attempt((action,), seen=seen, failure=failure)


def _overdue(child: Child, purpose: Purpose, seen: JobSeen | None, now: float) -> Failure | None:
    """The failure of a Job that reads models and has not ended for too long; else None. A queue that suspends the Job
    stops the clock of its deadline."""
    if purpose is not Purpose.INSPECT or child.created is None or now - child.created < OVERDUE_SECONDS:
        return None
    why = seen.trouble if seen is not None and seen.trouble else "it is not running"
    message = f"{KIND} {child.name} has not ended for {OVERDUE_SECONDS / 60:.0f} minutes: {why}"
    return Failure(Reason.PAIR_UNREAD, message, now, child.uid)


def _end(child: Child, seen: JobSeen, result: Result, failure: Failure | None, now: float, *, waits: bool) -> Attempt:
    """The attempt with a Job that has ended: its result or its failure, which stands while the Job is retried."""
    if seen.phase is Phase.SUCCEEDED and result.done:
        return Attempt(seen=seen, result=result)
    if failure is None or failure.job != child.uid:
        return Attempt(failure=_failure_of(seen, result.failed, child.uid, now))
    return Attempt(failure=failure) if waits else Attempt((_deletion(child, "failed and is retried"),), failure=failure)


def _failure_of(seen: JobSeen, failed: Failed | None, uid: str, now: float) -> Failure:
    if failed is None:
        return Failure(Reason.SOURCE_UNREACHABLE, seen.trouble or _NO_RESULT, now, uid)
    return Failure(*explain_error(failed), now, uid, failed.side if failed.side in SIDES else "")


def explain_error(failed: Failed) -> tuple[Reason, str]:
    """Reason and words of the error that `speculative-weights` leaves."""
    message = (f"{failed.side}: " if failed.side else "") + failed.message
    message += (f" ({failed.file})" if failed.file else "") + (f"; {failed.remedy}" if failed.remedy else "")
    return failed.reason or Reason.SOURCE_UNREACHABLE, message


def _same(before: Failure | None, after: Failure) -> Failure:
    """`before` where it is the same failure of the same Job, so that the time is that of the first notice; else
    `after`."""
    return before if before is not None and before.job == after.job and before.reason is after.reason else after


def _deletion(child: Child, why: str) -> DeleteChild:
    return DeleteChild(KIND, child.name, child.uid, f"{KIND} {child.name} {why}")


def _input(
    world: Snapshot,
    purpose: Purpose,
    args: tuple[str, ...],
    mark: str,
    *,
    claims: tuple[str, ...] = (),
    cache: str = "",
) -> JobInput:
    spec = world.spec
    made_for = [purpose.value, mark, cache, _settings(spec), spec.uid, [] if cache else list(args)]
    return JobInput(
        spec=spec,
        purpose=purpose,
        wanted=digest(made_for, 16),
        image=world.capabilities.job_image,
        args=args,
        claims=claims,
        cache=cache,
        owns_cache=cache in world.claims,
        assigns_uids=world.capabilities.assigns_uids,
        env=world.capabilities.job_env,
    )


_NO_MATTER = frozenset({"check", "cache", "bytes", "verifier_bytes"})


def _settings(spec: DeploymentSpec) -> dict[str, Any]:
    """The settings that decide whether a source can be read: where a user changes one, another Job is made at once."""
    settings = asdict(spec.weights)
    kept = {name: value for name, value in settings.items() if name not in _NO_MATTER}
    return kept | {"engine": list(of_engine(spec))}


def _side(side: str, source: ModelSource) -> list[str]:
    args = [f"--{side}", source.uri]
    return [*args, f"--{side}-revision", source.revision] if source.revision else args


def _claims(*sources: ModelSource) -> tuple[str, ...]:
    found = (source.location.partition("/")[0] for source in sources if source.scheme is Scheme.PVC)
    return tuple(dict.fromkeys(found))
