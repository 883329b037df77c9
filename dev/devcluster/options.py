"""What a cluster is asked to be: the public option values and their checks.

Used by `cluster.py` and by the command line, which reads the same fields from a YAML file.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from devcluster.errors import DevClusterError

# A name becomes a directory and part of socket paths, which end at 108 bytes.
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class Image:
    """The local program an image name stands for; `entrypoint` is run where a container runtime runs the image's."""

    entrypoint: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterOptions:
    """One development cluster. Every field has a default that gives a whole cluster."""

    name: str = "default"
    images: Mapping[str, Image] = field(default_factory=dict)
    accelerators: Mapping[str, int] = field(default_factory=lambda: {"nvidia.com/gpu": 8})
    node: bool = True
    controllers: bool = True
    """Run kube-controller-manager and kube-scheduler; without them objects are stored but nothing acts on them."""
    prometheus: bool = True
    scrape_interval_seconds: int = 5
    node_labels: Mapping[str, str] = field(default_factory=dict)
    node_settings: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the process node's configuration, such as syncSeconds and crashBackoffSeconds."""
    api_server_flags: Mapping[str, str] = field(default_factory=dict)
    """Further flags of kube-apiserver, such as emulated-version: how one of an earlier release takes an object."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise DevClusterError(
                f"name: {self.name!r} is not a cluster name",
                "use 1 to 40 lower-case letters, digits and hyphens, beginning and ending with a letter or digit",
            )
        if self.scrape_interval_seconds < 1:
            raise DevClusterError(
                f"scrape_interval_seconds: {self.scrape_interval_seconds} is not a positive number of seconds",
                "give 1 or more",
            )
        for resource, count in self.accelerators.items():
            if count < 0:
                raise DevClusterError(f"accelerators: {resource} has the negative count {count}", "give 0 or more")
        for image, program in self.images.items():
            if not program.entrypoint:
                raise DevClusterError(
                    f"images: {image} has an empty entrypoint", "name the local program that it stands for"
                )
        if self.node and not self.controllers:
            raise DevClusterError(
                "node: a node without controllers never gets a pod", "set controllers=True, or node=False"
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Options from JSON or YAML values; unknown keys are refused by name."""
        known = {item.name for item in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise DevClusterError(
                f"unknown cluster option{'s' if len(unknown) > 1 else ''}: {', '.join(unknown)}",
                f"known options are {', '.join(sorted(known))}",
            )
        given = dict(values)
        if "images" in given:
            given["images"] = {name: _image(name, value) for name, value in given["images"].items()}
        return cls(**given)


def _image(name: str, value: Any) -> Image:
    """One entry of `images`: a command as a list, or a mapping with `entrypoint` and `env`."""
    if isinstance(value, Image):
        return value
    if isinstance(value, list | tuple):
        return Image(entrypoint=tuple(str(part) for part in value))
    if isinstance(value, Mapping) and set(value) <= {"entrypoint", "env"} and "entrypoint" in value:
        return Image(entrypoint=tuple(value["entrypoint"]), env=dict(value.get("env", {})))
    raise DevClusterError(
        f"images: {name} is neither a command list nor a mapping with entrypoint and env",
        f"write for example: {name}: [/usr/bin/python3, -m, http.server]",
    )
