"""What the demo sees: the object through the Kubernetes API, the engines through Prometheus. For screen and report.

Figures come from the same reader that the operator uses (engines' `read`), one window a scrape.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from requests import RequestException
from urllib3.util.retry import Retry

from devcluster.cluster import Cluster
from speculative_operator.domain import names
from speculative_operator.domain.observation import PodWindow, Series
from speculative_operator.engines.base import Engine
from speculative_operator.reconcile.snapshot import notes

STALE_AFTER_SECONDS = 60.0
PAYLOAD_PREFIX = "speculative_payload_"
"""Series from another port of the pod, scraped at other instants: windows lie between scrapes of the engine's own."""


@dataclass(frozen=True, slots=True)
class Sight:
    """One window of one variant."""

    at: float
    """Seconds since the replay began, at the window's end."""
    window: PodWindow


@dataclass
class Timeline:
    """Windows of every variant, oldest first."""

    sights: dict[str, list[Sight]] = field(default_factory=dict)
    whole: dict[str, PodWindow] = field(default_factory=dict)
    """One window from the first moment to the last: what pods tell on another port is scraped between two windows."""

    def last(self, variant: str) -> PodWindow | None:
        seen = self.sights.get(variant)
        return seen[-1].window if seen else None


def to_series(result: Sequence[Mapping[str, Any]]) -> list[Series]:
    """Prometheus' matrix result as the operator's values."""
    return [
        Series(
            name=entry["metric"]["__name__"],
            labels={key: value for key, value in entry["metric"].items() if key != "__name__"},
            samples=tuple((float(moment), float(value)) for moment, value in entry["values"]),
        )
        for entry in result
    ]


class Watcher:
    """Reads a demo cluster; holds no state but its connections."""

    def __init__(self, cluster: Cluster, namespace: str, engine: Engine) -> None:
        self._cluster = cluster
        self._prometheus = PrometheusConnect(url=cluster.prometheus_url, retry=Retry(total=0), timeout=5)
        self._namespace = namespace
        self._engine = engine

    def deployment(self, name: str) -> dict[str, Any]:
        """The SpeculativeDeployment as the API server has it."""
        return self._cluster.objects.get("specdep", name, self._namespace)

    def status(self, name: str) -> Mapping[str, Any]:
        """The object's status, with what the operator keeps for itself."""
        body = self.deployment(name)
        config = self._cluster.objects.get("configmap", names.notes(name), self._namespace)
        return notes.put_in(body["status"], notes.read(config or None, body["metadata"]["uid"]))

    def pods(self) -> dict[str, str]:
        """Name of every serving pod -> the object it belongs to."""
        metadata = (pod["metadata"] for pod in self._pods())
        return {one["name"]: one["labels"][names.LABEL_DEPLOYMENT] for one in metadata}

    def restarts(self) -> int:
        """Container restarts of all serving pods together."""
        return sum(
            int(status["restartCount"]) for pod in self._pods() for status in pod["status"].get("containerStatuses", [])
        )

    def _pods(self) -> list[dict[str, Any]]:
        return self._cluster.objects.list("pods", self._namespace, f"{names.LABEL_MANAGED_BY}={names.OPERATOR}")

    def log(self, pod: str) -> str:
        """Log of a serving pod."""
        return self._cluster.kubectl("logs", pod, "-n", self._namespace, "-c", names.CONTAINER).stdout

    def series(self, seconds: int) -> list[Series]:
        """Raw samples of the last `seconds`; empty when Prometheus cannot answer now."""
        pattern = "|".join(self._engine.metric_names)
        query = f'{{__name__=~"{pattern}",namespace="{self._namespace}"}}[{seconds}s]'
        try:
            return to_series(self._prometheus.custom_query(query))
        except (PrometheusApiClientException, RequestException):
            return []

    def timeline(self, pods: Mapping[str, str], started: float, ended: float) -> Timeline:
        """Every window between two moments (unix seconds), from Prometheus' own history."""
        series = self.series(int(time.time() - started) + 30)
        line = Timeline()
        for pod, variant in pods.items():
            own = [one for one in series if one.labels.get("pod") == pod]
            whole = self.window(own, pod, started, ended)
            if whole is not None:
                line.whole[variant] = whole
            scraped = (one for one in own if not one.name.startswith(PAYLOAD_PREFIX))
            moments = sorted({at for one in scraped for at, _ in one.samples if started - 6 <= at <= ended + 6})
            for before, after in pairwise(moments):
                window = self.window(own, pod, before, after)
                if window is not None:
                    line.sights.setdefault(variant, []).append(Sight(after - started, window))
        return line

    def window(self, series: Sequence[Series], pod: str, since: float, until: float) -> PodWindow | None:
        """The window of one pod between two scrapes, None where the samples do not give one."""
        cut = [
            Series(one.name, one.labels, tuple(s for s in one.samples if since - 0.001 <= s[0] <= until + 0.001))
            for one in series
        ]
        cut = [one for one in cut if one.samples]
        read = self._engine.read(cut, [pod], {pod: since}, until, STALE_AFTER_SECONDS).get(pod)
        return read if isinstance(read, PodWindow) else None
