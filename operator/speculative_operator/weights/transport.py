"""Ranges of files over HTTP, and whatever goes wrong in the operator's words. Used by `hub` and `oci`, which know where
a file lies and what a refusal means there.

The client is that of the hub's library: it takes proxies (`HTTPS_PROXY`, `NO_PROXY`) and certificate authorities
(`SSL_CERT_FILE`, `SSL_CERT_DIR`) from the environment and follows redirects; credentials stay with the host that they
were meant for.
"""

from __future__ import annotations

import email.utils
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx2
from huggingface_hub import get_session

from speculative_operator.domain.reasons import Reason
from speculative_operator.weights.patience import Patience, at_a_rate
from speculative_operator.weights.source import WeightsError

_MOST_ANSWER = 4 << 20
"""Most bytes of an answer that is no file; the distribution specification asks registries to accept such manifests."""
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_TRUST = "put the certificate of its authority into a file, and set SSL_CERT_FILE to the path"
_LOOK = "check the network, the proxy settings and the address"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said."""

    status: int
    reason: str
    host: str
    headers: Mapping[str, str]
    """Names in any case."""
    content: bytes = b""
    """Content of a refusal or of a small answer; empty for a file."""

    @classmethod
    def of(cls, answer: httpx2.Response, content: bytes = b"") -> Answer:
        return cls(answer.status_code, answer.reason_phrase, answer.url.host, answer.headers, content)


Refusal = Callable[[Answer, str], WeightsError]
"""Turns an answer of status 400 or above into an error; takes the answer and the file."""


@dataclass
class Transport:
    """Requests to one source. Safe to use from several threads."""

    uri: str
    """URI of the model, for messages."""
    refused: Refusal
    patience: Patience = field(default_factory=Patience.from_environment)

    def ask(self, url: str, headers: Mapping[str, str]) -> Answer:
        """An answer of whatever status, whole, of at most 4 MiB. Raises WeightsError where no such answer comes."""
        with self.explain_errors(""), self._get(url, headers) as answer:
            return Answer.of(answer, self._content(answer))

    def blocks(self, url: str, headers: Mapping[str, str], span: tuple[int, int], file: str) -> Iterator[bytes]:
        """Yield bytes of `span` (end excluded) as they come, in blocks of at most 1 MiB."""
        start, end = span
        ranged = {**headers, "Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        with self.explain_errors(file), self._get(url, ranged) as answer:
            if answer.status_code >= 400:
                raise self.refused(Answer.of(answer, self._content(answer)), file)
            self._check_range(answer, start, end, file)
            at = start
            for block in at_a_rate(answer.iter_raw(), self.uri, file, self.patience):
                if at >= end:  # a server without ranges sends the whole file
                    return
                yield block[: end - at]
                at += len(block)
            if at < end:
                raise self._unreachable(file, f"the answer ended at byte {at}, before byte {end}")

    @contextmanager
    def _get(self, url: str, headers: Mapping[str, str]) -> Iterator[httpx2.Response]:
        limits = httpx2.Timeout(self.patience.read, connect=self.patience.connect)
        with get_session().stream("GET", url, headers=dict(headers), timeout=limits) as answer:
            yield answer

    def _content(self, answer: httpx2.Response) -> bytes:
        content = b""
        for block in answer.iter_bytes():
            content += block
            if len(content) > _MOST_ANSWER:
                raise WeightsError(
                    Reason.UNSUPPORTED_SOURCE,
                    f"{self.uri}: {answer.url.host} answers more than {_MOST_ANSWER} bytes where it describes a model",
                    remedy="check the address, and whether a proxy answers with its own page",
                )
        return content

    def _check_range(self, answer: httpx2.Response, start: int, end: int, file: str) -> None:
        """Check that an answer has the range; a whole file will do where the range starts at 0. Raises WeightsError."""
        if answer.status_code == httpx2.codes.OK and start == 0:
            return
        content_range = _RANGE.fullmatch(answer.headers.get("Content-Range", "").strip())
        partial = answer.status_code == httpx2.codes.PARTIAL_CONTENT
        if not partial or content_range is None or int(content_range[1]) != start:
            raise WeightsError(
                Reason.UNSUPPORTED_SOURCE,
                f"{self.uri}: {answer.url.host} does not serve ranges of files",
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
        """Turn errors of the client into WeightsError."""
        try:
            yield
        except httpx2.TimeoutException as error:
            connecting = isinstance(error, httpx2.ConnectTimeout)
            limit = self.patience.connect if connecting else self.patience.read
            raise self._unreachable(file, f"no byte within {limit:g} seconds") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            text = _short(str(error) or type(error).__name__)
            if "certificate" in text.lower() or "SSL" in text:
                raise self._unreachable(file, f"the certificate is not trusted ({text})", _TRUST) from error
            if isinstance(error, httpx2.ProxyError):
                remedy = "check HTTPS_PROXY and NO_PROXY"
                raise self._unreachable(file, f"cannot use the proxy ({text})", remedy) from error
            what = "cannot reach the source" if isinstance(error, httpx2.ConnectError) else "the connection broke"
            raise self._unreachable(file, f"{what} ({text})") from error
        except OSError as error:
            raise self._unreachable(file, f"cannot read the file of certificates ({error})", _TRUST) from error


def _short(text: str) -> str:
    """The text of the innermost of errors that quote each other."""
    inner = re.search(r"(?:\[Errno -?\d+\]|\[SSL: \w+\])[^\"'()]*", text)
    return (inner[0] if inner else text)[:200].strip()


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
