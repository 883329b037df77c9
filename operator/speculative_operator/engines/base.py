"""What every engine adapter offers, and the values it hands out. Used by render, reconcile and shell.

An adapter is pure: it turns a spec and a table into a container, and raw samples into windows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from speculative_operator.domain.observation import Gap, PodWindow, Series
from speculative_operator.domain.reasons import Reason, without_credentials
from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.domain.table import KnobSpace, KTable

MODELS_MOUNT = "/mnt/models"
"""Folder under which weights from volumes and images appear; each claim or image has a folder of its own in it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why this engine cannot serve a spec: found before a pod exists, so that no pod crash-loops."""

    field: str
    """Path of the field to change, such as `spec.engine.version`."""
    reason: Reason
    message: str
    """Names the value and the remedy."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What a user should know of a spec that the engine can serve: said in `status.warnings` and in one event."""

    reason: Reason
    message: str
    """Names the value and, where there is one, the remedy."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", without_credentials(self.message))


@dataclass(frozen=True, slots=True)
class PvcMount:
    """A claim mounted read-only, as a whole."""

    claim: str
    mount_path: str


@dataclass(frozen=True, slots=True)
class ImageMount:
    """An OCI image mounted as a read-only volume."""

    reference: str
    mount_path: str


@dataclass(frozen=True, slots=True)
class EngineContainer:
    """The serving container, as far as the engine decides it. Seconds are whole."""

    image: str
    args: tuple[str, ...]
    """Arguments of the image's entry point: never a shell line."""
    env: tuple[Mapping[str, Any], ...]
    """Kubernetes EnvVar objects."""
    startup_seconds: int
    """Startup budget in seconds."""
    shutdown_seconds: int
    """Longest time that the engine drains requests after SIGTERM."""
    payload: bool = False
    """True where the plug-in's files are mounted at names.PAYLOAD_MOUNT: the actuator is Live, and the plug-in exports
    metrics of its own on names.TELEMETRY_PORT."""
    command: tuple[str, ...] = ()
    """Entry point; empty where the image's own is the engine."""
    files: Mapping[str, str] = field(default_factory=dict)
    """File name -> text, mounted at names.CONFIG_MOUNT as part of the pod template: a changed file is a rollout."""
    limits: Mapping[str, str] = field(default_factory=dict)
    """Resource limits beside the accelerators."""
    user: int | None = None
    """User id that the stock image is prepared for; None where the image sets it or runs as any."""
    metrics_path: str = "/metrics"
    shared_memory: bool = False
    """True when worker processes exchange data through /dev/shm."""
    pvc_mounts: tuple[PvcMount, ...] = ()
    image_mounts: tuple[ImageMount, ...] = ()


Read = Callable[
    [Sequence[Series], Collection[str], Mapping[str, float], float, float],
    dict[str, PodWindow | Gap],
]
"""(series, pods, since, now, stale_after) -> a window or a gap for each of `pods`, by name.

`since` holds the unix time of the last sample consumed per pod (`PodWindow.end`); a pod that is not in it gets the
longest window that the samples allow. `now` is unix time, `stale_after` seconds."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One inference engine. Every function is pure and safe to call on any spec that has passed the API."""

    metric_names: tuple[str, ...]
    """Exact names of the series that `read` wants."""
    refusals: Callable[[DeploymentSpec], tuple[Refusal, ...]]
    """Refusals of a spec, all that hinders serving; empty when `container` may be used."""
    notices: Callable[[DeploymentSpec], tuple[Notice, ...]]
    """What a user should know of a spec without refusals; empty for most."""
    knobs: Callable[[DeploymentSpec], KnobSpace]
    """Tables that the tuner may choose, and how they reach the engine."""
    container: Callable[[ResolvedSpec, KTable], EngineContainer]
    """The container that serves a spec by the active table. Raises ValueError for sources or accelerators of a spec
    that `refusals` refuses. With the Live actuator the result does not depend on the table; otherwise it does."""
    read: Read
    """The function by which raw samples become one window or gap for each pod."""
    needed: tuple[str, ...] = ()
    """Names among `metric_names` without which `read` makes no window."""
