"""Talking to an OCI registry: who we are, and what its refusals mean. Used by `oci`.

The ORAS library finds credentials in docker's configuration, helpers of a user's machine included.
"""

from __future__ import annotations

import base64
import json
import os
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import oras.container
from oras.auth.token import TokenAuth
from oras.auth.utils import parse_auth_header

from speculative_operator.domain.reasons import Reason
from speculative_operator.weights.patience import Patience
from speculative_operator.weights.source import WeightsError
from speculative_operator.weights.transport import Answer, Transport, refusal

PLAIN_HTTP = "SPECULATIVE_PLAIN_HTTP_REGISTRIES"
"""Environment variable: `host:port` of registries without TLS, separated by commas. Loopback needs no mention."""
_DOCKER_HUB = "https://index.docker.io/v1/"
"""The name under which docker keeps the credentials of docker.io."""
_LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")


@dataclass(frozen=True, slots=True)
class Reference:
    """`registry/repository:tag@digest`, taken apart."""

    registry: str
    repository: str
    version: str
    """Digest, else tag, else `latest`."""

    @classmethod
    def of(cls, location: str, revision: str) -> Reference:
        """The reference that `location` names; `revision` goes before its tag and digest."""
        rest, _, digest = location.partition("@")
        registry, _, path = rest.partition("/")
        repository, _, tag = path.partition(":")
        return cls(registry, repository, revision or digest or tag or "latest")

    @property
    def location(self) -> str:
        return f"{self.registry}/{self.repository}"

    @property
    def base(self) -> str:
        """Address below which manifests and blobs lie."""
        host = "registry-1.docker.io" if self.registry == "docker.io" else self.registry
        plain = [name.strip() for name in os.environ.get(PLAIN_HTTP, "").split(",")]
        scheme = "http" if self.registry in plain or _LOOPBACK.fullmatch(self.registry) else "https"
        return f"{scheme}://{host}/v2/{self.repository}"


@dataclass
class Login:
    """Requests to one repository with the credentials for it; safe to use from several threads."""

    reference: Reference
    patience: Patience
    transport: Transport = field(init=False)
    basic: str = field(init=False, repr=False)
    """User and password in base64; empty without credentials for the registry."""
    _headers: dict[str, str] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        uri = f"oci://{self.reference.location}"
        self.transport = Transport(uri, lambda answer, file: explain_refusal(self, answer, file), self.patience)
        self.basic = _credentials(self.reference)

    def headers(self) -> dict[str, str]:
        """Headers of a request; empty before the registry has asked who we are."""
        with self._lock:
            return dict(self._headers)

    def ask(self, url: str, accept: str) -> Answer:
        """A small answer of the registry, after a login where it wants one. Raises WeightsError."""
        answer = self.transport.ask(url, {"Accept": accept, **self.headers()})
        if answer.status in (401, 403) and self._log_in(answer):
            answer = self.transport.ask(url, {"Accept": accept, **self.headers()})
        if answer.status >= 400:
            raise explain_refusal(self, answer, "")
        return answer

    def _log_in(self, challenge: Answer) -> bool:
        """Log in as a 401 asks (distribution/spec/auth/token); False where that gives nothing to show. Raises
        WeightsError."""
        asked = challenge.headers.get("WWW-Authenticate", "")
        basic = {"Authorization": f"Basic {self.basic}"} if self.basic else {}
        with self._lock:
            self._headers = basic if asked.lower().startswith("basic") else self._token(asked, basic)
            return bool(self._headers)

    def _token(self, asked: str, basic: dict[str, str]) -> dict[str, str]:
        wanted = parse_auth_header(asked)
        realm = str(wanted.realm or "")
        if not realm.startswith("http"):
            return {}
        query = {name: getattr(wanted, name) for name in ("service", "scope") if getattr(wanted, name)}
        answer = self.transport.ask(f"{realm}{'&' if '?' in realm else '?'}{urlencode(query)}", basic)
        try:
            told = json.loads(answer.content)
            token = told.get("token") or told.get("access_token")
        except (ValueError, AttributeError):
            return {}
        return {"Authorization": f"Bearer {token}"} if token and answer.status < 400 else {}


def _credentials(reference: Reference) -> str:
    """User and password for the registry in base64, by docker's configuration; empty where it has none."""
    auth: Any = TokenAuth()
    container = oras.container.Container(reference.location)
    if reference.registry == "docker.io":
        container.registry = _DOCKER_HUB
    named = [
        Path(os.environ["DOCKER_CONFIG"]) / "config.json" if os.environ.get("DOCKER_CONFIG") else None,
        Path(os.environ["REGISTRY_AUTH_FILE"]) if os.environ.get("REGISTRY_AUTH_FILE") else None,
    ]
    auth.load_configs(container, configs=[str(path) for path in named if path is not None and path.is_file()])
    entry = auth._auth_config["auths"].get(container.registry) or {}
    if not hasattr(auth, "_basic_auth") and entry.get("username") and entry.get("password"):
        return base64.b64encode(f"{entry['username']}:{entry['password']}".encode()).decode()
    return str(getattr(auth, "_basic_auth", ""))


def explain_refusal(login: Login, answer: Answer, file: str) -> WeightsError:
    """The error that stands for a refusal of the registry, by the codes of the distribution specification."""
    reference = login.reference
    error = refusal(f"oci://{reference.location}", answer, file)
    if error.reason is Reason.SOURCE_UNAUTHORIZED and error.status != 407:
        error.message = f"{reference.registry} refuses access to {reference.repository}" + (
            " for the user of the given credentials" if login.basic else ": no credentials are given"
        )
        error.remedy = (
            f"permit that user to pull, or use other credentials for {reference.registry}"
            if login.basic
            else f"put credentials for {reference.registry} into the Secret of spec.weights.secretName, under the key "
            ".dockerconfigjson; registries answer the same for a repository that does not exist"
        )
    elif b"NAME_UNKNOWN" in answer.content:
        error.message = f"{reference.registry} has no repository {reference.repository}"
    elif error.reason is Reason.SOURCE_NOT_FOUND and not file:
        error.message = f"oci://{reference.location} has no tag or digest {reference.version!r}"
        error.remedy = "use a tag or a digest of this repository"
    return error
