"""Kubeconfig files: one for every identity of a cluster."""

import base64
from pathlib import Path
from typing import Any

import yaml

from devcluster.pki import KeyPair, write_private


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode("ascii")


def render(cluster: str, server: str, authority: Path, user: str, credentials: KeyPair) -> dict[str, Any]:
    """A kubeconfig of one cluster, user and context, with every certificate inside so that the file stands alone."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {"server": server, "certificate-authority-data": _data(authority)}}],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _data(credentials.certificate),
                    "client-key-data": _data(credentials.key),
                },
            }
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    }


def write(path: Path, content: dict[str, Any]) -> Path:
    """Write a kubeconfig readable by its owner only."""
    return write_private(path, yaml.safe_dump(content, sort_keys=False).encode())
