"""Makes the samples that two objects are compared by: of one object, one after another. Used by `past` for a canary and
by `speculative compare`."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from speculative_operator.comparing.measures import Sample, sample_of
from speculative_operator.domain.observation import PodWindow, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.engines.registry import engine_for
from speculative_operator.engines.samples import SAME_SCRAPE_SECONDS

_WAITS = (Reason.COLLECTING, Reason.STARTING)
"""Gaps after which a window still begins where the last one ended."""


@dataclass(slots=True)
class Sampler:
    """Of one object."""

    spec: DeploymentSpec
    begin: float
    """Unix time that no window begins before."""
    stale: float
    """Seconds after which a scrape tells nothing any more."""
    samples: list[Sample] = field(default_factory=list)
    _ends: dict[str, float] = field(default_factory=dict)
    """Pod -> end of its last window."""

    def add(self, series: Mapping[str, Sequence[Series]], moment: float) -> None:
        """Add the sample of what each pod did from its last window to its last scrape before a unix time."""
        since = {pod: self._ends.get(pod, self.begin) for pod in series}
        tracks = [_between(one, since[pod], moment) for pod, own in series.items() for one in own]
        found = engine_for(self.spec).read(
            [one for one in tracks if one.samples], tuple(series), since, moment, self.stale
        )
        for pod, view in found.items():
            if isinstance(view, PodWindow):
                self._ends[pod] = view.end
            elif view.reason not in _WAITS:
                self._ends[pod] = moment
        asked, windows = self.spec.accelerator, [view for view in found.values() if isinstance(view, PodWindow)]
        made = sample_of(windows, accelerators_per_pod=asked.per_replica, hourly_cost=asked.hourly_cost)
        if made is not None:
            self.samples.append(made)


def _between(track: Series, start: float, end: float) -> Series:
    first = bisect_left(track.samples, (start - SAME_SCRAPE_SECONDS,))
    last = bisect_right(track.samples, (end + SAME_SCRAPE_SECONDS, math.inf))
    return replace(track, samples=track.samples[first:last])
