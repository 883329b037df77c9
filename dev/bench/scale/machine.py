"""Processor time and memory of processes, as /proc tells them; `bed` and `phases` ask.

A figure of a machine that others use too is none. So whatever is measured is given with the processor time that went to
others meanwhile: all that was used, less what this process, the cluster and the operator used.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> tuple[int, float] | None:
    """Parent, and processor seconds with those of children that ended; None where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]), sum(map(int, fields[11:15])) / TICKS


def cpu_seconds(pid: int) -> float:
    """Processor seconds of one process."""
    found = _stat(pid)
    if found is None:
        raise ProcessLookupError(pid)
    return found[1]


def tree_seconds(root: int) -> float:
    """Processor seconds of a process and of all below it."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    found = {pid: stat for pid in pids if (stat := _stat(pid))}
    below: dict[int, list[int]] = defaultdict(list)
    for pid, (parent, _) in found.items():
        below[parent].append(pid)
    total, left = 0.0, [root]
    while left:
        pid = left.pop()
        total += found[pid][1] if pid in found else 0.0
        left += below[pid]
    return total


def busy_seconds() -> float:
    """Processor seconds of everybody, time that the hypervisor took away among them."""
    values = [int(one) for one in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(values) - values[3] - values[4]) / TICKS


def memory_mib(pid: int, field: str = "VmRSS") -> float:
    """Resident memory of a process; `VmHWM` has its peak."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return round(int(line.split()[1]) / 1024, 1)
    raise ProcessLookupError(pid)


@dataclass(frozen=True)
class Moment:
    """A beginning, from which processor time of others is counted."""

    at: float
    busy: float
    own: float

    @classmethod
    def now(cls) -> Moment:
        return cls(time.monotonic(), busy_seconds(), tree_seconds(os.getpid()))

    def foreign(self) -> tuple[float, float]:
        """Processor seconds of others since then, and as a share of one core."""
        now = Moment.now()
        seconds = max(0.0, (now.busy - self.busy) - (now.own - self.own))
        return round(seconds, 2), round(seconds / max(now.at - self.at, 0.001), 3)
