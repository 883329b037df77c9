"""How long pods take to start, and what budget the startup probe gets for it. Used by `desired` and `tick`,
which also tells the tuner what is expected: that is what a rollout costs.

    measured   container start -> ready, from the status of ready pods: the last few starts, kept in `status.startup`
    expected   the median of these, or the bytes of the pair at the median of their rates, whichever is longer
    budget     three times what is expected, never less than the engine's adapter reckons without any measure

A probe that ends an engine while it loads does harm; one that waits too long costs time once. So a measure can only
add, and it never rolls a pod: the template that runs keeps its budget until it changes for another reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median
from typing import Any

from speculative_operator.domain import formats, names
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.base import Notice
from speculative_operator.reconcile.snapshot.pods import Pod
from speculative_operator.reconcile.snapshot.status import MOST_START_SECONDS, STARTS_KEPT, Start
from speculative_operator.render.podspec import STARTUP_PERIOD_SECONDS

MARGIN = 3.0
STEP_SECONDS = 60
"""Budgets are whole minutes: the next measure then mostly asks for the same."""


def collect_starts(known: Iterable[Start], pods: Iterable[Pod], pair: str, size: int) -> tuple[Start, ...]:
    """The last starts, those of ready pods of `pair` included, which has `size` bytes of weights. The latest first.

    A start is measured once: a pod that is unready for a while later on says nothing of its start.
    """
    every = {(one.pod, one.started): one for one in known}
    for pod in pods:
        if pod.started and pod.pair == pair and pod.start_seconds <= MOST_START_SECONDS:
            found = Start(pod.name, pod.started, max(round(pod.start_seconds), 1), max(size, 0))
            every.setdefault((found.pod, found.started), found)
    return tuple(sorted(every.values(), key=lambda one: (-one.began, one.pod))[:STARTS_KEPT])


def expected_seconds(known: Iterable[Start], size: int) -> float | None:
    """Seconds that a start of `size` bytes takes, by what was measured; None where nothing was."""
    measures = tuple(known)
    if not measures:
        return None
    usual = float(median(one.seconds for one in measures))
    rate = _rate(measures)
    return max(usual, size / rate) if rate and size > 0 else usual


def budget(known: Iterable[Start], size: int) -> int:
    """Seconds that a start of `size` bytes may take, by what was measured; 0 where nothing was."""
    minutes = math.ceil(min(MARGIN * (expected_seconds(known, size) or 0.0), MOST_START_SECONDS) / STEP_SECONDS)
    return minutes * STEP_SECONDS


def to_status(known: Iterable[Start], seconds: int) -> dict[str, Any]:
    """`status.startup`; empty where nothing was measured. `seconds` is the budget that pods have."""
    measures = tuple(known)
    if not measures:
        return {}
    rate = _rate(measures)
    block = {
        "loadSeconds": round(median(one.seconds for one in measures)),
        "rate": f"{formats.size(rate)}/s" if rate else "",
        "budgetSeconds": seconds,
        "starts": [
            {"pod": one.pod, "started": one.started, "seconds": one.seconds}
            | ({"bytes": one.bytes} if one.bytes else {})
            for one in measures
        ],
    }
    return {name: value for name, value in block.items() if value not in ("", 0)}


def late_notice(pod: str, seconds: int) -> Notice:
    """The notice of a start that the startup probe ended, with the remedy."""
    failures = math.ceil(MARGIN * seconds / STARTUP_PERIOD_SECONDS)
    probe = f"{{containers: [{{name: {names.CONTAINER}, startupProbe: {{failureThreshold: {failures}}}}}]}}"
    message = (
        f"pod {pod}: the startup probe stopped its engine, which was not ready within {seconds} s. Read its log "
        f"(kubectl logs --previous). If it was still loading, give it more time with spec.template.spec: {probe}, and "
        f"for vLLM VLLM_ENGINE_READY_TIMEOUT_S {failures * STARTUP_PERIOD_SECONDS} in spec.engine.env; or shorten the "
        "download with spec.weights.cache"
    )
    return Notice(Reason.START_TIMED_OUT, message)


def _rate(measures: tuple[Start, ...]) -> float:
    """Bytes per second of a start as a whole; 0 where no bytes are known."""
    rates = [one.bytes / one.seconds for one in measures if one.bytes > 0]
    return float(median(rates)) if rates else 0.0
