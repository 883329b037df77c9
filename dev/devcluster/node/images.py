"""Image names to local programs: the node's stand-in for a registry."""

from __future__ import annotations

from collections.abc import Mapping

from devcluster.options import Image

_HUB_PREFIXES = ("docker.io/", "index.docker.io/", "registry-1.docker.io/")


def normalize(name: str) -> str:
    """The one spelling of an image name: no hub host, no ``library/``, no digest beside a tag, always a tag or digest.

    ``docker.io/library/python:3.12`` and ``python:3.12`` are the same image; ``python`` is ``python:latest``.
    """
    for prefix in _HUB_PREFIXES:
        name = name.removeprefix(prefix)
    name = name.removeprefix("library/")
    reference, at, digest = name.partition("@")
    tagged = ":" in reference.rsplit("/", 1)[-1]
    if at and not tagged:
        return f"{reference}@{digest}"
    return reference if tagged else f"{reference}:latest"


def select(images: Mapping[str, Image], name: str) -> Image | None:
    """The image of that name, of `images` by normalized name; ``repository:*`` serves every tag of that repository."""
    wanted = normalize(name)
    found = images.get(wanted)
    if found is not None:
        return found
    repository, _, _ = wanted.partition("@")
    head, slash, last = repository.rpartition("/")
    return images.get(f"{head}{slash}{last.partition(':')[0]}:*")
