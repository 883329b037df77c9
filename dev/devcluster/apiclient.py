"""The few API calls that starting a cluster takes, over one kept connection.

The generated client library needs a second to import, a fifth of the time a cluster takes to start.
"""

import http.client
import json
import ssl
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from devcluster.errors import DevClusterError
from devcluster.pki import KeyPair


class ApiError(DevClusterError):
    """The API server answered with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ApiClient:
    """JSON requests to one API server with a client certificate."""

    def __init__(self, server: str, authority: Path, credentials: KeyPair) -> None:
        address = urllib.parse.urlsplit(server)
        context = ssl.create_default_context(cafile=str(authority))
        context.load_cert_chain(credentials.certificate, credentials.key)
        self._connection = http.client.HTTPSConnection(
            address.hostname or "", address.port, context=context, timeout=10
        )

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """One request; the decoded answer. Raises ApiError for a status >= 400 and OSError where nobody answers."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        try:
            self._connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = self._connection.getresponse()
            content = answer.read()
        except (http.client.HTTPException, OSError) as error:
            self._connection.close()
            raise ConnectionError(f"{method} {path}: {error!r}") from error
        if answer.status >= 400:
            raise ApiError(answer.status, f"{method} {path}: {answer.status} {content.decode(errors='replace')[:500]}")
        is_json = "json" in (answer.getheader("Content-Type") or "")
        return json.loads(content) if is_json else content.decode()

    def create(self, path: str, body: Any) -> Any:
        """POST; an object that exists already stays as it is."""
        try:
            return self.request("POST", path, body)
        except ApiError as error:
            if error.status != http.client.CONFLICT:
                raise
            return None


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
        except (ConnectionError, ApiError) as error:
            last = str(error)
        if time.monotonic() >= deadline:
            raise DevClusterError(f"{what}: not after {seconds:.0f} s ({last or 'still waiting'})", explain())
        time.sleep(interval)
