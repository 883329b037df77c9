"""Waits for pods to take a new table: the time since a change counts from the moment when the last pod has taken it.

Called by decide(). Where the payload tells which version of the table it runs, the tuner does not judge the old table
as the new one while a node delivers the file late. Without a payload that tells, a change counts at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from speculative_operator.domain.observation import PodWindow
from speculative_operator.tuner.memory import Memory
from speculative_operator.tuner.telemetry import behind

LONGEST_SECONDS = 180.0
"""Longer than a node takes to deliver a file: a table not active by then was refused, or the version is wrong."""


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
