"""Queries to any Prometheus-compatible server, answered with domain values or one of our errors: one instant query for
the raw samples of a tick, and the history of a deployment for `speculative replay`.

`prometheus_api_client` sends the query; what it lacks is added by the session it is given: an overall deadline and a
size limit (its timeout is per read), no silent retries, a token re-read per request, and a look at what it throws
away (status, result type, warnings of partial answers). Used by rounds, in threads, and by the command line.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import requests
import urllib3
from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests.auth import AuthBase
from urllib3.util.retry import Retry

from speculative_operator.domain.observation import Gap, Series
from speculative_operator.domain.reasons import Reason
from speculative_operator.engines.registry import queries
from speculative_operator.settings import Settings

log = logging.getLogger(__name__)

LARGEST_ANSWER = 64 * 2**20
"""bytes; a namespace of 1,000 pods with 40 series of 12 samples answers about 25 MiB."""
LARGEST_WITH_CELLS = 16 * 2**20
"""bytes; step telemetry multiplies the series of a pod, and parsed they take some ten times the answer. Above it the
operator does without: some hundred pods of one namespace are within."""
PLAIN_SECONDS = 3600.0
"""How long a namespace that was above it is asked for without step telemetry."""
PIECE = 64 * 1024


class BadAnswerError(Exception):
    """Prometheus answered something that is not a whole, successful result."""


class TooLargeError(BadAnswerError):
    """The answer is larger than what may be held."""


class TooSlowError(Exception):
    """The whole answer did not arrive within the deadline."""


class _TokenFile(AuthBase):
    """Bearer token from a file, read at each request."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        try:
            token = self._path.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise BadAnswerError(f"cannot read the token file {self._path}: {error.strerror}") from error
        request.headers["Authorization"] = f"Bearer {token}"
        return request


class _Answer(requests.Response):
    """A response that was read and judged as a whole."""

    parsed: Any = None

    def json(self, **_: Any) -> Any:
        return self.parsed


class _Session(requests.Session):
    """Reads each answer within `deadline` seconds in all and at most `limit` bytes."""

    limit = LARGEST_ANSWER

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._deadline = settings.prometheus_timeout_seconds
        # Proxies and ~/.netrc of the environment would override token and CA.
        self.trust_env = False
        if settings.prometheus_ca_file:
            self.verify = settings.prometheus_ca_file

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        until = time.monotonic() + self._deadline
        kwargs |= {"stream": True, "timeout": self._deadline, "allow_redirects": False}
        with super().request(*args, **kwargs) as response:
            content = _read(response, until, self.limit)
        answer = _Answer()
        answer.__dict__.update(response.__dict__)
        answer._content = content
        if response.status_code == 200:
            answer.parsed = judged(content)
        return answer


def _read(response: requests.Response, until: float, limit: int) -> bytes:
    pieces, size = [], 0
    for piece in response.iter_content(PIECE):
        size += len(piece)
        if size > limit:
            raise TooLargeError(f"the answer is larger than {limit // 2**20} MiB")
        if time.monotonic() > until:
            raise TooSlowError("the answer came too slowly")
        pieces.append(piece)
    return b"".join(pieces)


def judged(content: bytes) -> dict[str, Any]:
    """The parsed answer, when it is a whole and successful matrix. Raises BadAnswerError."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadAnswerError("the answer is not JSON: is the URL that of Prometheus?") from error
    if not isinstance(answer, dict) or answer.get("status") != "success":
        told = answer.get("error") if isinstance(answer, dict) else None
        raise BadAnswerError(f"the query failed: {told or 'no status success'}")
    if answer.get("warnings"):
        raise BadAnswerError(f"the answer may be partial: {str(answer['warnings'])[:200]}")
    data = answer.get("data")
    if not isinstance(data, dict) or data.get("resultType") != "matrix" or not isinstance(data.get("result"), list):
        raise BadAnswerError("the answer holds no range vector")
    return answer


def parse(result: Sequence[Any]) -> tuple[Series, ...]:
    """Domain series from `data.result` of a matrix. NaN and infinities are kept: the engine adapter judges values.

    Raises BadAnswerError when an entry is not a series.
    """
    try:
        return tuple(_series(entry) for entry in result)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadAnswerError(f"the answer holds a malformed series: {error}") from error


def _series(entry: Mapping[str, Any]) -> Series:
    labels = {str(name): str(value) for name, value in entry["metric"].items()}
    samples = tuple((float(moment), float(value)) for moment, value in entry.get("values") or ())
    return Series(labels.pop("__name__"), labels, samples)


class Prometheus:
    """`fetch` blocks and is safe to call from several threads; each has a session of its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._local = threading.local()
        self._plain_until: dict[str, float] = {}
        """Namespaces whose step telemetry was too much, and until when (unix seconds) it is not asked for."""

    def fetch(self, namespace: str, now: float) -> tuple[Series, ...] | Gap:
        """Series of all serving pods of the namespace as of unix time `now`, or why there are none."""
        if now >= self._plain_until.get(namespace, 0.0):
            try:
                return self._fetch(namespace, now, LARGEST_WITH_CELLS, cells=True)
            except TooLargeError as error:
                log.info("%s: doing without step telemetry", error, extra={"namespace": namespace})
                self._plain_until[namespace] = now + PLAIN_SECONDS
        try:
            return self._fetch(namespace, now, LARGEST_ANSWER, cells=False)
        except TooLargeError as error:
            return Gap(Reason.PROMETHEUS_ERROR, self._says(error))

    def _fetch(self, namespace: str, now: float, limit: int, *, cells: bool) -> tuple[Series, ...] | Gap:
        """Raises TooLargeError."""
        query = queries(namespace, self._settings.prometheus_range_seconds, cells=cells)
        # Multi-tenant front ends want the namespace named beside the query; Prometheus ignores it.
        params = {"time": f"{now:.3f}", "namespace": namespace}
        return self._series(lambda connect: connect.custom_query(query, params=params), limit)

    def history(self, selector: str, namespace: str, start: int, end: int, step: int) -> tuple[Series, ...] | Gap:
        """What `selector` gave from unix time `start` to `end`, both included, every `step` seconds, or why not.

        Each value is the newest one at that instant, as `query_range` has it: at most five minutes old.
        """
        first, last = (datetime.fromtimestamp(time, UTC) for time in (start, end))
        params = {"namespace": namespace}
        try:
            return self._series(
                lambda connect: connect.custom_query_range(selector, first, last, str(step), params=params),
                LARGEST_ANSWER,
            )
        except TooLargeError as error:
            return Gap(Reason.PROMETHEUS_ERROR, self._says(error))

    def _series(self, ask: Callable[[Any], Sequence[Any]], limit: int) -> tuple[Series, ...] | Gap:
        """Raises TooLargeError above `limit` bytes; every other failure is a gap."""
        try:
            connect = self._connect()
            self._local.session.limit = limit
            return parse(ask(connect))
        except TooLargeError:
            raise
        except (TooSlowError, requests.Timeout) as error:
            return Gap(Reason.PROMETHEUS_TIMEOUT, self._says(error))
        except PrometheusApiClientException as error:
            return Gap(Reason.PROMETHEUS_ERROR, self._says(str(error)[:300]))
        except (BadAnswerError, requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            return Gap(Reason.PROMETHEUS_ERROR, self._says(error))

    def _connect(self) -> Any:
        known = getattr(self._local, "connect", None)
        if known is None:
            settings = self._settings
            token = settings.prometheus_token_file
            auth: Any = _TokenFile(token) if token else None
            self._local.session = _Session(settings)
            known = self._local.connect = PrometheusConnect(
                url=settings.prometheus_url,
                session=self._local.session,
                # `read=False` lets a timeout through as such instead of as a failed retry.
                retry=Retry(total=0, read=False, redirect=False),
                auth=auth,
            )
        return known

    def _says(self, error: object) -> str:
        limit = self._settings.prometheus_timeout_seconds
        if isinstance(error, TooSlowError | requests.Timeout):
            return f"{self._settings.prometheus_url} did not answer within {limit:g} s"
        if isinstance(error, requests.ConnectionError):
            return f"{self._settings.prometheus_url} is unreachable: {_innermost(error)}"
        return f"{self._settings.prometheus_url}: {error}"


def _innermost(error: BaseException) -> str:
    """The cause at the bottom, without the addresses of objects that change its text each time."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    return getattr(error, "strerror", None) or type(error).__name__
