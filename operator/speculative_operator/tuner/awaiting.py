"""Waiting for pods to take the table: a change counts from then, not from when it was asked for.

Called by decide(). Where the payload says which version it runs, a file that a node delivers late does
not have the old table judged under the name of the new one. Where nothing acknowledges, time does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from speculative_operator.domain.observation import PodWindow
from speculative_operator.tuner.memory import Memory
from speculative_operator.tuner.telemetry import behind

LONGEST_SECONDS = 180.0
"""Longer than a node takes to deliver a file: a table not in force by then was refused, or the version is wrong."""


def late_pods(windows: Mapping[str, PodWindow], version: int | None) -> tuple[str, ...]:
    """Pods that run an older table than the one of `version`."""
    return tuple(sorted(pod for pod, window in windows.items() if behind(window, version)))


def awaiting(memory: Memory, late: tuple[str, ...], now: float) -> Memory:
    """Memory in which the time since the last change begins when the last pod has taken the table."""
    if not late:
        return memory if memory.awaited_since is None else replace(memory, awaited_since=None)
    since = memory.awaited_since if memory.awaited_since is not None else now
    memory = replace(memory, awaited_since=since)
    if not waits(memory, now):
        return memory
    return replace(memory, changed_at=now)


def waits(memory: Memory, now: float) -> bool:
    """True while nothing may be decided because a pod has not taken the table; not for ever."""
    return memory.awaited_since is not None and 0.0 <= now - memory.awaited_since <= LONGEST_SECONDS
