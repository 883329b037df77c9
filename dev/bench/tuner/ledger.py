"""Where tuned pods lose time that a pod without a speculator does not: by window and by cause, step by step.

Called by `unguessable`. Each step is timed once more on the same machine without noise: as it was, without its drafts,
and as a plain step of the same requests. So the ledger holds no chance; it leaves out only what another load follows
from slower steps.
"""

from __future__ import annotations

from collections import defaultdict

from bench.tuner.unguessable_draw import Pair
from speculative_lab.plant import layout as at
from speculative_lab.plant.law import Pod
from speculative_lab.plant.steptime import (
    W_DECODING,
    W_DRAFT,
    W_EMIT,
    W_K,
    W_PROMPT,
    W_VERIFIED,
    catching_seconds,
    quiet_seconds,
)
from speculative_lab.plant.types import Floats

WINDOW = 300.0
START, CHANGE, AGAIN, TRIALS, WAITING, PROMPTS, TAX, GUESSABLE = CAUSES = (
    "first K", "K after a change", "K again", "trials", "K = 0 before off", "prompts while off", "plug-in", "guessable",
)  # fmt: skip
"""What is in force: K > 0 before the first K = 0; K > 0 after texts changed until K = 0; K > 0 later; K > 0 tried
beside K = 0; K = 0 with the speculator running; the speculator's passes over prompts while it is left out; what pods
with a resting speculator pay; any K while texts can be guessed."""


class Ledger:
    """Request-seconds beyond those of plain steps; told of each step by the law's run."""

    def __init__(self, pair: Pair) -> None:
        self._dead = pair.dead
        replicas = zip(pair.tuned.replicas, pair.plain.replicas, strict=True)
        self._plain = {id(tuned.machine): plain.machine for tuned, plain in replicas}
        self.lost: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        """By window and cause."""
        self.whole: dict[int, float] = defaultdict(float)
        """What plain steps would have taken, by window."""
        self._before: dict[str, str] = {}
        """Cause of each pod's step before, which made the drafts of this one."""
        self.off: dict[str, float] = {}
        """When K = 0 was first in force in each pod while texts could not be guessed."""

    def __call__(self, pod: Pod, k: int) -> None:
        """A step of `pod` that ended, with the K that was asked of its speculator."""
        machine, state = pod.replica.machine, pod.state
        now, work = float(state.now[at.BEGAN]), state.work.copy()
        cause = self._cause(pod, k, now, bool(work[W_PROMPT] > 0))
        requests, extra = float(work[W_DECODING]), max(float(state.step[at.S_TOKENS] - work[W_EMIT]), 0.0)
        whole = quiet_seconds(machine, work) + catching_seconds(machine.par, float(state.step[at.S_BEHIND]))
        base, taxed, verified = self._plainer(pod, work)
        window = int(now / WINDOW)
        lost = self.lost[window]
        lost[TAX] += requests * (taxed - base)
        lost[self._before.get(pod.name, cause)] += requests * (verified - taxed) - extra * base
        lost[cause] += requests * (whole - verified)
        self.whole[window] += requests * base
        self._before[pod.name] = cause

    def _plainer(self, pod: Pod, work: Floats) -> tuple[float, float, float]:
        """Seconds of the step without a speculator, with one that is left out, and with its drafts but no drafting."""
        machine = pod.replica.machine
        work[W_DRAFT] = 0
        verified = quiet_seconds(self._plain[id(machine)]._replace(k_quirk=machine.k_quirk), work)
        work[W_VERIFIED], work[W_K] = work[W_DECODING], 0
        taxed = quiet_seconds(self._plain[id(machine)]._replace(k_quirk=machine.k_quirk), work)
        return quiet_seconds(self._plain[id(machine)], work), taxed, verified

    def _cause(self, pod: Pod, k: int, now: float, prompts: bool) -> str:
        began, ended = self._dead
        if not began <= now < ended:
            return GUESSABLE
        in_force = pod.blocks.k_in_force
        if in_force == 0:
            self.off.setdefault(pod.name, now)
            return TRIALS if k > 0 else WAITING if k == 0 else PROMPTS
        if pod.name in self.off:
            return AGAIN
        return CHANGE if began > 0.0 else START
