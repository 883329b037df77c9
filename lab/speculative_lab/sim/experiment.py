"""One controller on one simulated deployment, from the first second to the last. Called by bench and command line.

Pure: the same arguments give the same run. What is watched is the truth (`Deployment.totals`), in slices of 5 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from speculative_lab.sim.deployment import Deployment
from speculative_lab.sim.plant import Plant
from speculative_lab.sim.policies.base import Controller
from speculative_lab.sim.score import Run
from speculative_lab.sim.workload import Workload
from speculative_operator.domain.table import KTable

SLICE = 5.0
"""Seconds of a slice of the watched course."""
LOG_STEPS = 8192
"""Steps that the log of a replica holds between two looks: at 1 ms a step, more than eight seconds."""

Routing = Literal["least-loaded", "round-robin"]


def run(  # noqa: PLR0913 - a deployment, who controls it, and what befalls it
    plant: Plant,
    workload: Workload,
    controller: Controller,
    seconds: float,
    seed: int,
    *,
    replicas: int = 1,
    restarts: Sequence[tuple[float, int]] = (),
    routing: Routing = "least-loaded",
    off: bool = False,
    telemetry: bool = False,
) -> Run:
    """The run of `controller` over `seconds`.

    `restarts`: (seconds, replica) that crash. `off`: pods never had a drafter. The controller is called first at 0 s,
    before any request is served, and then every `controller.interval` seconds. `telemetry`: pods export what a payload
    in the engine counts.
    """
    table = KTable.constant(0, plant.knobs.max_batch)
    deployment = Deployment(
        plant, workload, replicas, seed, table, off=off, routing=routing, log_steps=LOG_STEPS, telemetry=telemetry
    )
    ends = np.arange(1, round(seconds / SLICE) + 1) * SLICE
    tokens, held = np.empty_like(ends), np.empty_like(ends)
    crashes = sorted(restarts)
    controller.act(deployment)
    looks = 1
    for place, end in enumerate(ends):
        while crashes and crashes[0][0] <= end:
            deployment.advance(max(crashes[0][0], deployment.now))
            deployment.restart(crashes.pop(0)[1])
        while looks * controller.interval <= end + 1e-9:
            deployment.advance(max(deployment.now, min(looks * controller.interval, end)))
            controller.act(deployment)
            looks += 1
        deployment.advance(end)
        totals = deployment.totals()
        tokens[place], held[place] = totals.tokens, totals.request_seconds
    return _course(controller, ends, tokens, held)


def _course(controller: Controller, ends: np.ndarray, tokens: np.ndarray, held: np.ndarray) -> Run:
    journal = controller.journal
    return Run(
        name=controller.name,
        ends=ends,
        tokens=np.diff(tokens, prepend=0.0),
        request_seconds=np.diff(held, prepend=0.0),
        writes=tuple(journal.writes),
        removals=tuple(journal.removals),
        shares=dict(journal.shares),
    )
