"""Access to Prometheus: the credentials that go with a query, and what `MetricsAvailable` says when no figures come,
with the remedy. Used by `prometheus`.

Credentials are files of mounted Secrets or tokens, read at each request because they rotate. Messages are stable while
the fault is, because each change of one is a write to the API server, and quote nothing of an answer's body.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import requests
from requests.auth import AuthBase, HTTPBasicAuth

from speculative_operator.domain.observation import Gap
from speculative_operator.domain.reasons import Reason
from speculative_operator.settings import PREFIX, Settings
from speculative_operator.shell.podseries import BadAnswerError

_OF_STATUS: Mapping[int, str] = {
    301: "it redirects, which the operator does not follow: set the address that it redirects to",
    302: "it redirects, to a login perhaps: set an address that takes a token (chart: prometheus.url)",
    400: "it refuses the query: its log says why",
    401: "it refuses the credentials, or none were sent: renew or set them (chart: prometheus.token, "
    "prometheus.basicAuth)",
    403: "the credentials may not read these metrics: give their owner that right (OpenShift: the role "
    "cluster-monitoring-view, or view in the namespace on the tenancy port)",
    404: "there is no query API at this path: set the address before /api/v1, with its path prefix (chart: "
    "prometheus.url)",
    407: f"the proxy asks for credentials: set {PREFIX}PROMETHEUS_PROXY by extraEnv with a secretKeyRef to its URL "
    "with user and password, in place of the chart's prometheus.proxy",
    422: "it refuses the query, for its limits perhaps: its log says why",
    502: "what is in front of Prometheus cannot reach it; the operator asks again",
    503: "Prometheus is starting or overloaded, or nothing is behind the address; the operator asks again",
    504: "what is in front of Prometheus cannot reach it in time; the operator asks again",
}


class TokenFile(AuthBase):
    """Bearer token from a file, read at each request."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        token = _text(self._path, f"the token file {self._path}")
        if not (token.isascii() and token.isprintable()):
            raise BadAnswerError(f"cannot send the token file {self._path}: it is not one line of ASCII characters")
        request.headers["Authorization"] = f"Bearer {token}"
        return request


class BasicAuthFolder(AuthBase):
    """User and password from two files, read at each request."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        what = f"user and password in {self._path}"
        user, password = (_text(self._path / name, what).encode() for name in ("username", "password"))
        authenticated: requests.PreparedRequest = HTTPBasicAuth(user, password)(request)
        return authenticated


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise BadAnswerError(f"cannot read {what}: {error.strerror}") from error
    except UnicodeError:
        # Not `from` it: it holds the contents.
        raise BadAnswerError(f"cannot read {what}: {path.name} is not UTF-8 text") from None


def credentials_of(settings: Settings) -> TokenFile | BasicAuthFolder | None:
    """The credentials that go with each query; None where the settings name none."""
    if settings.prometheus_token_file:
        return TokenFile(settings.prometheus_token_file)
    folder = settings.prometheus_basic_auth_folder
    return BasicAuthFolder(folder) if folder else None


def describe_status(status: int) -> str:
    """What an HTTP status says, and what to do about it."""
    found = _OF_STATUS.get(status)
    return f"it answered with HTTP status {status}{f'; {found}' if found else ''}"


def unreachable(error: requests.ConnectionError) -> str:
    """Why no connection could be made."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"its certificate cannot be verified ({cause.verify_message}): set the authority that signed it, and "
                "an address that it names (chart: prometheus.ca, prometheus.url)"
            )
        if isinstance(cause, ssl.SSLError):
            return (
                f"TLS failed ({cause.reason or 'closed'}): if it asks for a certificate, set one (chart: "
                "prometheus.clientCertificate); if it speaks no TLS, set an http:// address"
            )
    if isinstance(error, requests.exceptions.ProxyError):
        return f"the proxy cannot be reached ({_innermost(error)}): correct the chart's prometheus.proxy"
    return (
        f"{_innermost(error)}: correct the address, or let the operator's pod reach it (chart: prometheus.url); "
        f"after a minute the operator reads up to 32 pods itself, unless {PREFIX}READ_PODS is false"
    )


def from_elsewhere(label: str, address: str, addresses: Iterable[str]) -> Gap:
    """The gap of a pod whose series come from another address."""
    message = (
        f"Prometheus has series of this pod with {label} {address[:80]!r}, but the pod's address is "
        f"{' or '.join(addresses)}; if Prometheus rewrites that label, set {PREFIX}PROMETHEUS_ADDRESS_LABEL to the "
        "label with the address"
    )
    return Gap(Reason.METRICS_FOREIGN, message)


def relabelling_gap(labels: Mapping[str, str], wanted: Mapping[str, tuple[str, str]]) -> Gap | None:
    """The gap of a pod whose series bears its name or namespace in another label than expected; None where it does not.
    `wanted`: setting -> label and value."""
    for setting, (label, value) in wanted.items():
        others = [name for name in sorted(labels) if labels[name] == value]
        if labels.get(label) != value and others:
            return _other_label(setting, label, others[0], value)
    return None


def _other_label(setting: str, wanted: str, label: str, value: str) -> Gap:
    message = (
        f"Prometheus has series from this pod's address, but {value[:80]!r} is in their label {label} and not in "
        f"{wanted}; set {PREFIX}PROMETHEUS_{setting}={label} (chart: settings)"
    )
    return Gap(Reason.METRICS_MISSING, message)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from, outermost first: libraries chain it, or wrap it as `reason` or argument."""
    below: BaseException | None = error
    while below is not None:
        yield below
        wrapped = (below.__cause__, below.__context__, getattr(below, "reason", None), *below.args)
        below = next((one for one in wrapped if isinstance(one, BaseException)), None)


def _innermost(error: BaseException) -> str:
    """The cause at the bottom, without the addresses of objects that change its text each time."""
    *_, last = _causes(error)
    return getattr(last, "strerror", None) or type(last).__name__
