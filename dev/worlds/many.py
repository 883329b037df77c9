"""Many worlds judged in processes of their own, at the lowest priority but one: others work on the same machine."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import dataclass

from worlds.draw import world
from worlds.judge import Row, judge


@dataclass(frozen=True, slots=True)
class Task:
    """One random world to judge."""

    seed: int
    number: int
    seconds: float
    forms: tuple[str, ...]


def judged(tasks: list[Task], jobs: int) -> Iterator[Row]:
    """A row for each, as they come."""
    if jobs <= 1:
        yield from map(carry_out, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=os.nice, initargs=(10,)) as pool:
        yield from pool.imap_unordered(carry_out, tasks)


def carry_out(task: Task) -> Row:
    """Draw the world and judge it."""
    return judge(world(task.seed, task.number, task.seconds), task.forms)
