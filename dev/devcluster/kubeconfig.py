"""Kubeconfig files: written for every identity of a cluster, read for an existing one."""

import base64
from pathlib import Path
from typing import Any

import yaml

from devcluster.errors import DevClusterError
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


def server_of(path: Path) -> str:
    """Address of the API server that a kubeconfig's current context points to."""
    try:
        content = yaml.safe_load(path.read_text())
        context = _named(content["contexts"], content["current-context"])["context"]
        return str(_named(content["clusters"], context["cluster"])["cluster"]["server"])
    except (OSError, yaml.YAMLError, KeyError, TypeError, StopIteration) as error:
        raise DevClusterError(
            f"KUBECONFIG: {path} names no API server ({error!r})",
            "give one file with a current-context; `kubectl config view --minify --flatten` writes such a file",
        ) from error


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)
