"""What an object and its canary did since the present step of the canary's analysis began. Used by `reconciler`.

Each reading asks Prometheus for what came since the last one. After a restart it asks for the whole step again, so that
nothing of it need be kept elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from speculative_operator.domain.observation import Gap
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.reconcile.world import Evidence, Record
from speculative_operator.settings import Settings
from speculative_operator.shell.bodies import Key
from speculative_operator.shell.podseries import Addresses, Answer
from speculative_operator.shell.sampling import Sampler

log = logging.getLogger(__name__)

SLICE_SECONDS = 15.0
"""Length of a sample, and least seconds between two readings."""
QUERY_SECONDS = 600.0
"""Most seconds that one query asks for."""
LONGEST_SECONDS = 7200.0
"""Most seconds before now that are read, and kept."""
OVERLAP_SECONDS = 120.0
"""Most seconds before the end of the last reading in which a pod's last scrape may lie."""
PATIENCE_SECONDS = 300.0
"""Seconds for which a Prometheus that does not answer keeps a step from being judged after a restart."""
MOST_PODS = 16
"""Most pods of each object that are compared."""
MOST_UNITS = 40_000
"""Most units of series (`podseries.units`) of one answer."""

Fetch = Callable[[str, Addresses, float, int, float], Answer | Gap]
"""Series of pods of a namespace in the seconds (last argument) before a unix time: `Prometheus.fetch`, or a fake."""


@dataclass
class _Step:
    """The present step of one analysis."""

    of: tuple[str, float]
    """What is compared, and since when."""
    begun: float
    """Unix time of the first look."""
    until: float
    """End of what has been read."""
    stable: Sampler
    canary: Sampler
    asked: float = -math.inf
    """Until when was asked at the last reading."""
    read: bool = False
    """True once the step was read up to now, or Prometheus has not answered for long."""
    gap: str = ""
    """Why the last reading brought nothing; empty where it did."""
    task: asyncio.Task[None] | None = None


class Past:
    """Reads for all analyses, in threads of its own. `addresses` names the ready pods of an object."""

    def __init__(self, settings: Settings, fetch: Fetch, addresses: Callable[[Iterable[Key]], Addresses]) -> None:
        self._stale = settings.stale_after_seconds
        self._fetch = fetch
        self._addresses = addresses
        self._steps: dict[Key, _Step] = {}
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="canary")

    def look(
        self, spec: DeploymentSpec, canary: DeploymentSpec | None, compared: tuple[str, float] | None, now: float
    ) -> Evidence | None:
        """What is known since a comparison began; starts a reading where one is due. `compared`: what is compared, and
        since when; None where nothing is. Returns None before the first reading has ended. `now` in unix seconds."""
        key = (spec.namespace, spec.name)
        if compared is None or canary is None:
            self.forget(key)
            return None
        step = self._steps.get(key)
        if step is None or step.of != compared:
            self.forget(key)
            begin = max(compared[1], now - LONGEST_SECONDS)
            stable, other = (Sampler(one, begin, self._stale) for one in (spec, canary))
            step = self._steps[key] = _Step(compared, now, begin, stable, other)
        step.stable.spec, step.canary.spec = spec, canary
        whole = SLICE_SECONDS * math.floor(now / SLICE_SECONDS)
        if step.task is None and whole > max(step.until, step.asked):
            step.asked = whole
            step.task = asyncio.create_task(self._read(step, whole), name=f"canary {key[0]}/{key[1]}")
        if not step.read and now - step.begun < PATIENCE_SECONDS:
            return None
        record = Record.from_samples
        return Evidence(record(step.stable.samples), record(step.canary.samples), canary, step.gap)

    def forget(self, key: Key) -> None:
        """Forget the analysis of an object."""
        step = self._steps.pop(key, None)
        if step is not None and step.task is not None:
            step.task.cancel()

    async def _read(self, step: _Step, until: float) -> None:
        """Read up to the unix time `until`, the end of a whole sample: so the samples are the same whoever reads."""
        try:
            while step.until < until and not await self._read_piece(step, until):
                pass
            step.read = step.read or not step.gap
        except Exception:
            step.gap = "the figures could not be read; the operator's log has the error"
            log.exception("cannot read what a canary did")
        finally:
            step.task = None

    async def _read_piece(self, step: _Step, until: float) -> str:
        """Read the next piece; returns why it could not be read, empty where it was."""
        end = min(SLICE_SECONDS * math.floor((step.until + QUERY_SECONDS) / SLICE_SECONDS), until)
        sides = (step.stable, step.canary)
        pods = [self._pods_of(one.spec) for one in sides]
        asked = {pod: own for some in pods for pod, own in some.items()}
        seconds = end - step.until + OVERLAP_SECONDS
        found = await asyncio.get_running_loop().run_in_executor(
            self._threads, self._fetch, step.stable.spec.namespace, asked, end, MOST_UNITS, seconds
        )
        step.gap = found.message if isinstance(found, Gap) else ""
        if isinstance(found, Answer):
            first, last = math.floor(step.until / SLICE_SECONDS) + 1, round(end / SLICE_SECONDS)
            for side, own in zip(sides, pods, strict=True):
                series = {pod: found.series[pod] for pod in own if pod in found.series}
                for number in range(first, last + 1):
                    side.add(series, number * SLICE_SECONDS)
                side.samples = [one for one in side.samples if one.end > end - LONGEST_SECONDS]
            step.until = end
        return step.gap

    def _pods_of(self, spec: DeploymentSpec) -> Addresses:
        found = self._addresses([(spec.namespace, spec.name)])
        return {pod: found[pod] for pod in sorted(found)[:MOST_PODS]}
