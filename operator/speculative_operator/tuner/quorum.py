"""Selects the pods that a decision rests on: pods with believable figures, if they carry enough of the requests.

Called by decide(), and by reconcile for what it says of metrics. In a fleet some pod nearly always lacks figures: its
scrape is late, its engine has restarted, its figures are wrong. Such a pod is left out; it stops neither tuning nor the
guard. Wrong but plausible figures cannot be told from unusual ones: so no single pod of several may outweigh the
others. And a pod may run an older table for a while: the tuner does not judge the old table as the new one while a node
delivers the file late, so the time since a change counts from the moment when the last pod has taken it. Without a
payload that tells which version of the table it runs, a change counts at once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from statistics import fmean

from speculative_operator.domain.observation import Gap, Observation, PodWindow
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.table import KnobSpace
from speculative_operator.tuner.memory import Memory
from speculative_operator.tuner.telemetry import STALE_SECONDS, absurdity, behind
from speculative_operator.tuner.traffic import largest

QUORUM = 0.8
"""Share of the requests that pods with believable figures must carry for the table to be tuned."""
MAJORITY = 0.5
"""Share above which the guard may cut drafts: it only lowers K, and only on measurements."""
LONGEST_SECONDS = 180.0
"""Longer than a node takes to deliver a file: a table not active by then was refused, or the version is wrong."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The reason and message why the tuner may change nothing."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Sight:
    """One look at the pods, divided into pods with believable figures and pods without."""

    windows: Mapping[str, PodWindow]
    """Windows of the pods with believable figures."""
    left_out: Mapping[str, Gap]
    """Pods that should have believable figures and have none -> why."""
    weights: Mapping[str, float]
    """Weight of each pod by the requests that it serves; a pod that has just become ready counts once it has
    figures."""

    def share(self, pods: Collection[str]) -> float:
        """Share of the requests that `pods` carry; 1 where no pod counts."""
        whole = math.fsum(self.weights.values())
        return math.fsum(weight for pod, weight in self.weights.items() if pod in pods) / whole if whole > 0 else 1.0

    @property
    def believable_pods(self) -> frozenset[str]:
        """Pods with believable figures from this look, or from the last one where no scrape is newer."""
        return frozenset(self.weights.keys() - self.left_out.keys())

    @property
    def enough(self) -> bool:
        """True where the believed pods make a quorum, so that the table may be tuned."""
        return self.share(self.believable_pods) >= QUORUM - 1e-9

    @property
    def shortage(self) -> str:
        """A text: how few pods have believable figures, and why the first of the other pods has none."""
        pod = min(self.left_out)
        counted = f"{len(self.believable_pods)} of {len(self.weights)} pods have figures that can be believed"
        carried = f"with {100.0 * self.share(self.believable_pods):.0f} % of the requests"
        return f"{counted}, {carried}; {pod}: {self.left_out[pod].message}"


def sight(
    observation: Observation, known: Mapping[str, tuple[float, float]], knobs: KnobSpace | None, now: float
) -> Sight:
    """The pods of `observation` divided by whether their figures can be believed.

    `known`: pod -> end and batch of the last window learned from. Without `knobs` every recent figure is believed.
    """
    doubts = {pod: _doubt(window, knobs, now) for pod, window in observation.windows.items()}
    windows = {pod: window for pod, window in observation.windows.items() if doubts[pod] is None}
    gaps = observation.gaps | {pod: doubt for pod, doubt in doubts.items() if doubt is not None}
    between = {pod for pod, gap in gaps.items() if gap.reason is Reason.COLLECTING and _is_recent(known.get(pod), now)}
    left_out = {pod: gap for pod, gap in gaps.items() if pod not in observation.newcomers | between}
    batches = {pod: known[pod][1] for pod in {*left_out, *between} if pod in known}
    batches |= {pod: window.batch for pod, window in windows.items()}
    usual = fmean(batches.values()) if batches else 1.0
    counted = {pod: batches.get(pod, usual) for pod in {*left_out, *between, *windows}}
    most = largest([batch for batch in counted.values() if batch > 0])
    weights = {pod: min(batch, most) for pod, batch in counted.items()}
    return Sight(windows, left_out, weights if any(weights.values()) else dict.fromkeys(weights, 1.0))


def find_hold(observation: Observation, seen: Sight) -> Hold | None:
    """The first reason to decide nothing on `observation`, or None."""
    if observation.gap is not None:
        return Hold(observation.gap.reason, f"{observation.gap.message}; the table stays as it is")
    if not observation.pods:
        return Hold(Reason.NO_PODS, "no pod is ready; the table stays as it is")
    if not seen.windows:
        return _hold_of_all(seen.left_out or observation.gaps)
    if seen.share(seen.believable_pods) <= MAJORITY:
        return Hold(Reason.METRICS_PARTIAL, f"{seen.shortage}; the table stays as it is")
    if not has_requests(seen.windows):
        return Hold(Reason.IDLE, "no request decoded in the window; the table stays as it is")
    return None


def has_requests(windows: Mapping[str, PodWindow]) -> bool:
    """True where at least one pod decoded a request."""
    return any(window.decode_request_steps > 0 and window.steps > 0 for window in windows.values())


def late_pods(windows: Mapping[str, PodWindow], version: int | None) -> tuple[str, ...]:
    """Names of the pods that run an older table than the one of `version`, sorted."""
    return tuple(sorted(pod for pod, window in windows.items() if behind(window, version)))


def awaiting(memory: Memory, late: tuple[str, ...], now: float) -> Memory:
    """Memory in which the last change counts from `now` while pods in `late` still run an older table."""
    if not late:
        return memory if memory.awaited_since is None else replace(memory, awaited_since=None)
    since = memory.awaited_since if memory.awaited_since is not None else now
    memory = replace(memory, awaited_since=since)
    if not waits(memory, now):
        return memory
    return replace(memory, changed_at=now)


def waits(memory: Memory, now: float) -> bool:
    """True while the tuner waits for a pod to take the table, for `LONGEST_SECONDS` at most."""
    return memory.awaited_since is not None and 0.0 <= now - memory.awaited_since <= LONGEST_SECONDS


def _is_recent(known: tuple[float, float] | None, now: float) -> bool:
    return known is not None and 0.0 <= now - known[0] <= STALE_SECONDS


def _doubt(window: PodWindow, knobs: KnobSpace | None, now: float) -> Gap | None:
    """Why `window` is not believed, or None."""
    age = now - window.end
    if math.isfinite(window.end) and not abs(age) <= STALE_SECONDS:
        side = "old" if age > 0 else "in the future"
        return Gap(Reason.METRICS_STALE, f"the newest sample is more than {STALE_SECONDS:g} s {side}")
    broken = absurdity(window, knobs) if knobs is not None else None
    return Gap(Reason.METRICS_ABSURD, broken) if broken is not None else None


def _hold_of_all(gaps: Mapping[str, Gap]) -> Hold:
    """The hold where no pod is believed: the most common reason, and the first pod that has it."""
    reason, _ = min(Counter(gap.reason for gap in gaps.values()).items(), key=lambda item: (-item[1], item[0]))
    first = min(name for name, gap in gaps.items() if gap.reason is reason)
    return Hold(reason, f"{first}: {gaps[first].message}; the table stays as it is")
