"""What `render` needs to know, gathered by `reconcile` so that templates decide nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.domain.table import Actuator, KnobSpace, KTable, Trial
from speculative_operator.engines.base import EngineContainer


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the cluster offers, as far as the operator looked it up; else the defaults hold."""

    pod_monitor: bool = False
    """The kind PodMonitor (monitoring.coreos.com/v1) is served."""
    inference_service: bool = False
    """The kinds InferenceService and ServingRuntime (serving.kserve.io) are served."""
    llm_inference_service: bool = False
    """The kind LLMInferenceService (serving.kserve.io/v1alpha2) is served."""
    http_route: bool = False
    """The kind HTTPRoute (gateway.networking.k8s.io/v1) is served."""
    leader_worker_set: bool = False
    """The kind LeaderWorkerSet (leaderworkerset.x-k8s.io/v1) is served."""
    monitor_labels: tuple[tuple[str, str], ...] = ()
    """Labels by which Prometheus chooses PodMonitors."""
    monitor_seconds: int = 5
    """Seconds between two scrapes of a serving pod."""
    assigns_uids: bool = True
    """The platform gives each pod a user id of its own, as OpenShift does: then none may be asked for. Set to False
    where it is known not to (the group security.openshift.io is absent): the stock image, which would start as root,
    is then run as its prepared user."""
    check_pairs: bool = False
    """Pairs are inspected by Jobs before pods are made of them. False: they are served unread."""
    job_image: str = ""
    """The operator's own image, of which Jobs are run; empty where unknown: then there are no Jobs."""
    template_privileges: tuple[str, ...] = ()
    """Privileges (`domain.platform`) that templates may ask for, by the operator's settings."""
    node_folders: tuple[str, ...] = ()
    """Folders of nodes that caches may lie in, by the operator's settings; empty: none."""
    step_metrics_from: tuple[Mapping[str, Any], ...] = ()
    """NetworkPolicy peers that may reach the port of step telemetry; empty: everybody."""
    engine_registry: str = ""
    """Registry that mirrors the public images of engines, by the operator's settings; empty: none."""
    ipv6: bool = False
    """The first address of pods is one of IPv6, as the operator's own is."""
    job_env: tuple[tuple[str, str], ...] = ()
    """Variables (name, value) that every Job is given, by the operator's settings."""


NO_KNOBS = KnobSpace(Actuator.NONE, (0,), 1)
"""What the tuner may choose for pods without a speculator."""


@dataclass(frozen=True, slots=True)
class RenderInput:
    """All values from which the children of one object are made."""

    spec: ResolvedSpec
    container: EngineContainer
    table: KTable | None
    """The active table; None without speculation."""
    table_version: int
    table_config: str = ""
    """Name of the ConfigMap that holds the table; empty: the ConfigMap of the pair."""
    trials: tuple[Trial, ...] = ()
    """Trials that the engine may run while the table is active."""
    capabilities: Capabilities = field(default_factory=Capabilities)
    strategy: Mapping[str, Any] = field(default_factory=dict)
    """`spec.strategy` of the Deployment."""
    owns_replicas: bool = True
    """False when an autoscaler writes the Deployment's replicas: they are then left out of the manifest."""
    waiting: KTable | None = None
    """The table that waits while pods run without a speculator for the tuner's sake; `table` is None then."""

    canary: str = ""
    """Service that gets the share of requests of `spec.route.canary`; empty: no Service."""
    made_of: str = ""
    """Annotation of the Deployment: what was asked of pods, as `upgrade` tells it from how they are made."""
    knobs: KnobSpace = NO_KNOBS
    """Tables that the tuner may choose for the pods, for the record beside that annotation."""

    @property
    def live(self) -> bool:
        """True when the pods re-read the table from a mounted file."""
        return self.container.payload and self.table is not None
