"""Ranges of files over HTTP: one pool of connections, and whatever goes wrong in the operator's words. Used by `hub`
and `oci`, which know where a file lies and what a refusal means there.

Proxies (`HTTPS_PROXY`, `NO_PROXY`) and certificate authorities (`SSL_CERT_FILE`, `SSL_CERT_DIR`) are taken from the
environment, by httpx. Redirects are followed; credentials stay with the host that they were meant for.
"""

from __future__ import annotations

import email.utils
import re
import ssl
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx

from speculative_operator.domain.reasons import Reason
from speculative_operator.weights.errors import WeightsError
from speculative_operator.weights.patience import Patience

_CONNECTIONS = 64
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_TRUST = "put the certificate of the authority that signed it into a file, and its path into SSL_CERT_FILE"
_LOOK = "look at the network, the proxy settings and the address"

Refusal = Callable[[httpx.Response, str], WeightsError]
"""What an answer of status 400 or above means: (answer, file) -> error."""


@dataclass
class Transport:
    """Connections to one source. Safe to use from several threads."""

    uri: str
    """Of the model, for messages."""
    refused: Refusal
    patience: Patience = field(default_factory=Patience.from_environment)

    def __post_init__(self) -> None:
        limits = httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
        timeout = httpx.Timeout(self.patience.read, connect=self.patience.connect)
        with self.told(""):
            self._client = httpx.Client(timeout=timeout, limits=limits, follow_redirects=True, max_redirects=8)
        weakref.finalize(self, self._client.close)

    def get(self, url: str, headers: Mapping[str, str], file: str = "") -> httpx.Response:
        """A small answer, whole. Raises WeightsError."""
        with self.told(file):
            answer = self._client.get(url, headers=dict(headers))
        if answer.is_error:
            raise self.refused(answer, file)
        return answer

    def ask(self, url: str, headers: Mapping[str, str]) -> httpx.Response:
        """An answer of whatever status, whole. Raises WeightsError where none comes."""
        with self.told(""):
            return self._client.get(url, headers=dict(headers))

    def blocks(
        self, url: str, headers: Mapping[str, str], span: tuple[int, int], file: str, landed: Callable[[str], None]
    ) -> Iterator[bytes]:
        """Bytes of `span` (end excluded) as they come, 64 KiB or less at once; `landed` is told where redirects led."""
        start, end = span
        asked = {**headers, "Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        with self.told(file), self._client.stream("GET", url, headers=asked) as answer:
            if answer.is_error:
                answer.read()
                raise self.refused(answer, file)
            landed(str(answer.url))
            self._check_range(answer, start, end, file)
            at, watch = start, _Watch(self.patience)
            for came in answer.iter_raw():
                block = came[: end - at]
                at += len(block)
                yield block
                if at >= end:
                    return
                if watch.too_slow(len(block)):
                    raise self._unreachable(file, f"fewer than {self.patience.least_rate:g} bytes come per second")
            raise self._unreachable(file, f"the answer ended at byte {at}, before byte {end}")

    def _check_range(self, answer: httpx.Response, start: int, end: int, file: str) -> None:
        """A server may answer with the whole file; good enough from its beginning."""
        if answer.status_code == httpx.codes.OK and start == 0:
            return
        told = _RANGE.fullmatch(answer.headers.get("Content-Range", "").strip())
        if answer.status_code != httpx.codes.PARTIAL_CONTENT or told is None or int(told[1]) != start:
            raise WeightsError(
                Reason.UNSUPPORTED_SOURCE,
                f"{self.uri}: {answer.url.host} does not serve ranges of files",
                file=file,
                status=answer.status_code,
                remedy="let the mirror or proxy pass Range requests through",
            )
        if int(told[2]) < end - 1:
            raise self.shorter(file, int(told[2]) + 1, end)

    def shorter(self, file: str, ends: int, wanted: int) -> WeightsError:
        """A file that ends before the size its source announced."""
        return WeightsError(
            Reason.CHECKSUM_MISMATCH,
            f"{self.uri}: the file ends at byte {ends}, and {wanted} were announced",
            file=file,
            remedy="the mirror or proxy holds an incomplete copy: compare the file at its source",
        )

    def _unreachable(self, file: str, what: str, remedy: str = _LOOK) -> WeightsError:
        return WeightsError(Reason.SOURCE_UNREACHABLE, f"{self.uri}: {what}", file=file, remedy=remedy)

    @contextmanager
    def told(self, file: str) -> Iterator[None]:
        """Turns what goes wrong on the way into WeightsError."""
        try:
            yield
        except ssl.SSLError as error:
            raise self._unreachable(file, f"no trust in the certificates ({error})", _TRUST) from error
        except FileNotFoundError as error:
            raise self._unreachable(file, f"a file of certificates cannot be read ({error})", _TRUST) from error
        except httpx.TimeoutException as error:
            what = type(error).__name__.removesuffix("Timeout").lower()
            seconds = self.patience.connect if isinstance(error, httpx.ConnectTimeout) else self.patience.read
            raise self._unreachable(file, f"timed out: {what}, {seconds:g} seconds without a byte") from error
        except httpx.ProxyError as error:
            raise self._unreachable(file, f"the proxy refused ({error})", "look at HTTPS_PROXY and NO_PROXY") from error
        except httpx.ConnectError as error:
            remedy = _TRUST if "CERTIFICATE_VERIFY_FAILED" in str(error) else _LOOK
            raise self._unreachable(file, f"cannot be reached ({error})", remedy) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._unreachable(file, f"the connection broke ({error or type(error).__name__})") from error


class _Watch:
    """Whether bytes still come at a rate worth waiting for."""

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


def refusal(uri: str, answer: httpx.Response, file: str) -> WeightsError:
    """What a status means anywhere; `hub` and `oci` say more where they know more."""
    status = answer.status_code
    where = f"{uri}: {answer.url.host} answers {status} {answer.reason_phrase}".rstrip()
    wait = retry_after(answer.headers)
    if status == httpx.codes.TOO_MANY_REQUESTS:
        later = f"; asks to wait {wait:.0f} seconds" if wait is not None else ""
        remedy = "ask less at once, or with credentials: most sources allow more then"
        return WeightsError(Reason.SOURCE_THROTTLED, where + later, file, status, remedy, retry_after=wait)
    if status >= 500 or status == httpx.codes.REQUEST_TIMEOUT:
        remedy = "nothing is to be done here: the source or a proxy before it fails"
        return WeightsError(Reason.SOURCE_UNREACHABLE, where, file, status, remedy, retry_after=wait)
    if status == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
        return WeightsError(Reason.CHECKSUM_MISMATCH, f"{where}: the file is shorter than announced", file, status)
    if status in (httpx.codes.NOT_FOUND, httpx.codes.GONE):
        return WeightsError(Reason.SOURCE_NOT_FOUND, where, file, status, "correct the name or the revision")
    if status in (401, 403, 407, 451):
        remedy = "put user and password into HTTPS_PROXY" if status == 407 else ""
        return WeightsError(Reason.SOURCE_UNAUTHORIZED, where, file, status, remedy)
    return WeightsError(Reason.UNSUPPORTED_SOURCE, where, file, status)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of `Retry-After`, which names seconds or a date (RFC 9110, 10.2.3)."""
    told = headers.get("Retry-After", "").strip()
    if told.isdecimal():
        return float(told)
    try:
        return max((email.utils.parsedate_to_datetime(told) - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None
