"""What Prometheus has kept of the pods of objects, as samples of equal length. Used by `compare`.

The raw counters are read and judged as the operator does it, engine by engine; only the hours are others. A user's
machine mostly cannot reach a Service of the cluster, so Prometheus is asked through the API server, unless an address
is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from speculative_operator.cli.cluster import Cluster, Object
from speculative_operator.cli.commands import CommandError, UnseenError, UsageError
from speculative_operator.cli.inspection import Look, settings_of
from speculative_operator.cli.scraped import servers_of
from speculative_operator.cli.subject import spec_of
from speculative_operator.comparing.measures import Sample
from speculative_operator.domain.observation import Gap
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.engines.registry import query
from speculative_operator.settings import Settings
from speculative_operator.shell.bodies import addresses_of
from speculative_operator.shell.monitors import address_of, namespace_of
from speculative_operator.shell.podseries import Addresses, Answer, BadAnswerError, PodSeries, entries
from speculative_operator.shell.prometheus import Prometheus, batches
from speculative_operator.shell.sampling import Sampler

INTERVAL = 5.0
"""Seconds of a sample at least; where Prometheus scrapes less often, the time between two scrapes. Short ones show
more of how the load changes."""
MOST_SAMPLES = 2000
"""Of one object: a longer history is cut into longer samples."""
PART = 300.0
"""Seconds of history that one query asks for."""
OLDEST_SCRAPE = 120.0
"""Seconds before them in which the scrape that they begin with lies."""
_MOST = 1_000_000
_REMEDY = (
    "name it: kubectl port-forward -n monitoring svc/prometheus-operated 9090, and --prometheus http://127.0.0.1:9090"
)
_LOCAL = ("pod_label", "namespace_label", "address_label", "matchers")
"""Settings of the operator that hold wherever Prometheus is asked from."""

Ask = Callable[[str, Addresses, float], Answer | Gap]
"""(namespace, pods, unix time) -> their raw series of the seconds before it."""


@dataclass(slots=True)
class Subject:
    """An object whose history is read."""

    body: Object
    spec: DeploymentSpec
    pods: dict[str, tuple[str, ...]]
    """Pod -> its addresses."""

    @classmethod
    def of(cls, body: Object, pods: Sequence[Object]) -> Subject:
        """The object with the pods that have an address."""
        found = {pod["metadata"]["name"]: addresses_of(dict(pod)) for pod in pods}
        return cls(body, spec_of(body), {name: addresses for name, addresses in found.items() if addresses})


def asking(at: Cluster, url: str) -> Ask:
    """The way to the cluster's Prometheus, or to that at `url`. Raises CommandError where none is found."""
    told: dict[str, Any] = {}
    found = url
    try:
        look = Look(at)
        settings = [settings_of(one["spec"]["template"]["spec"]) for one in look.operators]
        told = {f"prometheus_{name}": one for name in _LOCAL for one in (_agreed(settings, name),) if one}
        found = url or _agreed(settings, "url") or address_of(servers_of(look)).url
    except UnseenError as problem:
        if not url:
            raise CommandError(f"the address of Prometheus cannot be read: {problem.problem}", _REMEDY) from None
    if not found:
        raise CommandError("there are several Prometheus servers, and nothing says which one has the pods", _REMEDY)
    told |= {"prometheus_url": found, "prometheus_range_seconds": round(PART + OLDEST_SCRAPE)}
    try:
        made = Settings(**told)
    except ValueError:
        raise UsageError(f"the address of Prometheus is {found!r}", "write http://HOST:PORT or https://HOST") from None
    if url or not namespace_of(found):
        direct = Prometheus(made)
        return lambda namespace, pods, now: direct.fetch(namespace, pods, now, _MOST)
    return lambda namespace, pods, now: _through_api_server(at, made, namespace, pods, now)


def _agreed(settings: Sequence[Mapping[str, str]], name: str) -> str:
    values = {one.get(f"PROMETHEUS_{name.upper()}", "") for one in settings}
    return values.pop() if len(values) == 1 else ""


def _through_api_server(at: Cluster, settings: Settings, namespace: str, pods: Addresses, now: float) -> Answer | Gap:
    url, label = urlsplit(settings.prometheus_url), settings.prometheus_address_label
    service, within = (url.hostname or "").split(".")[:2]
    where = f"{url.scheme}:{service}:{url.port or (443 if url.scheme == 'https' else 80)}"
    found = PodSeries(pods, label, _MOST, settings.prometheus_pod_label)
    for batch in batches(pods):
        labels = settings.prometheus_namespace_label, settings.prometheus_pod_label
        text = query(
            namespace, batch, settings.prometheus_range_seconds,
            address_label=label, matchers=settings.prometheus_matchers, labels=labels,
        )  # fmt: skip
        try:
            answer = at.service_page(within, where, f"{url.path}/api/v1/query", {"query": text, "time": f"{now:.3f}"})
            found.add(entries([answer]))
        except (CommandError, BadAnswerError) as problem:
            told = problem.problem if isinstance(problem, CommandError) else problem
            return Gap(Reason.PROMETHEUS_ERROR, f"{settings.prometheus_url} through the API server: {told}")
    return found.answer()


def read(ask: Ask, subjects: Sequence[Subject], began: float, ended: float) -> list[list[Sample]]:
    """Samples of each object from `began` to `ended`, unix seconds. Raises CommandError where Prometheus fails."""
    every = {pod: addresses for one in subjects for pod, addresses in one.pods.items()}
    samplers = [Sampler(one.spec, began, OLDEST_SCRAPE) for one in subjects]
    length = max(INTERVAL, (ended - began) / MOST_SAMPLES)
    for part in range(math.ceil((ended - began) / PART)):
        first, last = began + part * PART, min(began + (part + 1) * PART, ended)
        answer = ask(subjects[0].spec.namespace, every, last)
        if isinstance(answer, Gap):
            raise CommandError(answer.message, _REMEDY)
        tracks = [track for own in answer.series.values() for track in own]
        scraped = {time for track in tracks for time, _ in track.samples if first < time <= last}
        # Intervals without a scrape have no sample.
        for number in sorted({math.ceil((time - began) / length) for time in scraped}):
            for one, sampler in zip(subjects, samplers, strict=True):
                own = {pod: answer.series.get(pod, ()) for pod in one.pods}
                sampler.add(own, min(began + number * length, last))
    return [one.samples for one in samplers]
