"""TensorRT-LLM's SpeculationGate: a switch that turns speculation off once and for all.

Source: `_torch/speculative/speculation_gate.py` as described in the project's collected facts. For each completed
request x = max(0, mean tokens per iteration - 1); when the mean of the last `window` requests is under the threshold,
and at least `window` were seen, drafting ends for the life of the process. There is no default: window and threshold
are the user's, those here are assumptions. Named in `registry`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from speculative_lab.sim.policies.base import Journal, tabulate
from speculative_operator.domain.table import KnobSpace

if TYPE_CHECKING:
    from speculative_lab.sim.deployment import Deployment

WINDOW = 100
THRESHOLD = 0.5
GATED_K = 3
INTERVAL = 1.0
_FINISHED = "vllm:request_success_total{"


class Gate:
    """The switch by itself."""

    def __init__(self, window: int = WINDOW, threshold: float = THRESHOLD) -> None:
        self._recent: deque[float] = deque(maxlen=window)
        self._threshold = threshold
        self.closed = False

    def completed(self, tokens_per_iteration: float | None) -> bool:
        """Takes in one completed request (None counts as 0); True when speculation is off from now on."""
        value = 0.0 if tokens_per_iteration is None else max(0.0, tokens_per_iteration - 1.0)
        if not self.closed:
            self._recent.append(value)
            full = len(self._recent) == self._recent.maxlen
            self.closed = full and sum(self._recent) / len(self._recent) < self._threshold
        return self.closed


class Gated:
    """K = 3 behind the gate.

    The step log knows no requests, so every request that ends within a second counts with that second's mean: the mean
    over the window is the same, its scatter is smaller than the real one.
    """

    name = "trtllm_gate"
    interval = INTERVAL

    def __init__(self, knobs: KnobSpace, gate: Gate | None = None) -> None:
        self.journal = Journal()
        self._gate = gate or Gate()
        self._knobs = knobs
        self._finished = 0.0
        self._length = 1.0
        self._started = False

    def act(self, deployment: Deployment) -> None:
        was = self._gate.closed
        self._length = _mean_length(deployment, self._length)
        finished = _finished(deployment)
        for _ in range(round(max(0.0, finished - self._finished))):
            self._gate.completed(self._length)
        self._finished = finished
        if not self._started or self._gate.closed != was:
            self._started = True
            k = 0 if self._gate.closed else GATED_K
            deployment.set_table(tabulate(lambda _: k, self._knobs), delay=0.0)


def _mean_length(deployment: Deployment, otherwise: float) -> float:
    """Tokens per request and step since the last look."""
    tokens = requests = 0.0
    for replica in range(deployment.replicas):
        log = deployment.steps(replica)
        tokens += float(((1.0 + log.accepted_mean) * log.batch).sum())
        requests += float(log.batch.sum())
    return tokens / requests if requests else otherwise


def _finished(deployment: Deployment) -> float:
    texts = deployment.exposition().values()
    return sum(float(line.rsplit(" ", 1)[1]) for text in texts for line in text.splitlines() if _FINISHED in line)
