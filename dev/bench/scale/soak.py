"""Objects that come, change and go for minutes, and whether memory, threads and files of the operator grow with them.

Called by `__main__`. The first third is not judged: caches and the allocator fill. Of the rest the slope of a straight
line counts, by objects that passed through: what each of them leaves behind.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.scale.bed import ARGUMENT, Bed
from bench.scale.client import MERGE, OWN_KIND
from bench.scale.machine import memory_mib

ALIVE = 20
RATE = 4.0
"""Objects that come in a second; as many go."""
WARM_SHARE = 1 / 3
LEFT_KIB = 4.0
"""Memory that an object may leave behind. A living one takes some 60, and more while it is reconciled."""
STEPS_MIB = 8.0
"""Memory that may come in steps, whatever the number of objects: connections, listings, the allocator's arenas. So a
run of three minutes finds objects that stay whole, one of an hour small parts of them."""
LEFT_FILES = 5.0
"""Open files and threads that all together may leave behind."""


def soak(source: Path, log: Path, minutes: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Run it and judge it."""
    samples: list[tuple[int, float, int, int]] = []
    alive: deque[str] = deque()
    passed = 0
    with Bed.opened(source, log, lambda _: None) as bed:
        started = told = time.monotonic()
        while time.monotonic() < started + 60 * minutes:
            name = f"s{passed}"
            bed.create(name)
            alive.append(name)
            passed += 1
            if len(alive) > ALIVE // 2:
                change = {"spec": {"engine": {"args": [f"{ARGUMENT}{passed}"]}}}
                bed.api.call("PATCH", f"{OWN_KIND}/{alive[-ALIVE // 2]}", change, MERGE)
            if len(alive) > ALIVE:
                bed.api.call("DELETE", f"{OWN_KIND}/{alive.popleft()}")
            bed.keep_operator()
            samples.append((passed, memory_mib(bed.pid), *_open(bed.pid)))
            if time.monotonic() > told + 30:
                told = time.monotonic()
                say(f"{passed} objects, {samples[-1][1]} MiB, files {samples[-1][2]}, threads {samples[-1][3]}")
            time.sleep(max(0.0, started + passed / RATE - time.monotonic()))
        last = bed.wait_for([name], lambda one: bed.first("Deployment", one, lambda _: True), 30.0, "a Deployment")
        exits = bed.exits
    return judged(samples) | {"exits": exits, "last": bool(last)} if not exits else {"ok": False, "exits": exits}


def _open(pid: int) -> tuple[int, int]:
    """Open files and threads of a process."""
    return tuple(len(list(Path(f"/proc/{pid}/{kind}").iterdir())) for kind in ("fd", "task"))  # type: ignore[return-value]


def judged(samples: Sequence[tuple[int, float, int, int]]) -> dict[str, Any]:
    """Objects passed, memory in MiB, open files and threads at each moment."""
    kept = np.array(samples[int(len(samples) * WARM_SHARE) :], dtype=float)
    passed = kept[:, 0]
    memory, files, threads = (float(np.polyfit(passed, kept[:, column], 1)[0]) for column in (1, 2, 3))
    span = float(passed[-1] - passed[0])
    left = {
        "kib_per_object": round(1024 * memory, 2),
        "mib": round(memory * span, 1),
        "files": round(files * span, 1),
        "threads": round(threads * span, 1),
    }
    few = left["mib"] <= STEPS_MIB + LEFT_KIB * span / 1024
    ok = few and max(left["files"], left["threads"]) <= LEFT_FILES
    return {"ok": ok, "objects": int(passed[-1]), "left": left, "rss_mib": [float(kept[0, 1]), float(kept[-1, 1])]}
