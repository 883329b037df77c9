"""Many worlds judged in processes of their own, at the lowest priority but one: others work on the same machine."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import dataclass

from bench.tuner.judge import Row, judge
from bench.tuner.named import named
from speculative_lab.plant.draw import world


@dataclass(frozen=True, slots=True)
class Task:
    """One world to judge."""

    seed: int | None
    """None: the fixed world of that number."""
    number: int
    seconds: float
    forms: tuple[str, ...]
    skip: bool = False


def judged(tasks: list[Task], jobs: int) -> Iterator[Row]:
    """A row for each, as they come."""
    if jobs <= 1:
        yield from map(carry_out, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=os.nice, initargs=(10,)) as pool:
        yield from pool.imap_unordered(carry_out, tasks)


def carry_out(task: Task) -> Row:
    """Make the world and judge it."""
    number, seconds = task.number, task.seconds
    made = named(number, seconds) if task.seed is None else world(task.seed, number, seconds)
    return judge(made.with_skip() if task.skip else made, task.forms)
