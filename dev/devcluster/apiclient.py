"""Requests to an API server over kept connections, in plain JSON: what a start, the objects and the tests stand on.

The generated client library needs a second to import, a fifth of the time a cluster takes to start.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import urllib3

from devcluster.controlplane import Files
from devcluster.errors import DevClusterError

Json = dict[str, Any]
PLAIN, APPLY, MERGE = "application/json", "application/apply-patch+yaml", "application/merge-patch+json"
PATIENCE = urllib3.Retry(total=8, backoff_factor=0.2, status_forcelist=(429, 500, 502, 503, 504))
"""A busy machine's API server may not answer at once."""
_TIMEOUT = urllib3.Timeout(connect=5.0, read=60.0)


class ApiError(DevClusterError):
    """The API server answered with an error status, or nobody answered (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ApiClient:
    """Requests to one API server as one user; any thread may make them. `tls` as urllib3 takes it."""

    def __init__(
        self,
        server: str,
        retries: urllib3.Retry | bool = PATIENCE,
        authorization: Callable[[], Mapping[str, str]] = dict,
        **tls: Any,
    ) -> None:
        self.server, self._authorization = server, authorization
        self._pool = urllib3.PoolManager(maxsize=16, retries=retries, **tls)

    @classmethod
    def administrator(cls, server: str, files: Files, retries: urllib3.Retry | bool = PATIENCE) -> Self:
        """As the administrator of a cluster that was started here."""
        admin = files.admin
        return cls(
            server,
            retries,
            ca_certs=str(files.authority),
            cert_file=str(admin.certificate),
            key_file=str(admin.key),
        )

    @classmethod
    def from_kubeconfig(cls, kubeconfig: Path) -> Self:
        """As the user of a kubeconfig, whoever wrote it."""
        from kubernetes import client, config

        loaded = client.Configuration()
        load: Any = config.load_kube_config
        load(str(kubeconfig), client_configuration=loaded)

        def authorization() -> Mapping[str, str]:
            found = loaded.get_api_key_with_prefix("BearerToken", "authorization")
            return {"Authorization": found} if found else {}

        return cls(
            loaded.host,
            authorization=authorization,
            ca_certs=loaded.ssl_ca_cert,
            cert_file=loaded.cert_file,
            key_file=loaded.key_file,
            cert_reqs="CERT_REQUIRED" if loaded.verify_ssl else "CERT_NONE",
        )

    def close(self) -> None:
        """Give the connections back."""
        self._pool.clear()

    def request(self, method: str, path: str, body: Any = None, media: str = PLAIN, accept: str = PLAIN) -> Any:
        """One request; the decoded answer, a text where it is no JSON. Raises ApiError."""
        answer = self._send(method, path, body, media, accept, timeout=_TIMEOUT)
        if answer.status >= 400:
            said = answer.data.decode(errors="replace")[:500]
            raise ApiError(answer.status, f"{method} {path}: {answer.status} {said}")
        return answer.json() if "json" in answer.headers.get("Content-Type", "") else answer.data.decode()

    def create(self, path: str, body: Any) -> Any:
        """POST; an object that exists already stays as it is."""
        try:
            return self.request("POST", path, body)
        except ApiError as error:
            if error.status != 409:
                raise
            return None

    def lines(self, path: str, silent_seconds: float) -> Iterator[Json]:
        """The lines of an answer as they come, each a JSON object. Raises ApiError."""
        timeout = urllib3.Timeout(connect=5.0, read=silent_seconds)
        try:
            with closing(self._send("GET", path, timeout=timeout, preload_content=False)) as answer:
                if answer.status >= 400:
                    raise ApiError(answer.status, f"GET {path}: {answer.status}")
                yield from (json.loads(line) for line in answer)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise ApiError(0, f"GET {path}: {error!r}") from error

    def _send(
        self, method: str, path: str, body: Any = None, media: str = PLAIN, accept: str = PLAIN, **how: Any
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Content-Type": media, "Accept": accept, **self._authorization()}
        data = None if body is None else json.dumps(body)
        try:
            return self._pool.request(method, f"{self.server}{path}", body=data, headers=headers, **how)
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(0, f"{method} {path}: {error!r}") from error


def wait_until(
    what: str, seconds: float, attempt: Callable[[], bool], explain: Callable[[], str], interval: float = 0.1
) -> None:
    """Call `attempt` until it is true; DevClusterError naming `what`, with `explain()`, after `seconds`.

    Refused connections and error answers count as "not yet": during a start both are normal.
    """
    deadline = time.monotonic() + seconds
    last = ""
    while True:
        try:
            if attempt():
                return
        except ApiError as error:
            last = str(error)
        if time.monotonic() >= deadline:
            raise DevClusterError(f"{what}: not after {seconds:.0f} s ({last or 'still waiting'})", explain())
        time.sleep(interval)
