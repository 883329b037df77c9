"""A hub on loopback: the parts of huggingface.co's HTTP interface that clients use to read models, over local folders.

    python -m modelservers.hub --folder DIR --port 8080 --gated org/name --token hf_abc

What is imitated was taken from what `huggingface_hub` asks and expects: model information and trees with commits,
sizes and checksums, `resolve` with ETag, commit and linked sizes, redirects of large files to a store, the error codes
`RepoNotFound`, `RevisionNotFound`, `EntryNotFound`, `GatedRepo`, and that a gated model's information is public while
its files are not.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, unquote

from modelservers.repositories import Commit, File, Repositories
from modelservers.serving import Handler, ModelServer

_NAME = r"(?P<name>(?:datasets/)?[^/]+/[^/]+)"
_INFO = re.compile(rf"/api/(?:models/)?{_NAME}(?:/revision/(?P<revision>.+))?")
_TREE = re.compile(rf"/api/(?:models/)?{_NAME}/tree/(?P<revision>[^/]+)(?:/(?P<path>.*))?")
_RESOLVE = re.compile(rf"/{_NAME}/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
_STORE = re.compile(rf"/_store/{_NAME}/(?P<revision>[^/]+)/(?P<path>.+)")


@dataclass(frozen=True)
class Access:
    """Who may read what."""

    tokens: frozenset[str] = frozenset()
    """Every token that is known; another one is refused."""
    gated: dict[str, frozenset[str]] = field(default_factory=dict)
    """Repository -> tokens of those who were let in."""


class HubServer(ModelServer):
    """`folder` holds `org/name` folders, and `datasets/org/name` of data sets. With `store`, large files are redirected
    to that host name (of this server), which takes no credentials, as the hub's store takes none."""

    def __init__(
        self, folder: Path, host: str = "127.0.0.1", port: int = 0, access: Access | None = None, store: str = ""
    ) -> None:
        super().__init__(HubHandler, host, port)
        self.repositories = Repositories(folder)
        self.access = access or Access()
        self.store = store


class HubHandler(Handler):
    server: HubServer
    marks: ClassVar = {"X-Request-Id": "loopback"}

    def route(self, path: str, query: str) -> None:
        for pattern, answer in (
            (_STORE, self._stored),
            (_TREE, self._tree),
            (_INFO, self._info),
            (_RESOLVE, self._resolve),
        ):
            found = pattern.fullmatch(path)
            if found:
                parts = {name: unquote(part or "") for name, part in found.groupdict().items()}
                answer(query=query, **parts)
                return
        self._refuse(404, "", f"nothing is served at {path}")

    def _refuse(self, status: int, code: str, message: str) -> None:
        self.refuse(status, message, {"X-Error-Code": code, "X-Error-Message": message} if code else {})

    @property
    def _token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def _found(self, name: str, revision: str, path: str = "") -> Commit | None:
        """The commit; None after a refusal was sent."""
        access, token = self.server.access, self._token
        if token and token not in access.tokens:
            self._refuse_token()
        elif name not in self.server.repositories.names():
            self._refuse(404 if token else 401, "RepoNotFound", "Repository not found")
        else:
            commit = self.server.repositories.commit(name, revision or "main", path)
            if commit is None:
                self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return commit
        return None

    def _refuse_token(self) -> None:
        message = "Invalid credentials in Authorization header"
        self.refuse(401, message, {"X-Error-Message": message})

    def _info(self, name: str, revision: str, query: str) -> None:
        commit = self._found(name, revision)
        if commit is None:
            return
        blobs = "blobs=" in query
        self.json(
            200,
            {
                "_id": "0" * 24,
                "id": name.removeprefix("datasets/"),
                "modelId": name,
                "sha": commit.sha,
                "private": False,
                "disabled": False,
                "gated": "manual" if name in self.server.access.gated else False,
                "tags": [],
                "downloads": 0,
                "likes": 0,
                "lastModified": "2026-01-01T00:00:00.000Z",
                "createdAt": "2026-01-01T00:00:00.000Z",
                "siblings": [
                    {"rfilename": file.path, **(_metadata(file, "blobId") if blobs else {})}
                    for file in commit.files.values()
                ],
            },
        )

    def _tree(self, name: str, revision: str, path: str, query: str) -> None:
        """All files below `path`; always the whole tree, folders left out."""
        commit = self._found(name, revision)
        if commit is not None:
            files = [file for file in commit.files.values() if not path or file.path.startswith(f"{path}/")]
            told = [{"type": "file", "path": file.path, **_metadata(file, "oid")} for file in files]
            self.json(200, told)

    def _resolve(self, name: str, revision: str, path: str, query: str) -> None:
        commit = self._found(name, revision, path)
        if commit is None:
            return
        allowed = self.server.access.gated.get(name)
        if allowed is not None and self._token not in allowed:
            self._refuse(403 if self._token else 401, "GatedRepo", f"Access to model {name} is restricted")
            return
        file = commit.files.get(path)
        if file is None:
            self._refuse(404, "EntryNotFound", "Entry not found")
            return
        told = {"X-Repo-Commit": commit.sha, "ETag": f'"{file.sha256 if file.large else file.blob}"'}
        if not file.large or not self.server.store:
            self.file(file.place, told)
            return
        told |= {"X-Linked-Size": str(file.size), "X-Linked-Etag": f'"{file.sha256}"'}
        there = f"{self.server.scheme}://{self.server.store}:{self.server.port}"
        place = f"{there}/_store/{name}/{commit.sha}/{quote(path)}?signature={file.sha256[:8]}"
        self.begin(302, {**told, "Location": place, "Content-Length": "0"})

    def _stored(self, name: str, revision: str, path: str, query: str) -> None:
        commit = self.server.repositories.commit(name, revision, path)
        file = commit.files.get(path) if commit else None
        if self.headers.get("Authorization"):
            self.refuse(400, "only one way of authentication is allowed")
        elif file is None or query != f"signature={file.sha256[:8]}":
            self.refuse(403, "the signature does not match")
        else:
            self.file(file.place, {"ETag": f'"{file.sha256}"'})


def _metadata(file: File, blob: str) -> dict[str, Any]:
    told: dict[str, Any] = {"size": file.size, blob: file.blob}
    if file.large:
        inner = "sha256" if blob == "blobId" else "oid"
        told["lfs"] = {inner: file.sha256, "size": file.size, "pointerSize": 134}
    return told


def main() -> None:
    """Serves until it is ended."""
    parser = argparse.ArgumentParser(prog="python -m modelservers.hub", description="a hub over local folders")
    parser.add_argument("--folder", type=Path, required=True, help="holds org/name/ folders")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--token", action="append", default=[], help="a token that is known (repeatable)")
    parser.add_argument("--gated", action="append", default=[], help="org/name that only known tokens may read")
    given = parser.parse_args()
    tokens = frozenset(given.token)
    access = Access(tokens, dict.fromkeys(given.gated, tokens))
    server = HubServer(given.folder, given.host, given.port, access)
    print(f"{server.url} serves {', '.join(server.repositories.names()) or 'nothing yet'}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
