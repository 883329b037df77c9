"""Credentials for Prometheus from files that are mounted Secrets or tokens, read at each request because they rotate;
and answers without them. Used by `prometheus`.
"""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import requests
from requests.auth import AuthBase, HTTPBasicAuth

from speculative_operator.domain.credentials import HIDDEN
from speculative_operator.settings import Settings
from speculative_operator.shell.matrix import BadAnswerError

SHORTEST_HIDDEN = 6
"""Least bytes of a password that is taken out of answers: a shorter one may be a word of the answer, and its absence
would tell it."""


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


def without_sent(content: bytes, request: requests.PreparedRequest) -> bytes:
    """An answer to `request` without the credentials that were sent in it: pages of proxies repeat them."""
    scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
    secrets = [sent.encode()]
    if scheme == "Basic":
        secrets.append(b64decode(sent).partition(b":")[2])
    for secret in secrets:
        if len(secret) >= SHORTEST_HIDDEN:
            content = content.replace(secret, HIDDEN.encode())
    return content
