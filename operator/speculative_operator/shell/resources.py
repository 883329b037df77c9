"""The kinds the operator touches and where they live in the API. Used by client, informer, cache and resync."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from speculative_operator.domain import names


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind. `rank` orders writes that wait for a slot: what a pod needs to start goes first."""

    api_version: str
    kind: str
    plural: str
    rank: int = 1
    optional: bool = False
    """True when the kind comes with a definition that a cluster may lack."""
    vital: bool = False
    """True when nothing may be decided before every object of the kind is known."""
    last: bool = False
    """True when it is written after the other children: the objects that it names must exist."""

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    @property
    def root(self) -> str:
        """API path of the group and version."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """API path of the collection (no name), of one object, or of its subresource; without namespace, of all
        namespaces."""
        parts = [self.root]
        if namespace:
            parts.append(f"namespaces/{quote(namespace, safe='')}")
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


OWNER = Resource(names.API_VERSION, names.KIND, names.PLURAL, rank=2, vital=True)
TRAINING = Resource(names.API_VERSION, names.TRAINING_KIND, names.TRAINING_PLURAL, rank=2)
"""Neither watched nor cached: `trainings` lists them."""
POD = Resource("v1", "Pod", "pods", rank=0, vital=True)
LEASE = Resource("coordination.k8s.io/v1", "Lease", "leases", rank=0)
EVENT = Resource("events.k8s.io/v1", "Event", "events", rank=3)
REVIEW = Resource("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews")
DEPLOYMENT = Resource("apps/v1", "Deployment", "deployments", rank=0, vital=True)
REPLICA_SET = Resource("apps/v1", "ReplicaSet", "replicasets")
STATEFUL_SET = Resource("apps/v1", "StatefulSet", "statefulsets")
"""Like ReplicaSets only listed, before a payload is deleted that one of them may still mount."""
JOB = Resource("batch/v1", "Job", "jobs")
CLAIM = Resource("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
"""Shared: several objects name the same one, so none owns it, and nobody here ever deletes one."""
CONFIG_MAP = Resource("v1", "ConfigMap", "configmaps", rank=0, vital=True)
POD_MONITOR = Resource("monitoring.coreos.com/v1", "PodMonitor", "podmonitors", optional=True)
SERVING_RUNTIME = Resource("serving.kserve.io/v1alpha1", "ServingRuntime", "servingruntimes", rank=0, optional=True)
INFERENCE_SERVICE = Resource(
    "serving.kserve.io/v1beta1", "InferenceService", "inferenceservices", rank=0, optional=True, last=True
)
HTTP_ROUTE = Resource("gateway.networking.k8s.io/v1", "HTTPRoute", "httproutes", optional=True)
LLM_INFERENCE_SERVICE = Resource(
    "serving.kserve.io/v1alpha2", "LLMInferenceService", "llminferenceservices", rank=0, optional=True, last=True
)
"""Not v1alpha1: small definitions of KServe take the whole spec there for one value, which writers cannot share."""
LEADER_WORKER_SET = Resource(
    "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets", rank=0, optional=True, last=True
)
WORKLOADS = frozenset({DEPLOYMENT.kind, INFERENCE_SERVICE.kind, LLM_INFERENCE_SERVICE.kind, LEADER_WORKER_SET.kind})
"""Kinds that say how pods are made: a write of one may replace them."""

CHILDREN: tuple[Resource, ...] = (
    DEPLOYMENT,
    CONFIG_MAP,
    Resource("v1", "Service", "services"),
    Resource("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    Resource("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    CLAIM,
    JOB,
    POD_MONITOR,
    SERVING_RUNTIME,
    INFERENCE_SERVICE,
    LLM_INFERENCE_SERVICE,
    HTTP_ROUTE,
    LEADER_WORKER_SET,
)
CHILD_BY_KIND: dict[str, Resource] = {resource.kind: resource for resource in CHILDREN}

CHILD_SELECTOR = f"{names.LABEL_MANAGED_BY}={names.OPERATOR}"
"""Label selector of everything but the SpeculativeDeployments themselves."""
