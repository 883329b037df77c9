"""Queries to any Prometheus-compatible server, answered with domain values or one of our errors: the raw samples of our
pods for a reconcile.

`prometheus_api_client` sends the query; what it lacks is added by the session it is given: an overall deadline and a
size limit (its timeout is per read), no silent retries, a token re-read per request, answers read as they come, and a
look at what it throws away (status, result type, warnings of partial answers). Used by rounds, in threads.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import requests
import urllib3
from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from urllib3.util.retry import Retry

from speculative_operator.domain.observation import Gap
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.registry import query
from speculative_operator.settings import Settings
from speculative_operator.shell.podseries import (
    Addresses,
    Answer,
    BadAnswerError,
    PodSeries,
    TooLargeError,
    entries,
    host_of,
    labels_of,
)
from speculative_operator.shell.prometheus_access import (
    credentials_of,
    describe_status,
    from_elsewhere,
    relabelling_gap,
    unreachable,
)

log = logging.getLogger(__name__)

LARGEST_ANSWER = 16 * 2**20
"""bytes of an answer about some fifty pods; with step telemetry it has half of that, without it two MiB."""
LONGEST_URL = 4300
"""bytes that the pods of one query take in its URL: with the rest it stays below the 8 KiB that proxies take. Not POST:
proxies that ask the API server for permission want another one for it."""
PLAIN_SECONDS = 3600.0
"""Seconds for which a namespace whose answers were too large is asked without step telemetry."""
PAUSE_SECONDS = 600.0
"""Seconds for which a namespace whose answers are too large even so is not asked."""
LOOK_SECONDS = 60.0
"""Seconds between two look-ups of where the series of silent pods come from."""
LATE = "the queries for the pods of the namespace took longer than a tick"
FEW_BYTES, FEW_PODS = 2**18, 20
PIECE = 64 * 1024


class TooSlowError(Exception):
    """The whole answer did not arrive within the deadline."""


class _Answer(requests.Response):
    """A response that was read and judged as a whole."""

    def json(self, **_: Any) -> Any:
        return {"data": {"result": None}}


class _Session(requests.Session):
    """Reads each answer within `deadline` seconds in all and at most `limit` bytes, with `read`, as it comes."""

    limit = LARGEST_ANSWER
    status = 0
    """HTTP status of the last answer."""
    read: Callable[[Iterable[bytes]], object]

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._deadline = settings.prometheus_timeout_seconds
        # Proxies and ~/.netrc of the environment would override token and CA.
        self.trust_env = False
        self.headers["Accept-Encoding"] = "identity"
        self.headers.update(settings.prometheus_header_map)
        if settings.prometheus_ca_file:
            self.verify = settings.prometheus_ca_file
        if settings.prometheus_certificate_folder:
            folder = settings.prometheus_certificate_folder
            self.cert = (f"{folder}/tls.crt", f"{folder}/tls.key")
        if settings.prometheus_proxy:
            self.proxies = dict.fromkeys(("http", "https"), settings.prometheus_proxy)

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        until = time.monotonic() + self._deadline
        kwargs |= {"stream": True, "timeout": self._deadline, "allow_redirects": False}
        answer = _Answer()
        with super().request(*args, **kwargs) as response:
            if response.status_code == 200:
                self.read(_pieces(response, until, self.limit))
        self.status = answer.status_code = response.status_code
        return answer


def _pieces(response: requests.Response, until: float, limit: int) -> Iterator[bytes]:
    size = 0
    # What has come, however little: to wait for a whole piece would let a few bytes a second outlast the deadline.
    for piece in iter(lambda: response.raw.read1(PIECE, decode_content=True), b""):
        size += len(piece)
        if size > limit:
            raise TooLargeError(f"the answer is larger than {limit / 2**20:g} MiB")
        if time.monotonic() > until:
            raise TooSlowError("the answer arrived too slowly")
        yield piece


@dataclass(slots=True)
class _Namespace:
    """What is remembered of a namespace. Times are monotonic seconds."""

    plain_until: float = -math.inf
    """Until then its step telemetry, which was too much, is not asked for."""
    paused_until: float = -math.inf
    gap: Gap | None = None
    """What is told while it is not asked."""
    looked_at: float = -math.inf
    """Last look-up of where the series of silent pods come from."""
    silent: Mapping[str, Gap] = field(default_factory=dict)
    """What it found."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address at which Prometheus is asked; `fault` says why there is none."""

    url: str
    fault: str = ""


class Prometheus:
    """`fetch` blocks and is safe to call from several threads, for a namespace from one at a time; each thread has a
    session of its own."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        address: Callable[[], Address] | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._found = address or (lambda: Address(settings.prometheus_url))
        self._settled: Address | None = None
        """The first address that brought figures; it is asked from then on."""
        self._auth = credentials_of(settings)
        self._local = threading.local()
        self._known: defaultdict[str, _Namespace] = defaultdict(_Namespace)

    def fetch(
        self, namespace: str, pods: Addresses, now: float, most: int, seconds: float | None = None
    ) -> Answer | Gap:
        """Series of these pods of the namespace in the `seconds` before unix time `now` (None: as the settings say), in
        `most` units at most, or why there are none.

        A pod of the answer has series, a gap or neither.
        """
        self._local.seconds = seconds or self._settings.prometheus_range_seconds
        if fault := self._address().fault:
            return Gap(Reason.PROMETHEUS_ERROR, fault)
        known = self._known[namespace]
        if known.gap is not None and self._clock() < known.paused_until:
            return known.gap
        if self._clock() >= known.plain_until:
            try:
                return self._fetch(namespace, pods, now, most, cells=True)
            except TooLargeError as error:
                log.info("%s: asking without histograms and step telemetry", error, extra={"namespace": namespace})
                known.plain_until = self._clock() + PLAIN_SECONDS
        try:
            return self._fetch(namespace, pods, now, most, cells=False)
        except TooLargeError as error:
            return self._pause(namespace, error)

    def is_settled(self) -> bool:
        """Whether an address has brought figures."""
        return self._settled is not None

    def _address(self) -> Address:
        return self._settled or self._found()

    def forget(self, namespace: str) -> None:
        """Drop what is remembered of a namespace that nobody asks for any more."""
        self._known.pop(namespace, None)

    def _pause(self, namespace: str, error: TooLargeError) -> Gap:
        known = self._known[namespace]
        known.paused_until = self._clock() + PAUSE_SECONDS
        known.gap = self._gap(Reason.PROMETHEUS_ERROR, f"{error}; the operator asks for this namespace less often")
        log.warning("%s", known.gap.message, extra={"namespace": namespace})
        return known.gap

    def _fetch(self, namespace: str, pods: Addresses, now: float, most: int, *, cells: bool) -> Answer | Gap:
        """Fetch the series of the pods, batch by batch; the first failure where no batch brought any. Raises
        TooLargeError."""
        label = self._settings.prometheus_address_label
        found = PodSeries(pods, label, most, self._settings.prometheus_pod_label)
        until = self._clock() + self._settings.tick_seconds
        for batch in batches({pod: pods[pod] for pod in sorted(pods) if pods[pod] or not label}):
            if self._clock() > until:
                gap: Gap | None = self._gap(Reason.PROMETHEUS_TIMEOUT, LATE)
            else:
                gap = self._ask(namespace, batch, now, found.add, cells=cells, label=label)
            if gap is not None:
                found.gaps.update(dict.fromkeys((pod for pod in pods if pod in batch or pod > max(batch)), gap))
                if not found.answer().series:
                    return gap
                break
        if self._settled is None and found.answer().series:
            self._settled = Address(self._local.url)
        if label:
            found.gaps.update(self._foreign(namespace, {pod: pods[pod] for pod in found.silent if pods[pod]}, now))
        return found.answer()

    def _ask(
        self,
        namespace: str,
        pods: Addresses,
        now: float,
        read: Callable[[Iterable[Mapping[str, Any]]], None],
        *,
        cells: bool,
        label: str,
        limit: int | None = None,
        named: bool = True,
    ) -> Gap | None:
        """Send one query and give its answer to `read`; returns None, or the gap of a failure. Raises TooLargeError.
        Without `named` the query leaves out the labels of namespace and pod."""
        text = query(
            namespace,
            pods,
            self._local.seconds,
            cells=cells,
            address_label=label,
            matchers=self._settings.prometheus_matchers,
            labels=self._labels if named else None,
        )
        # Multi-tenant front ends want the namespace named beside the query; Prometheus ignores it.
        params = {"time": f"{now:.3f}", "namespace": namespace}
        try:
            connect = self._connect()
            self._local.session.limit = limit or LARGEST_ANSWER
            self._local.session.read = lambda pieces: read(entries(pieces))
            connect.custom_query(text, params=params)
        except TooLargeError:
            raise
        except (TooSlowError, requests.Timeout, urllib3.exceptions.TimeoutError) as error:
            return self._gap(Reason.PROMETHEUS_TIMEOUT, error)
        except PrometheusApiClientException:
            # What answers may be anything within reach of the operator, and every tenant reads the message.
            return self._gap(Reason.PROMETHEUS_ERROR, describe_status(self._local.session.status))
        except (BadAnswerError, requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            return self._gap(Reason.PROMETHEUS_ERROR, error)
        return None

    def _foreign(self, namespace: str, pods: Addresses, now: float) -> Mapping[str, Gap]:
        """Gaps of silent pods of which Prometheus has series from elsewhere, or with other labels. Looked up now and
        then, for a few pods at a time."""
        known = self._known[namespace]
        if not pods:
            known.looked_at = -math.inf
            return {}
        if self._clock() - known.looked_at >= LOOK_SECONDS:
            known.silent = self._look_up(namespace, {pod: pods[pod] for pod in sorted(pods)[:FEW_PODS]}, now)
            known.looked_at = self._clock()
        return {pod: gap for pod, gap in known.silent.items() if pod in pods}

    def _look_up(self, namespace: str, pods: Addresses, now: float) -> dict[str, Gap]:
        """Gaps of pods whose series come from another address; then of those whose series, from their own address, bear
        their name or namespace in another label than the settings say."""
        label, (of_namespace, of_pod) = self._settings.prometheus_address_label, self._labels
        seen, named = dict[str, str](), self._labels_seen(namespace, pods, now, named=True)
        for labels in named or ():
            pod, address = labels.get(of_pod, ""), labels.get(label, "")
            if pod in pods and host_of(address) not in pods[pod]:
                seen[pod] = min(seen.get(pod, address), address)
        gaps = {pod: from_elsewhere(label, address, pods[pod]) for pod, address in seen.items()}
        unknown = {pod: own for pod, own in pods.items() if pod not in gaps}
        if named is None or not unknown:
            return gaps
        for labels in self._labels_seen(namespace, unknown, now, named=False) or ():
            for pod in (pod for pod, own in unknown.items() if host_of(labels.get(label, "")) in own):
                wanted = {"POD_LABEL": (of_pod, pod), "NAMESPACE_LABEL": (of_namespace, namespace)}
                if (gap := relabelling_gap(labels, wanted)) is not None:
                    gaps[pod] = gap
        return gaps

    def _labels_seen(
        self, namespace: str, pods: Addresses, now: float, *, named: bool
    ) -> list[Mapping[str, str]] | None:
        """Labels of the series that bear these pods' names, whatever their address; or, without `named`, of those with
        their addresses, whatever their name. As many as fit into FEW_BYTES; None where the query failed."""
        found: list[Mapping[str, str]] = []

        def read(series: Iterable[Mapping[str, Any]]) -> None:
            found.extend(map(labels_of, series))

        label = "" if named else self._settings.prometheus_address_label
        try:
            if self._ask(namespace, pods, now, read, cells=False, label=label, limit=FEW_BYTES, named=named):
                return None
        except TooLargeError:
            log.debug("the answer about other labels was cut off", extra={"namespace": namespace})
        return found

    @property
    def _labels(self) -> tuple[str, str]:
        """Names of the labels that hold the namespace and the pod's name."""
        return self._settings.prometheus_namespace_label, self._settings.prometheus_pod_label

    def _connect(self) -> Any:
        known, url = getattr(self._local, "connect", None), self._address().url
        if known is None or self._local.url != url:
            settings, self._local.url = self._settings, url
            auth: Any = self._auth
            self._local.session = _Session(settings)
            known = self._local.connect = PrometheusConnect(
                url=url,
                session=self._local.session,
                # `read=False` lets a timeout through as such instead of as a failed retry.
                retry=Retry(total=0, read=False, redirect=False),
                auth=auth,
            )
        return known

    def _gap(self, reason: Reason, error: object) -> Gap:
        url, limit = self._address().url, self._settings.prometheus_timeout_seconds
        if isinstance(error, TooSlowError | requests.Timeout | urllib3.exceptions.TimeoutError):
            return Gap(reason, f"{url} did not answer within {limit:g} s")
        if isinstance(error, requests.ConnectionError):
            return Gap(reason, f"{url} is unreachable: {unreachable(error)}")
        return Gap(reason, f"{url}: {error}")


def batches(pods: Addresses) -> Iterator[Addresses]:
    """Yield `pods` in their order, in batches whose queries fit into a URL."""
    batch: dict[str, tuple[str, ...]] = {}
    size = 0
    for pod, addresses in pods.items():
        weight = sum(len(quote(text)) + 5 * text.count(".") + 9 for text in (pod, *addresses))
        if batch and size + weight > LONGEST_URL:
            yield batch
            batch, size = {}, 0
        batch[pod] = addresses
        size += weight
    if batch:
        yield batch
