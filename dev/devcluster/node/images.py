"""Image names to local programs: the node's stand-in for a registry.

Container runners ask ``ImageStore.find`` whenever they start a container. The configuration file is read again when it
changes, so a test or a demo can "push" an image while the node runs.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .config import ConfigError

_HUB_PREFIXES = ("docker.io/", "index.docker.io/", "registry-1.docker.io/")


@dataclass(frozen=True)
class Image:
    """A local program in the role of an image: what its ENTRYPOINT, CMD, ENV and WORKDIR would say."""

    entrypoint: tuple[str, ...]
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = "/"


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


def parse_images(data: Mapping[str, Any]) -> dict[str, Image]:
    """The ``images`` part of the configuration by normalized name. Raises ConfigError."""
    images = {}
    for name, entry in data.items():
        entrypoint = entry.get("entrypoint") if isinstance(entry, dict) else None
        if not isinstance(entrypoint, list) or not entrypoint or not all(isinstance(part, str) for part in entrypoint):
            raise ConfigError(f"images[{name}].entrypoint: want a non-empty list of strings, got {entrypoint!r}")
        images[normalize(name)] = Image(
            entrypoint=tuple(entrypoint),
            args=tuple(str(arg) for arg in entry.get("args", ())),
            env={str(key): str(value) for key, value in entry.get("env", {}).items()},
            working_dir=str(entry.get("workingDir", "/")),
        )
    return images


def select(images: Mapping[str, Image], name: str) -> Image | None:
    """The image a container's ``image`` names; a configured ``repository:*`` serves every tag of that repository."""
    wanted = normalize(name)
    found = images.get(wanted)
    if found is not None:
        return found
    repository, _, _ = wanted.partition("@")
    head, slash, last = repository.rpartition("/")
    return images.get(f"{head}{slash}{last.partition(':')[0]}:*")


class ImageStore:
    """The images of a configuration file, read again when the file changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._images: dict[str, Image] = {}

    def refresh(self) -> None:
        """Read the file when it changed. Raises ConfigError when it is unusable."""
        stat = self._path.stat()
        stamp = (stat.st_mtime_ns, stat.st_size)
        if stamp == self._stamp:
            return
        try:
            data = json.loads(self._path.read_text()).get("images", {})
        except ValueError as error:
            raise ConfigError(f"images: {self._path} is not JSON: {error}") from error
        self._images = parse_images(data)
        self._stamp = stamp

    def find(self, name: str) -> Image | None:
        """The image of that name, or None. A file that is unusable just now leaves the images known so far."""
        with contextlib.suppress(ConfigError, OSError):
            self.refresh()
        return select(self._images, name)

    @property
    def names(self) -> tuple[str, ...]:
        """Configured names, for the message of a failed pull."""
        return tuple(sorted(self._images))
