"""How far a pair has come, in the words of conditions and status. Made by `pairing`, shown by `tick`.

Messages change with transitions; only that of a running download has figures, and `status` writes those now and then.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from speculative_operator.domain import formats
from speculative_operator.domain.actions import Condition, Truth
from speculative_operator.domain.jobs import JobSeen, Progress
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.reconcile.pair import verdicts
from speculative_operator.reconcile.pair.arrival import Arrival, place_text
from speculative_operator.reconcile.pair.verdicts import Judged
from speculative_operator.reconcile.snapshot.records import Failure, Known

STALLED_SECONDS = 60.0
"""Seconds without a new byte after which a download counts as stalled."""


class Stage(StrEnum):
    READING = "Reading"
    """A Job reads both models."""
    UNREAD = "Unread"
    """The Job that reads both models failed."""
    MISMATCH = "Mismatch"
    """The models do not fit each other."""
    FETCHING = "Fetching"
    NOT_FETCHED = "NotFetched"
    """The Job that fetches failed, or the cache is too small."""
    READY = "Ready"


@dataclass(frozen=True, slots=True)
class Stages:
    """How far the pair has come, and what conditions and status say of it."""

    stage: Stage
    place: str = ""
    """Place of the cache (`Cache.place`); empty where the engine loads the weights itself."""
    judged: Judged | None = None
    known: Known | None = None
    job: JobSeen | None = None
    failure: Failure | None = None
    arrival: Arrival | None = None
    """Arrival of the weights that pods fetch themselves, once such pods may be made; else None."""
    doubt: str = ""
    """A sentence about a pod that does not start although its weights lie in the cache as far as is known; else
    empty."""
    goes_on: bool = False
    """True where pods are made although nothing is known of the pair yet."""

    @property
    def hold(self) -> Condition | None:
        """Why pods are not made of what the spec asks for; None where they are."""
        if self.stage is Stage.READY or self.goes_on:
            return None
        if self.stage is Stage.READING:
            return _not_ready(Reason.INSPECTING, f"pods wait until a Job has inspected both models{_trouble(self.job)}")
        if self.stage is Stage.FETCHING:
            stalled = self._progress is not None and self._progress.stalled_seconds >= STALLED_SECONDS
            reason = Reason.DOWNLOAD_STALLED if stalled else Reason.DOWNLOADING
            return _not_ready(reason, f"pods wait until the weights are in {place_text(self.place)}; see WeightsReady")
        if self.stage is Stage.MISMATCH and self.judged is not None:
            found = verdicts.mismatch(self.judged)
            return _not_ready(found.reason, f"no pod is created for this pair: {found.message}")
        failure = self.failure
        reason, why = (failure.reason, failure.message) if failure is not None else (Reason.UNKNOWN, "")
        return _not_ready(reason, why)

    def conditions(self, spec: DeploymentSpec) -> tuple[Condition, ...]:
        """The conditions PairCompatible, MemoryFits and WeightsReady, each only where the check of the pair has an
        answer."""
        found = (self._pair(spec), verdicts.memory(self.judged) if self.judged is not None else None, self._weights())
        return tuple(one for one in found if one is not None)

    def download(self) -> dict[str, Any]:
        """The block `status.weights`; empty without a cache, or while nothing is fetched."""
        if not self.place:
            return {}
        if self.arrival is not None and not _whole(self.arrival):
            return _figures(self.arrival.progress) if self.arrival.progress is not None else {}
        if self.stage is Stage.READY and self.known is not None:
            total = _total(self.known)
            return {"text": formats.size(total), "bytes": total, "totalBytes": total}
        if self.stage is not Stage.FETCHING:
            return {}
        return _figures(self._progress) if self._progress is not None else {"text": "starting"}

    @property
    def _progress(self) -> Progress | None:
        """Progress of the Job; None without one that reports any."""
        return self.job.progress if self.job is not None else None

    def _pair(self, spec: DeploymentSpec) -> Condition | None:
        kind = ConditionType.PAIR_COMPATIBLE
        if self.judged is not None:
            return verdicts.compatible(self.judged, spec)
        if self.known is not None:
            return None
        if self.failure is not None:
            if self.failure.final and not self.goes_on:
                return Condition(kind, Truth.UNKNOWN, self.failure.reason, self.failure.message)
            message = f"nothing was compared: {self.failure.message}"
            return Condition(kind, Truth.UNKNOWN, Reason.PAIR_UNREAD, message)
        message = "a Job reads configuration, tokenizer and tensor headers of both models"
        return Condition(kind, Truth.UNKNOWN, Reason.INSPECTING, message + _trouble(self.job))

    def _weights(self) -> Condition | None:
        kind, failure = ConditionType.WEIGHTS_READY, self.failure
        if not self.place:
            return None
        if failure is not None or self.doubt:
            return self._not_there(failure)
        if self.stage is Stage.READING:
            return Condition(kind, Truth.FALSE, Reason.INSPECTING, "a Job inspects both models before it fetches them")
        if self.stage is Stage.MISMATCH:
            return Condition(kind, Truth.FALSE, Reason.PAIR_MISMATCH, "nothing is fetched for a pair that does not fit")
        if self.stage is Stage.FETCHING:
            message = f"a Job fills {place_text(self.place)}{_trouble(self.job)}"
            starting = Condition(kind, Truth.FALSE, Reason.DOWNLOADING, message)
            return _downloading(self._progress, "The Job") if self._progress is not None else starting
        return self._there()

    def _not_there(self, failure: Failure | None) -> Condition:
        kind = ConditionType.WEIGHTS_READY
        if failure is not None and not self.doubt:
            return Condition(kind, Truth.FALSE, failure.reason, failure.message)
        what = failure.message if failure is not None else "a Job checks the cache and fetches what is missing"
        message = f"{self.doubt}: its weights may be missing from {place_text(self.place)}; {what}"
        return Condition(kind, Truth.FALSE, Reason.WEIGHTS_MISSING, message)

    def _there(self) -> Condition:
        kind = ConditionType.WEIGHTS_READY
        if self.arrival is not None and not _whole(self.arrival):
            return _arriving(self.arrival)
        total = formats.size(_total(self.known)) if self.known is not None else "all"
        message = f"{total} of weights, complete and verified, in {place_text(self.place)}"
        return Condition(kind, Truth.TRUE, Reason.WEIGHTS_CACHED, message)


def _not_ready(reason: Reason, message: str) -> Condition:
    return Condition(ConditionType.READY, Truth.FALSE, reason, message)


def _trouble(job: JobSeen | None) -> str:
    return f"; Job {job.name}: {job.trouble}" if job is not None and job.trouble else ""


def _total(known: Known) -> int:
    return sum(facts.weights.bytes for facts in known.models)


def _whole(arrival: Arrival) -> bool:
    return arrival.there == arrival.pods > 0


def _arriving(arrival: Arrival) -> Condition:
    kind = ConditionType.WEIGHTS_READY
    if arrival.reason is not None:
        return Condition(kind, Truth.FALSE, arrival.reason, arrival.message)
    if not arrival.pods:
        message = f"each pod fetches the weights into {place_text(arrival.place)} before it starts; no pod exists yet"
        return Condition(kind, Truth.UNKNOWN, Reason.NO_PODS, message)
    have = f"{arrival.there} of {arrival.pods} pods have their weights in {place_text(arrival.place)}"
    if arrival.progress is None:
        return Condition(kind, Truth.FALSE, Reason.DOWNLOADING, f"{have}; each fetches them before its engine starts")
    return _downloading(arrival.progress, "The pod", f"{have}; next pod: ")


def _downloading(progress: Progress, who: str, first: str = "") -> Condition:
    kind = ConditionType.WEIGHTS_READY
    if progress.stalled_seconds >= STALLED_SECONDS:
        message = (
            f"{first}no byte of {progress.file or 'any file'} has arrived for a while; the cache has "
            f"{formats.size(progress.bytes)} of {formats.size(progress.total)}. {who} keeps trying"
        )
        return Condition(kind, Truth.FALSE, Reason.DOWNLOAD_STALLED, message)
    figures = _figures(progress)
    parts = [f"{formats.size(progress.bytes)} of {formats.size(progress.total)}", figures.get("rate", "")]
    parts.append(f"{figures['left']} left" if "left" in figures else "")
    return Condition(kind, Truth.FALSE, Reason.DOWNLOADING, first + ", ".join(part for part in parts if part))


def _figures(progress: Progress) -> dict[str, Any]:
    share = f"{int(100 * progress.bytes / progress.total)}%" if progress.total > 0 else "0%"
    left = formats.duration(progress.seconds_left) if progress.seconds_left is not None else ""
    figures = {
        "text": f"{share}, {left} left" if left else share,
        "bytes": progress.bytes,
        "totalBytes": progress.total,
        "rate": f"{formats.size(progress.rate)}/s" if progress.rate > 0 else "",
        "left": left,
    }
    return {name: value for name, value in figures.items() if value != ""}
