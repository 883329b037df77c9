"""Talking to an OCI registry: who we are, and what its refusals mean. Used by `oci`.

The ORAS library finds credentials in docker's configuration (helpers of a user's machine included) and changes them for
tokens; manifests and blobs are then asked for by `transport`, with its timeouts.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import oras.auth
import oras.container
import requests

from speculative_operator.domain.reasons import Reason
from speculative_operator.weights.patience import Patience
from speculative_operator.weights.source import WeightsError
from speculative_operator.weights.transport import Answer, Transport, refusal, session, trusted_authorities

PLAIN_HTTP = "SPECULATIVE_PLAIN_HTTP_REGISTRIES"
"""Environment variable: `host:port` of registries without TLS, separated by commas. Loopback needs no mention."""
_DOCKER_HUB = "https://index.docker.io/v1/"
"""The name under which docker keeps the credentials of docker.io."""
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


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
        scheme = "http" if self.registry in plain or _bare(self.registry) in _LOOPBACK else "https"
        return f"{scheme}://{host}/v2/{self.repository}"


def _bare(registry: str) -> str:
    host, _, port = registry.rpartition(":")
    return host if port.isdecimal() else registry


@dataclass
class Login:
    """Credentials for one repository; safe to use from several threads."""

    reference: Reference
    patience: Patience
    has_credentials: bool = False
    """Whether docker's configuration holds credentials for the registry."""
    _auth: Any = None
    _headers: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._auth = oras.auth.get_auth_backend(
            "token", session=session(self.patience), tls_verify=trusted_authorities()
        )
        container = oras.container.Container(self.reference.location)
        if self.reference.registry == "docker.io":
            container.registry = _DOCKER_HUB
        self._auth.load_configs(container, configs=_configurations())
        if not hasattr(self._auth, "_basic_auth"):
            self._from_plain_entry(self._auth._auth_config["auths"].get(container.registry) or {})
        self.has_credentials = hasattr(self._auth, "_basic_auth")

    def _from_plain_entry(self, entry: Mapping[str, Any]) -> None:
        """Take user and password from an entry that holds them by name, in place of both in one."""
        if entry.get("username") and entry.get("password"):
            self._auth.set_basic_auth(entry["username"], entry["password"])

    def headers(self) -> dict[str, str]:
        """Headers of a request; empty before the registry has asked who we are."""
        with self._lock:
            return dict(self._headers)

    def answer(self, challenge: Answer) -> bool:
        """Log in as a 401 asks; False where we have no credentials to show. Raises WeightsError."""
        challenge_header = challenge.headers.get("WWW-Authenticate", "")
        with self._lock:
            if challenge_header.lower().startswith("basic"):
                self._headers = {"Authorization": f"Basic {self._auth._basic_auth}"} if self.has_credentials else {}
                return self.has_credentials
            try:
                found, taken = self._auth.authenticate_request(challenge, {}, refresh=True)
            except (requests.RequestException, OSError) as error:
                raise WeightsError(
                    Reason.SOURCE_UNREACHABLE,
                    f"oci://{self.reference.location}: cannot get a token for {self.reference.registry} ({error})",
                    remedy="check the network, the proxy and SSL_CERT_FILE",
                ) from error
            except (ValueError, AttributeError, TypeError):
                # The library expects a realm and a JSON answer; a registry that gives neither gives no token.
                return False
            self._headers = {"Authorization": found["Authorization"]} if taken else {}
            return bool(taken)


def _configurations() -> list[str]:
    named = [
        Path(os.environ["DOCKER_CONFIG"]) / "config.json" if os.environ.get("DOCKER_CONFIG") else None,
        Path(os.environ["REGISTRY_AUTH_FILE"]) if os.environ.get("REGISTRY_AUTH_FILE") else None,
    ]
    return [str(path) for path in named if path is not None and path.is_file()]


def ask(transport: Transport, login: Login, url: str, accept: str) -> Answer:
    """A small answer of the registry, after a login where it wants one. Raises WeightsError."""
    answer = transport.ask(url, {"Accept": accept, **login.headers()})
    if answer.status in (401, 403) and login.answer(answer):
        answer = transport.ask(url, {"Accept": accept, **login.headers()})
    if answer.refuses:
        raise explain_refusal(login, answer, "")
    return answer


def explain_refusal(login: Login, answer: Answer, file: str) -> WeightsError:
    """The error that stands for a refusal of the registry, by the codes of the distribution specification."""
    reference = login.reference
    error = refusal(f"oci://{reference.location}", answer, file)
    codes = _codes(answer)
    if error.reason is Reason.SOURCE_UNAUTHORIZED and error.status != 407:
        error.message = f"{reference.registry} refuses access to {reference.repository}" + (
            " for the user of the given credentials" if login.has_credentials else ": no credentials are given"
        )
        error.remedy = (
            f"permit that user to pull, or use other credentials for {reference.registry}"
            if login.has_credentials
            else f"put credentials for {reference.registry} into the Secret of spec.weights.secretName, under the key "
            ".dockerconfigjson; registries answer the same for a repository that does not exist"
        )
    elif "NAME_UNKNOWN" in codes:
        error.message = f"{reference.registry} has no repository {reference.repository}"
    elif error.reason is Reason.SOURCE_NOT_FOUND and not file:
        error.message = f"oci://{reference.location} has no tag or digest {reference.version!r}"
        error.remedy = "use a tag or a digest of this repository"
    return error


def _codes(answer: Answer) -> set[str]:
    try:
        return {str(one["code"]) for one in json.loads(answer.content)["errors"]}
    except (ValueError, KeyError, TypeError):
        return set()
