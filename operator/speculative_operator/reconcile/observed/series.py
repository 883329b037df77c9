"""What the operator's own metrics tell of one object (docs/metrics.md, "Of each object"). Called by `shell.reconciler`.

A figure that is unknown or too old is no sample: an autoscaler must find nothing rather than the load of a minute ago.
Sums over pods exist only while every pod that should have figures has some, for else they would be too small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from speculative_operator.domain.actions import Truth
from speculative_operator.domain.decision import Basis, Estimate
from speculative_operator.domain.formats import showable
from speculative_operator.domain.observation import Histogram, Observation, PodWindow
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.reconcile.snapshot.canaries import Progress
from speculative_operator.reconcile.snapshot.status import Speculation, Status
from speculative_operator.tuner.tail import add, p99
from speculative_operator.tuner.targets import FADE_SECONDS, active_targets

FAMILIES = {
    "object_info": "Always 1.",
    "object_condition": "1: True, 0: False; a condition that is Unknown has no sample.",
    "object_state": "1 for the state of speculation.",
    "object_replicas": "Pods.",
    "object_accelerators": "Accelerators of the ready pods.",
    "object_k": "K of the active table by scheduled requests.",
    "object_load_k": "K at the current load.",
    "object_load_requests": "Scheduled requests per step and replica.",
    "object_load_within_target_requests": "Scheduled requests per replica up to which the TPOT target holds.",
    "object_requests_per_second": "Requests per second of all pods that get their first token.",
    "object_running_requests": "Running requests of all pods.",
    "object_waiting_requests": "Waiting requests of all pods.",
    "object_kv_cache_usage_ratio": "Share of the KV cache in use, of the fullest pod.",
    "object_tokens_per_second": "Output tokens per second of all pods.",
    "object_gain_ratio": "Tokens per second over those without a speculator, less 1.",
    "object_acceptance_length": "Mean tokens per verification.",
    "object_tpot_seconds": "Mean time per output token.",
    "object_ttft_seconds": "Mean time to first token.",
    "object_canary_weight_ratio": "Share of the requests that the canary of an analysis gets.",
    "object_canary_phase": "1 for the phase of a canary's analysis.",
    "object_p99_seconds": "Bounds of the P99 of a latency.",
    "object_target_seconds": "P99 that the spec asks for.",
    "object_cost_per_thousand_tokens": "Accelerator cost of a thousand output tokens.",
}
"""Gauges by name, without the prefix, and their help."""
MOST_LOADS = 14
"""Powers of two for which K is told: up to 8,192 requests."""
Sample = tuple[str, tuple[tuple[str, str], ...], float]
"""Name in FAMILIES, labels, value."""


@dataclass(frozen=True, slots=True)
class Recent:
    """What was last seen of the pods of one object. The shell keeps it between reconciles, and not over restarts."""

    pods: Mapping[str, PodWindow] = field(default_factory=dict)
    """The last window of each pod."""
    expected: frozenset[str] = frozenset()
    """Pods that should have figures: those ready, without those that became so a moment ago."""
    tpot: Histogram = ()
    ttft: Histogram = ()
    estimate: Estimate = field(default_factory=Estimate)
    estimated_at: float = -math.inf

    def after(self, observation: Observation, estimate: Estimate | None) -> Recent:
        """The figures after another observation. Without figures in it the old ones stay, which then become too old."""
        if observation.gap is not None:
            return self
        new = {pod: _figures(window) for pod, window in observation.windows.items() if window.seconds > 0}
        keep = math.exp(-max((window.seconds for window in observation.windows.values()), default=0.0) / FADE_SECONDS)
        brings = estimate is not None and estimate.concurrency is not None
        return Recent(
            {pod: one for pod, one in self.pods.items() if pod in observation.pods} | new,
            frozenset(observation.pods) - observation.newcomers,
            add(self.tpot, [(window.tpot_histogram, 1.0) for window in observation.windows.values()], keep),
            add(self.ttft, [(window.ttft_histogram, 1.0) for window in observation.windows.values()], keep),
            estimate if brings and estimate is not None else self.estimate,
            observation.time if brings else self.estimated_at,
        )

    @property
    def newest(self) -> float:
        """Unix seconds of the newest figures; minus infinity without any."""
        return max((one.end for one in self.pods.values()), default=-math.inf)


def _figures(window: PodWindow) -> PodWindow:
    """The window without what is large and was read: one of each pod is kept."""
    return replace(window, cells=(), comparisons=(), tpot_histogram=(), ttft_histogram=())


def steady(spec: DeploymentSpec | None, status: Status) -> Iterator[Sample]:
    """Samples that hold until the next reconcile. `spec`: None where it cannot be read."""
    for one in status.conditions.values():
        if one.status in (Truth.TRUE, Truth.FALSE):
            labels = (("type", one.type), ("reason", one.reason))
            yield "object_condition", labels, float(one.status == Truth.TRUE)
    if spec is None:
        return
    told, ready = status.speculation, status.ready
    mode, engine = ("mode", spec.speculation.mode.value), ("engine", spec.engine.type.value)
    yield "object_info", (mode, engine, ("method", told.method)), 1.0
    if told.state:
        yield "object_state", (("state", told.state),), 1.0
    yield from _of_canary(status.canary)
    for state, count in (("wanted", spec.replicas), ("existing", status.replicas), ("ready", ready)):
        yield "object_replicas", (("state", state),), float(count)
    yield "object_accelerators", (), float(ready * spec.accelerator.per_replica)
    most = told.table.max_batch if told.table is not None else 0
    for requests in (2**power for power in range(MOST_LOADS)):
        if requests <= most:
            yield "object_k", (("requests", str(requests)),), _k_at(told, requests)
    for latency, seconds in zip(("tpot", "ttft"), active_targets(spec.speculation.objective), strict=True):
        if seconds is not None:
            yield "object_target_seconds", (("latency", latency),), seconds


def _of_canary(canary: Progress | None) -> Iterator[Sample]:
    if canary is not None:
        yield "object_canary_weight_ratio", (), canary.weight / 100.0
        yield "object_canary_phase", (("phase", canary.phase.value), ("reason", canary.reason.value)), 1.0


def measured(status: Status, recent: Recent, now: float, limit: float) -> Iterator[Sample]:
    """Samples of what pods did within the last `limit` seconds, `now` in unix seconds."""
    fresh = {pod: one for pod, one in recent.pods.items() if abs(now - one.end) <= limit}
    if not fresh or not status.ready:
        return
    estimate = recent.estimate if abs(now - recent.estimated_at) <= limit else Estimate()
    if recent.expected <= fresh.keys():
        yield from _of_all(fresh.values())
    first = math.fsum(one.first_tokens for one in fresh.values())
    if first > 0:
        yield from _sample("object_ttft_seconds", math.fsum(one.ttft_seconds for one in fresh.values()) / first)
    for latency, histogram in (("tpot", recent.tpot), ("ttft", recent.ttft)):
        bounds = p99(histogram)
        if bounds.low > 0:
            yield from _sample("object_p99_seconds", bounds.low, ("latency", latency), ("bound", "low"))
        yield from _sample("object_p99_seconds", bounds.high, ("latency", latency), ("bound", "high"))
    yield from _of_estimate(estimate, status.speculation)


def _of_all(pods: Iterable[PodWindow]) -> Iterator[Sample]:
    known_pods = tuple(pods)
    yield from _sample("object_requests_per_second", math.fsum(one.first_tokens / one.seconds for one in known_pods))
    yield from _sample("object_running_requests", math.fsum(one.running for one in known_pods))
    yield from _sample("object_waiting_requests", math.fsum(one.waiting for one in known_pods))
    yield from _sample("object_tokens_per_second", math.fsum(one.generated_tokens / one.seconds for one in known_pods))
    usage = [one.kv_usage for one in known_pods if one.kv_usage is not None]
    if usage:
        yield from _sample("object_kv_cache_usage_ratio", max(usage))


def _of_estimate(estimate: Estimate, told: Speculation) -> Iterator[Sample]:
    load = showable(estimate.concurrency)
    if load is not None and told.table is not None:
        yield "object_load_k", (), _k_at(told, load)
    for name, value in (
        ("object_load_requests", load),
        ("object_load_within_target_requests", estimate.load_within_target),
        ("object_acceptance_length", estimate.acceptance_length),
        ("object_tpot_seconds", estimate.tpot_seconds),
        ("object_cost_per_thousand_tokens", estimate.cost_per_thousand_tokens),
    ):
        yield from _sample(name, value)
    gain = estimate.gain_percent
    for bound in ("low", "mid", "high") if gain is not None else ():
        value = showable(getattr(gain, bound))
        basis = "measured" if estimate.gain_basis is Basis.MEASURED else "estimated"
        labels = ("bound", bound), ("basis", basis)
        yield from _sample("object_gain_ratio", None if value is None else value / 100.0, *labels)


def _k_at(told: Speculation, requests: float) -> float:
    """K of the table at so many scheduled requests; 0 where pods run without a speculator."""
    return float(told.table.k_at(requests)) if told.table is not None and not told.removed else 0.0


def _sample(name: str, value: float | None, *labels: tuple[str, str]) -> Iterator[Sample]:
    """The sample, where the value is one that can be shown."""
    if showable(value) is not None and value is not None:
        yield name, labels, value
