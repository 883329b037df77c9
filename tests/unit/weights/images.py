"""Images made by hand, layer by layer, for what no tool would pack."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

TAR = "application/vnd.oci.image.layer.v1.tar"


def blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


def pushed(layout: Path, *layers: bytes, kinds: tuple[str, ...] = (TAR,)) -> None:
    """An image of these layers, as they are; the last of `kinds` is that of all that remain."""
    (layout / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)

    def put(content: bytes) -> dict[str, object]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        blob(layout, digest).write_bytes(content)
        return {"digest": digest, "size": len(content)}

    told = [{"mediaType": kinds[min(at, len(kinds) - 1)], **put(layer)} for at, layer in enumerate(layers)]
    top = put(json.dumps({"schemaVersion": 2, "layers": told}).encode())
    listed = {**top, "annotations": {"org.opencontainers.image.ref.name": "latest"}}
    (layout / "index.json").write_text(json.dumps({"manifests": [listed]}))


def tar_of(
    *members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE, link: str = "", notes: Mapping[str, str] | None = None
) -> bytes:
    """`notes`: extended attributes of each member."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, data in members:
            told = tarfile.TarInfo(name)
            told.size, told.type, told.linkname, told.pax_headers = len(data), kind, link, dict(notes or {})
            tar.addfile(told, io.BytesIO(data))
    return content.getvalue()


def header_of(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """Of a member whose bytes need not follow."""
    told = tarfile.TarInfo(name)
    told.size, told.type = size, kind
    return told.tobuf(tarfile.GNU_FORMAT)
