"""Ranges of files over HTTP: one pool of connections, and whatever goes wrong in the operator's words. Used by `hub`
and `oci`, which know where a file lies and what a refusal means there.

Proxies (`HTTPS_PROXY`, `NO_PROXY`) are taken from the environment, by requests; certificate authorities too
(`SSL_CERT_FILE`, `SSL_CERT_DIR`). Redirects are followed; credentials stay with the host that they were meant for.
Bytes are taken as the socket gives them: the clients of the hub and of registries spend a multiple of the time on each.
"""

from __future__ import annotations

import email.utils
import os
import re
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import urlsplit

import httpx
import requests
import urllib3
from requests.adapters import HTTPAdapter

from speculative_operator.domain.reasons import Reason
from speculative_operator.weights.patience import Patience
from speculative_operator.weights.source import WeightsError

_BLOCK = 256 << 10
LARGEST_ANSWER = 64 << 20
"""Bytes of an answer that is no file: a manifest, a listing, a login, a refusal."""
_CONNECTIONS = 64
_MOST_REDIRECTS = 8
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_TRUST = "put the certificate of its authority into a file, and set SSL_CERT_FILE to the path"
_LOOK = "check the network, the proxy settings and the address"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said, whichever client asked it."""

    status: int
    reason: str
    host: str
    headers: Mapping[str, str]
    """Names in any case."""
    content: bytes
    """Content of a refusal or of a small answer; empty for a file."""

    @classmethod
    def of(cls, answer: httpx.Response | requests.Response) -> Answer:
        """The answer with its content, which is read here where it was not read yet."""
        reason = answer.reason if isinstance(answer, requests.Response) else answer.reason_phrase
        host = urlsplit(str(answer.url)).hostname or ""
        if isinstance(answer, requests.Response):
            _read_whole(answer)
        return cls(answer.status_code, reason or "", host, answer.headers, answer.content)

    @property
    def refuses(self) -> bool:
        return self.status >= 400


Refusal = Callable[[Answer, str], WeightsError]
"""Turns an answer of status 400 or above into an error; takes the answer and the file."""


@dataclass
class Transport:
    """Connections to one source. Safe to use from several threads."""

    uri: str
    """URI of the model, for messages."""
    refused: Refusal
    patience: Patience = field(default_factory=Patience.from_environment)

    def __post_init__(self) -> None:
        self._session = session(self.patience)
        weakref.finalize(self, self._session.close)

    def ask(self, url: str, headers: Mapping[str, str]) -> Answer:
        """An answer of whatever status, whole. Raises WeightsError where no answer comes."""
        with self.explain_errors(""):
            return Answer.of(self._get(url, headers, stream=False))

    def blocks(
        self, url: str, headers: Mapping[str, str], span: tuple[int, int], file: str, landed: Callable[[str], None]
    ) -> Iterator[bytes]:
        """Yield bytes of `span` (end excluded) as they come, 256 KiB at most; `landed` is told where redirects led."""
        start, end = span
        range_headers = {**headers, "Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        with self.explain_errors(file), self._get(url, range_headers, stream=True) as answer:
            if answer.status_code >= 400:
                raise self.refused(Answer.of(answer), file)
            landed(answer.url)
            self._check_range(answer, start, end, file)
            at, watch = start, _Watch(self.patience)
            while at < end:
                block = answer.raw.read1(min(_BLOCK, end - at), decode_content=False)
                if not block:
                    raise self._unreachable(file, f"the answer ended at byte {at}, before byte {end}")
                at += len(block)
                yield block
                if watch.too_slow(len(block)) and at < end:
                    raise self._unreachable(file, f"fewer than {self.patience.least_rate:g} bytes arrive per second")

    def _get(self, url: str, headers: Mapping[str, str], *, stream: bool) -> requests.Response:
        return self._session.get(
            url, headers=dict(headers), stream=stream, verify=trusted_authorities(), auth=_without_netrc
        )

    def _check_range(self, answer: requests.Response, start: int, end: int, file: str) -> None:
        """Check that an answer has the range; a whole file will do where the range starts at 0. Raises WeightsError."""
        if answer.status_code == requests.codes.ok and start == 0:
            return
        content_range = _RANGE.fullmatch(answer.headers.get("Content-Range", "").strip())
        if answer.status_code != requests.codes.partial or content_range is None or int(content_range[1]) != start:
            raise WeightsError(
                Reason.UNSUPPORTED_SOURCE,
                f"{self.uri}: {urlsplit(answer.url).hostname} does not serve ranges of files",
                file=file,
                status=answer.status_code,
                remedy="configure the mirror or proxy to pass Range requests through",
            )
        if int(content_range[2]) < end - 1:
            raise WeightsError(
                Reason.CHECKSUM_MISMATCH,
                f"{self.uri}: the file ends at byte {int(content_range[2]) + 1}, but {end} were announced",
                file=file,
                remedy="the mirror or proxy has an incomplete copy: compare the file at its source",
            )

    def _unreachable(self, file: str, what: str, remedy: str = _LOOK) -> WeightsError:
        return WeightsError(Reason.SOURCE_UNREACHABLE, f"{self.uri}: {what}", file=file, remedy=remedy)

    @contextmanager
    def explain_errors(self, file: str) -> Iterator[None]:
        """Turn errors of every client into WeightsError."""
        try:
            yield
        except _LATE as error:
            raise self._unreachable(file, f"no byte within {self._timeout_of(error):g} seconds") from error
        except (requests.RequestException, httpx.HTTPError, httpx.InvalidURL, urllib3.exceptions.HTTPError) as error:
            raise self._connection_error(error, file) from error
        except OSError as error:
            raise self._unreachable(file, f"cannot read the file of certificates ({error})", _TRUST) from error

    def _timeout_of(self, error: Exception) -> float:
        connecting = isinstance(error, httpx.ConnectTimeout | requests.ConnectTimeout)
        return self.patience.connect if connecting else self.patience.read

    def _connection_error(self, error: Exception, file: str) -> WeightsError:
        text = str(error) or type(error).__name__
        if "certificate" in text.lower() or isinstance(error, requests.exceptions.SSLError):
            return self._unreachable(file, f"the certificate is not trusted ({_short(text)})", _TRUST)
        if isinstance(error, httpx.ProxyError | requests.exceptions.ProxyError):
            return self._unreachable(file, f"cannot use the proxy ({_short(text)})", "check HTTPS_PROXY and NO_PROXY")
        if isinstance(error, httpx.ConnectError | requests.ConnectionError):
            return self._unreachable(file, f"cannot reach the source ({_short(text)})")
        return self._unreachable(file, f"the connection broke ({_short(text)})")


_LATE = (httpx.TimeoutException, requests.Timeout, urllib3.exceptions.TimeoutError)


def session(patience: Patience) -> requests.Session:
    """Connections with time limits, which requests has none of by itself, and without cookies."""
    made = requests.Session()
    made.max_redirects = _MOST_REDIRECTS
    made.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    for scheme in ("http://", "https://"):
        made.mount(scheme, _Timely(patience))
    return made


def trusted_authorities() -> str | bool:
    """Path of the certificate authorities to trust; True for those that come with the client."""
    return os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR") or True


class _Timely(HTTPAdapter):
    def __init__(self, patience: Patience) -> None:
        self._limits = (patience.connect, patience.read)
        super().__init__(pool_connections=_CONNECTIONS, pool_maxsize=_CONNECTIONS)

    def send(self, request: Any, **settings: Any) -> requests.Response:  # type: ignore[override]
        answer = super().send(request, **{**settings, "timeout": settings.get("timeout") or self._limits})
        if not settings.get("stream"):
            _read_whole(answer)
        return answer


class _TooLargeError(requests.RequestException):
    """The answer is larger than what may be held."""


def _read_whole(answer: requests.Response) -> None:
    """Have the answer hold its content, as its `content` would. Raises _TooLargeError above LARGEST_ANSWER."""
    content = bytearray()
    for piece in answer.iter_content(_BLOCK):
        content += piece
        if len(content) > LARGEST_ANSWER:
            answer.close()
            raise _TooLargeError(f"an answer is larger than {LARGEST_ANSWER >> 20} MiB")
    answer._content = bytes(content)


def _without_netrc(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Keeps requests from looking for other credentials in ~/.netrc."""
    return request


def _short(text: str) -> str:
    """The text of the innermost of errors that quote each other."""
    inner = re.search(r"(?:\[Errno -?\d+\]|\[SSL: \w+\])[^\"'()]*", text)
    return (inner[0] if inner else text)[:200].strip()


class _Watch:
    """Watches whether bytes still come at a rate worth waiting for."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._since, self._bytes = time.monotonic(), 0

    def too_slow(self, more: int) -> bool:
        self._bytes += more
        spent = time.monotonic() - self._since
        if spent < self._patience.read:
            return False
        slow = self._bytes < self._patience.least_rate * spent
        self._since, self._bytes = time.monotonic(), 0
        return slow


def refusal(uri: str, answer: Answer, file: str) -> WeightsError:
    """The error that stands for a status of any server; `hub` and `oci` say more where they know more."""
    status = answer.status
    where = f"{uri}: {answer.host} answers {status} {answer.reason}".rstrip()
    wait = retry_after(answer.headers)
    if status == 429:
        later = f"; asks to wait {wait:.0f} seconds" if wait is not None else ""
        remedy = "reduce requests, or use credentials: most sources then allow more"
        return WeightsError(Reason.SOURCE_THROTTLED, where + later, file, status, remedy, retry_after=wait)
    if status >= 500 or status == 408:
        remedy = "wait: the source or a proxy in front of it fails"
        return WeightsError(Reason.SOURCE_UNREACHABLE, where, file, status, remedy, retry_after=wait)
    if status == 416:
        return WeightsError(Reason.CHECKSUM_MISMATCH, f"{where}: the file is shorter than announced", file, status)
    if status in (404, 410):
        return WeightsError(Reason.SOURCE_NOT_FOUND, where, file, status, "correct the name or the revision")
    if status in (401, 403, 407, 451):
        remedy = "put user and password into HTTPS_PROXY" if status == 407 else ""
        return WeightsError(Reason.SOURCE_UNAUTHORIZED, where, file, status, remedy)
    return WeightsError(Reason.UNSUPPORTED_SOURCE, where, file, status)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of `Retry-After`, which names seconds or a date (RFC 9110, 10.2.3)."""
    delay = headers.get("Retry-After", "").strip()
    if delay.isdecimal():
        return float(delay)
    try:
        return max((email.utils.parsedate_to_datetime(delay) - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None
