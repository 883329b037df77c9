"""What the supervisor is told to run: plain values that cross the enclosure's border as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True)
class Component:
    """One supervised program.

    `ready` is the URL that tells readiness: `tcp://host:port` (accepts), or an http(s) URL (answers 200). `after` names
    components that must be ready before this one starts, `needs` lists files that must exist before.
    """

    name: str
    argv: tuple[str, ...]
    ready: str = ""
    after: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        return cls(
            name=values["name"],
            argv=tuple(values["argv"]),
            ready=values["ready"],
            after=tuple(values["after"]),
            needs=tuple(values["needs"]),
            env=dict(values["env"]),
        )


@dataclass(frozen=True)
class Forward:
    """A listening socket of the host, inherited as descriptor `fd`, served from `host:port` inside."""

    fd: int
    host: str
    port: int


@dataclass(frozen=True)
class Plan:
    """Everything the first process of an enclosure does.

    `lock_fd` is held, never used: it says that the cluster lives. `parent_fd` is a process descriptor of the starter,
    which the cluster does not outlive; one that `stays` does, from the moment its start is complete.
    """

    directory: str
    lock: str
    lock_fd: int
    parent_fd: int
    stays: bool
    ranges: tuple[str, ...]
    certificate_authority: str
    forwards: tuple[Forward, ...]
    components: tuple[Component, ...]
    keep_logs: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, read back by `from_dict`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        return cls(
            **{
                **values,
                "ranges": tuple(values["ranges"]),
                "forwards": tuple(Forward(**item) for item in values["forwards"]),
                "components": tuple(Component.from_dict(item) for item in values["components"]),
            }
        )


def log_path(directory: Path, component: str) -> Path:
    """Log file of a component below a cluster's state directory."""
    return directory / "logs" / f"{component}.log"


def held_path(directory: Path, component: str) -> Path:
    """File whose existence keeps a component from being started."""
    return directory / f"held-{component}"


def ready_path(directory: Path) -> Path:
    """File whose existence says that the start is complete."""
    return directory / "ready"


def status_path(directory: Path) -> Path:
    """File in which the supervisor tells the state of every component."""
    return directory / "components.json"
