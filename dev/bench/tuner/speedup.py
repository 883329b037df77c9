"""How much faster than real time one core simulates one replica with 256 requests in flight."""

from __future__ import annotations

import time

import numpy as np

from speculative_lab.sim.deployment import Deployment
from speculative_lab.sim.pairs import PAIRS
from speculative_lab.sim.profiles import MIXED, classes
from speculative_lab.sim.scenarios import SHORT
from speculative_lab.sim.workload import Phase, closed_loop
from speculative_operator.domain.table import KTable

SECONDS = 240.0


def simulator_speedup(seconds: float = SECONDS) -> float:
    """Simulated over real seconds at K = 1; compiling is not counted."""
    pair = PAIRS["eagle_h100"]
    phase = Phase(0.0, MIXED, *SHORT)
    load = closed_loop([(0.0, 256)], classes(pair.method), [phase], np.random.default_rng(1))
    deployment = Deployment(pair.plant(), load, 1, 1, KTable.constant(1, 256))
    deployment.advance(10.0)
    began = time.perf_counter()
    deployment.advance(10.0 + seconds)
    return round(seconds / (time.perf_counter() - began), 1)
