"""An OCI registry on loopback that serves OCI layouts, and the packing of folders into such layouts.

    python -m modelservers.oci --folder DIR --port 5000

`DIR/<repository>/` is an OCI image layout (`index.json`, `blobs/sha256/`), its tags the annotations
`org.opencontainers.image.ref.name`. Served is the pulling half of the distribution specification, with token login.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import io
import json
import re
import secrets
import tarfile
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from modelservers.serving import Handler, ModelServer

_MANIFEST = re.compile(r"/v2/(?P<name>.+)/manifests/(?P<reference>[^/]+)")
_BLOB = re.compile(r"/v2/(?P<name>.+)/blobs/(?P<reference>sha256:[0-9a-f]{64})")
_IMAGE = "application/vnd.oci.image.manifest.v1+json"
_REF_NAME = "org.opencontainers.image.ref.name"


class RegistryServer(ModelServer):
    """`users`: name -> password; without any, everybody may pull. `basic`: passwords are sent with each request,
    in place of tokens."""

    def __init__(
        self, folder: Path, host: str = "127.0.0.1", port: int = 0, users: dict[str, str] | None = None,
        basic: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(RegistryHandler, host, port)
        self.folder = folder
        self.users = users or {}
        self.basic = basic
        self.tokens: set[str] = set()

    @property
    def authority(self) -> str:
        """`host:port`, as an `oci://` address begins."""
        return f"{self.server_address[0]!s}:{self.port}"

    def expire(self) -> None:
        """All tokens are old from now on."""
        self.tokens.clear()


class RegistryHandler(Handler):
    server: RegistryServer
    marks: ClassVar = {"Docker-Distribution-Api-Version": "registry/2.0"}

    def route(self, path: str, query: str) -> None:
        if path == "/token":
            self._token()
        elif not self._welcome():
            self._challenge()
        elif path in ("/v2", "/v2/"):
            self.json(200, {})
        elif found := _MANIFEST.fullmatch(path):
            self._manifest(found["name"], found["reference"])
        elif found := _BLOB.fullmatch(path):
            self._blob(found["name"], found["reference"])
        else:
            self._refuse(404, "UNSUPPORTED")

    def _refuse(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        self.json(status, {"errors": [{"code": code, "message": code.lower()}]}, headers)

    def _known_user(self) -> bool:
        kind, _, told = self.headers.get("Authorization", "").partition(" ")
        name, _, password = base64.b64decode(told).decode().partition(":") if kind == "Basic" else ("", "", "")
        return bool(name) and self.server.users.get(name) == password

    def _welcome(self) -> bool:
        if not self.server.users:
            return True
        if self.server.basic:
            return self._known_user()
        return self.headers.get("Authorization", "").removeprefix("Bearer ") in self.server.tokens

    def _challenge(self) -> None:
        realm = f'Bearer realm="{self.server.url}/token",service="loopback",scope="repository:any:pull"'
        asked = 'Basic realm="loopback"' if self.server.basic else realm
        self._refuse(401, "UNAUTHORIZED", {"WWW-Authenticate": asked})

    def _token(self) -> None:
        """To strangers too: a token that opens nothing, as registries with public repositories give."""
        token = secrets.token_hex(8)
        if self._known_user():
            self.server.tokens.add(token)
        self.json(200, {"token": token})

    def _manifest(self, name: str, reference: str) -> None:
        layout = self.server.folder / name
        if not (layout / "index.json").is_file():
            self._refuse(404, "NAME_UNKNOWN")
            return
        listed = json.loads((layout / "index.json").read_text())["manifests"]
        tagged = {one.get("annotations", {}).get(_REF_NAME): one["digest"] for one in listed}
        digest = tagged.get(reference, reference)
        place = layout / "blobs" / digest.replace(":", "/")
        if not digest.startswith("sha256:") or not place.is_file():
            self._refuse(404, "MANIFEST_UNKNOWN")
            return
        content = place.read_bytes()
        kind = json.loads(content).get("mediaType", _IMAGE)
        self.whole(200, content, {"Content-Type": kind, "Docker-Content-Digest": digest})

    def _blob(self, name: str, digest: str) -> None:
        place = self.server.folder / name / "blobs" / digest.replace(":", "/")
        if place.is_file():
            self.file(place, {"Docker-Content-Digest": digest, "Content-Type": "application/octet-stream"})
        else:
            self._refuse(404, "BLOB_UNKNOWN")


class Style(StrEnum):
    """How a tool packs a folder."""

    ORAS = "oras"
    """A layer per file, its name as the title."""
    MODELPACK = "modelpack"
    """A raw layer per file, its name as ModelPack's file path."""
    KITOPS = "kitops"
    """One uncompressed tar."""
    IMAGE = "image"
    """An image with the model below `models/`, uncompressed."""
    IMAGE_GZIP = "image-gzip"
    """As `image`, compressed, as most tools build images: nothing of it can be read in place."""


def pack(folder: Path, layout: Path, tag: str, style: Style = Style.ORAS, index: bool = False) -> str:
    """`folder` into the OCI layout at `layout` under `tag`; the digest. `index`: behind an index of one platform."""
    layout.mkdir(parents=True, exist_ok=True)
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    layers = _PACKINGS[style](folder, files, layout)
    config = {"mediaType": "application/vnd.oci.empty.v1+json", **_put(layout, b"{}")}
    manifest: dict[str, Any] = {"schemaVersion": 2, "mediaType": _IMAGE, "config": config, "layers": layers}
    top = {"mediaType": _IMAGE, **_put(layout, json.dumps(manifest).encode())}
    if index:
        kind = "application/vnd.oci.image.index.v1+json"
        noise = {"mediaType": _IMAGE, "digest": "sha256:" + "0" * 64, "size": 2, "platform": {"os": "unknown"}}
        members = [noise, {**top, "platform": {"os": "linux", "architecture": "amd64"}}]
        whole = {"schemaVersion": 2, "mediaType": kind, "manifests": members}
        top = {"mediaType": kind, **_put(layout, json.dumps(whole).encode())}
    listing = layout / "index.json"
    former = json.loads(listing.read_text())["manifests"] if listing.exists() else []
    kept = [one for one in former if one["annotations"][_REF_NAME] != tag]
    listing.write_text(json.dumps({"schemaVersion": 2, "manifests": [*kept, {**top, "annotations": {_REF_NAME: tag}}]}))
    return str(top["digest"])


def _put(layout: Path, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    place = layout / "blobs" / "sha256" / digest
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return {"digest": f"sha256:{digest}", "size": len(content)}


def _per_file(kind: str, annotation: str) -> Callable[[Path, list[Path], Path], list[dict[str, Any]]]:
    def packed(folder: Path, files: list[Path], layout: Path) -> list[dict[str, Any]]:
        return [
            {
                "mediaType": kind,
                **_put(layout, path.read_bytes()),
                "annotations": {annotation: path.relative_to(folder).as_posix()},
            }
            for path in files
        ]

    return packed


def _one_tar(
    kind: str, compressed: Callable[[bytes], bytes] = bytes
) -> Callable[[Path, list[Path], Path], list[dict[str, Any]]]:
    def packed(folder: Path, files: list[Path], layout: Path) -> list[dict[str, Any]]:
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as tar:
            for path in files:
                tar.add(path, path.relative_to(folder).as_posix())
        return [{"mediaType": kind, **_put(layout, compressed(content.getvalue()))}]

    return packed


_PACKINGS = {
    Style.ORAS: _per_file("application/vnd.oci.image.layer.v1.tar", "org.opencontainers.image.title"),
    Style.MODELPACK: _per_file("application/vnd.cncf.model.weight.v1.raw", "org.cncf.model.filepath"),
    Style.KITOPS: _one_tar("application/vnd.kitops.modelkit.model.v1.tar"),
    Style.IMAGE: _one_tar("application/vnd.oci.image.layer.v1.tar"),
    Style.IMAGE_GZIP: _one_tar("application/vnd.oci.image.layer.v1.tar+gzip", gzip.compress),
}


def main() -> None:
    """Serves until it is ended."""
    parser = argparse.ArgumentParser(prog="python -m modelservers.oci", description="a registry over OCI layouts")
    parser.add_argument("--folder", type=Path, required=True, help="holds a layout per repository")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5000)
    given = parser.parse_args()
    server = RegistryServer(given.folder, given.host, given.port)
    print(f"{server.authority} serves {given.folder}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
