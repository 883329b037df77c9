"""Values of the Helm chart: names, types, defaults, and what each is for.

`generate.chart` makes values.schema.json, values.yaml and the table in the chart's README of them. Names are those that
most charts share (cert-manager, kube-prometheus-stack, `helm create`), so that values files can be carried over.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from generate.values_monitoring import Anything, Metrics, NetworkPolicy, Prometheus
from speculative_operator.api.wire import Wire
from speculative_operator.domain.platform import Privilege
from speculative_operator.settings import Settings

Text = str
Count = Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern="^[0-9]+%$")]
Seconds = Annotated[int, Field(ge=1, le=300)]
PrivilegeName = Annotated[str, Field(pattern=rf"^({'|'.join(Privilege)}|\*)$")]


def settings_schema() -> dict[str, Any]:
    """Schema of the value `settings`: the variables that exist, with their types and limits."""
    fields = Settings.model_json_schema()["properties"]
    kept = ("type", "anyOf", "minimum", "maximum", "exclusiveMinimum", "pattern", "enum")
    properties = {name.upper(): {key: field[key] for key in kept if key in field} for name, field in fields.items()}
    properties["LOG_LEVEL"] = {"type": "string"}  # in any case; the template names the value to set in its place
    return {"type": "object", "properties": properties, "additionalProperties": False}


class Image(Wire):
    """Image of the operator."""

    repository: Text = ""
    """Registry and name of the image, from which the Jobs of the operator run too. The chart of a release names that
    of the release. Else it is required: build it with `make image` and push it."""
    tag: Text = ""
    """Tag of the image; empty: the chart's appVersion."""
    digest: Annotated[str, Field(pattern="^(sha256:[0-9a-f]{64})?$")] = ""
    """Digest of the image, sha256:...; it takes precedence over the tag."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the kubelet pulls the image."""


class ServiceAccount(Wire):
    """ServiceAccount of the operator."""

    create: bool = True
    """Create the ServiceAccount."""
    name: Text = ""
    """Name of the ServiceAccount; empty: the release's name."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations to add, such as that of a cloud's role."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels to add."""


class Rbac(Wire):
    """Permissions of the operator."""

    create: bool = True
    """Create roles and bindings for the operator: for the whole cluster, or for watchNamespaces only."""
    aggregate: bool = True
    """Add access to SpeculativeDeployments to the built-in roles view, edit and admin."""


class AdmissionPolicy(Wire):
    """A ValidatingAdmissionPolicy that limits the operator's ServiceAccount to writing its own objects."""

    enabled: bool = True
    """Create the policy. Set false if you may not create cluster-scoped objects."""
    namespaces: list[Text] = Field(default=["kube-system", "kube-public", "kube-node-lease"])
    """Namespaces in which the operator may write nothing, in addition to all whose names begin with kube-."""


class Crds(Wire):
    """The CRD SpeculativeDeployment."""

    enabled: bool = True
    """Install and upgrade the CRD with the release."""
    keep: bool = True
    """Uninstalling the release, or crds.enabled: false later, leaves the CRD and all objects. With false both delete
    the CRD, with it every SpeculativeDeployment of the cluster, and so end all serving."""


class Pairs(Wire):
    """Checks of verifier and speculator before pods are created."""

    check: bool = True
    """Inspect both models in a Job (with the operator's image) and refuse pairs that do not fit. Jobs need network
    access to the models' sources."""
    catalogue: Text = ""
    """Your own rows of the catalogue for speculator.auto, as CSV text (docs/pairs.md); the chart creates a
    ConfigMap from it."""
    catalogue_config_map: Annotated[str, Field(pattern="^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$")] = ""
    """Alternatively: a ConfigMap in the release's namespace with the key catalogue.csv; empty: RELEASE-NAME-catalogue,
    if it exists."""


class PodDisruptionBudget(Wire):
    """With two replicas: evictions take one operator pod at a time."""

    enabled: bool = True
    """Create the PodDisruptionBudget if replicaCount is 2: with one replica it would block the drain of a node."""
    min_available: Count | None = None
    """Pods that must stay, as a number or percentage, in place of maxUnavailable."""
    max_unavailable: Count | None = None
    """Pods that may be evicted at a time, as a number or percentage. Without both: 1."""


class Reference(Wire):
    """An object in the release's namespace."""

    name: Annotated[str, Field(min_length=1)]
    """Its name."""


class PodSecurityContext(Wire, extra="allow", json_schema_extra={"required": ["runAsNonRoot", "seccompProfile"]}):
    """Security context of the operator's pod, as in a pod: what you name is added, or takes the place of what is here.
    runAsUser: the image's if you name none, or on OpenShift the namespace's."""

    run_as_non_root: bool = True
    """The kubelet starts no container that would run as root."""
    seccomp_profile: Anything = Field(default={"type": "RuntimeDefault"})
    """System calls that the containers may make."""


class SecurityContext(
    Wire,
    extra="allow",
    json_schema_extra={"required": ["allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities"]},
):
    """Security context of the operator's container, as in a pod: what you name is added, or takes the place of what is
    here."""

    allow_privilege_escalation: bool = False
    """No process gains more privileges than its parent."""
    read_only_root_filesystem: bool = True
    """The operator writes to /tmp alone."""
    capabilities: Anything = Field(default={"drop": ["ALL"]})
    """Capabilities of the container's processes."""


class Global(Wire, extra="allow"):
    """What a chart that holds this one as a dependency hands to all of its charts. Other keys have no effect."""

    image_pull_secrets: list[Reference | Text] = Field(default_factory=list)
    """Added to imagePullSecrets: [{name: SECRET}] or [SECRET]."""
    common_labels: dict[str, str] = Field(default_factory=dict)
    """Added to commonLabels, which take precedence."""


class Resources(Wire):
    """Resources of the operator's container: 200 MiB suffice for about 400 objects, 384 MiB for about 1,000; for more
    objects, raise both."""

    requests: dict[str, Text | int] = Field(default={"cpu": "100m", "memory": "200Mi"})
    """Resources that the scheduler reserves for the container."""
    limits: dict[str, Text | int] = Field(default={"memory": "384Mi"})
    """Limits of the container. CPU has no limit by default, because a throttled operator reacts late."""


class Values(Wire):
    """Values of the chart speculative-operator."""

    image: Image = Image()
    """Image of the operator."""
    image_pull_secrets: list[Reference] = Field(default_factory=list)
    """Secrets with credentials for the image's registry: [{name: SECRET}]."""
    replica_count: Annotated[int, Field(ge=0, le=2)] = 1
    """Number of operator pods. One works at a time; a second one waits and takes over within seconds if a node
    fails."""
    watch_namespaces: list[Annotated[str, Field(pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]] = Field(
        default_factory=list
    )
    """Namespaces that the operator serves; empty: all. If names are given, the operator has Roles in these namespaces
    only."""
    template_privileges: list[PrivilegeName] = Field(default_factory=list)
    """Privileges that spec.template may request beyond the Pod Security level baseline, such as [hostPath]; '*' allows
    all. Empty: users who may create SpeculativeDeployments get no pods beyond that level (docs/security.md)."""
    node_folders: list[Annotated[str, Field(pattern="^(/[A-Za-z0-9._-]+)+$")]] = Field(
        default_factory=lambda: [str(Settings.model_fields["node_folders"].default)]
    )
    """Folders of nodes; weights.cache.nodePath must be one of them or below one. Empty: no object may use a folder of
    its nodes."""
    prometheus: Prometheus = Prometheus()
    """The Prometheus from which the operator reads the metrics of serving pods."""
    pairs: Pairs = Pairs()
    """Checks of verifier and speculator before pods are created."""
    tick_seconds: Seconds = 10
    """Seconds between two reconciles of each object."""
    leader_election: bool = True
    """Write only while holding a Lease."""
    log_level: Annotated[str, Field(pattern="^(?i:debug|info|warning|error)$")] = "INFO"
    """Lowest level of log messages: DEBUG, INFO, WARNING or ERROR, in any case."""
    log_format: Literal["json", "text"] = "json"
    """json: one object per line for machines; text: lines for people."""
    settings: Annotated[dict[str, Any], WithJsonSchema(settings_schema())] = Field(default_factory=dict)
    """Any other variable of docs/settings.md, without its prefix: {WORKERS: 32}. Unknown names are refused."""
    engine_registry: Text = ""
    """Registry that mirrors the public images of engines, with any folder: mirror.example/hub. It takes the place of
    the registry in the image's name. Objects with engine.image keep that. Running pods stay (UpgradeWaits)."""
    trainer_image: Text = ""
    """Image of the Jobs that train speculators, with vLLM and the library speculators. The chart of a release names
    that of the release; empty: objects must name one in spec.image."""
    service_account: ServiceAccount = ServiceAccount()
    """ServiceAccount of the operator."""
    rbac: Rbac = Rbac()
    """Permissions of the operator."""
    admission_policy: AdmissionPolicy = AdmissionPolicy()
    """A ValidatingAdmissionPolicy that limits the operator's ServiceAccount to writing its own objects."""
    crds: Crds = Crds()
    """The CRD SpeculativeDeployment."""
    metrics: Metrics = Metrics()
    """The operator's own metrics."""
    network_policy: NetworkPolicy = NetworkPolicy()
    """Access to the operator's port 8080, which serves /metrics only. The kubelet always has access."""
    pod_disruption_budget: PodDisruptionBudget = PodDisruptionBudget()
    """With two replicas: evictions take one operator pod at a time."""
    resources: Resources = Resources()
    """Resources of the operator's container: 200 MiB suffice for about 400 objects, 384 MiB for about 1,000; for more
    objects, raise both."""
    pod_security_context: PodSecurityContext = PodSecurityContext()
    """Security context of the operator's pod, as in a pod: what you name is added, or takes the place of what is here.
    runAsUser: the image's if you name none, or on OpenShift the namespace's."""
    security_context: SecurityContext = SecurityContext()
    """Security context of the operator's container, as in a pod: what you name is added, or takes the place of what is
    here."""
    pod_annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations to add to the operator's pod."""
    pod_labels: dict[str, str] = Field(default_factory=dict)
    """Labels to add to the operator's pod."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels of nodes on which the operator's pod may run."""
    tolerations: list[Anything] = Field(default_factory=list)
    """Taints of nodes that the operator's pod tolerates."""
    affinity: Anything = Field(default_factory=dict)
    """Affinity rules of the operator's pod."""
    topology_spread_constraints: list[Anything] = Field(default_factory=list)
    """Topology spread constraints; without a labelSelector they get that of the operator's pods."""
    priority_class_name: Text = ""
    """Priority class of the operator's pod."""
    extra_env: list[Anything] = Field(default_factory=list)
    """Further environment variables of the container, as in a pod. Settings of the operator belong in settings."""
    extra_volumes: list[Anything] = Field(default_factory=list)
    """Further volumes, as in a pod."""
    extra_volume_mounts: list[Anything] = Field(default_factory=list)
    """Further mounts of the container, as in a pod."""
    extra_objects: list[Anything | Text] = Field(default_factory=list)
    """Further objects of the release: manifests, or text that Helm fills in like a template."""
    common_labels: dict[str, str] = Field(default_factory=dict)
    """Labels of all objects of the chart and of the operator's pod; no selector uses them."""
    name_override: Text = ""
    """Takes the place of the chart's name in the names of objects. The label app.kubernetes.io/name stays, because
    selectors and `speculative doctor` find the operator by it."""
    fullname_override: Text = ""
    """Name of all objects of the release; empty: release and chart name."""
    global_: Global = Field(default=Global(), alias="global")
    """What a chart that holds this one as a dependency hands to all of its charts. Other keys have no effect."""
