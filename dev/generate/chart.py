"""Values of the Helm chart: their types make values.schema.json, their docstrings and defaults values.yaml."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, Field

from speculative_operator.api.wire import Wire
from speculative_operator.domain.platform import Privilege
from speculative_operator.settings import Settings

Text = str
Anything = dict[str, Any]
Seconds = Annotated[int, Field(ge=1, le=300)]
PrivilegeName = Annotated[str, Field(pattern=rf"^({'|'.join(Privilege)}|\*)$")]


class Image(Wire):
    """Image of the operator."""

    repository: Text = ""
    """Registry and name of the image. Required: nobody publishes one, so build it with `make image` and push it. The
    Jobs of the operator run from it too."""
    tag: Text = ""
    """Tag of the image; empty: the chart's appVersion."""
    digest: Annotated[str, Field(pattern="^(sha256:[0-9a-f]{64})?$")] = ""
    """Digest of the image, sha256:...; it takes precedence over the tag."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the kubelet pulls the image."""
    pull_secrets: list[Text] = Field(default_factory=list)
    """Names of Secrets with credentials for the registry."""


class Token(Wire):
    """Bearer token for Prometheus; the operator sends none unless ownServiceAccount or secretName is set."""

    own_service_account: bool = False
    """Send a token of the operator's ServiceAccount that is valid for Prometheus only, not for the API server."""
    audience: Annotated[str, Field(min_length=1)] = "prometheus"
    """Audience of that token, which the proxy in front of Prometheus must require (kube-rbac-proxy:
    --auth-token-audiences). Do not use the API server's audience: whoever reads such a token has the operator's
    permissions. Use a Secret with the token of a ServiceAccount that may only read metrics instead."""
    over_http: bool = False
    """Send the token even if prometheus.url is http://, where everybody on the network path can read it."""
    secret_name: Text = ""
    """Alternatively: name of a Secret in the release's namespace that holds the token."""
    key: Text = "token"
    """Key of the token in the Secret."""


class Authority(Wire):
    """Certificate authority of Prometheus; empty: the system's authorities."""

    config_map_name: Text = ""
    """ConfigMap in the release's namespace that holds the authority; empty: the system's authorities."""
    key: Text = "ca.crt"
    """Key of the authority in the ConfigMap."""


class BasicAuth(Wire):
    """User and password for Prometheus."""

    secret_name: Text = ""
    """Name of a Secret of type kubernetes.io/basic-auth (keys username, password) in the release's namespace."""


class ClientCertificate(Wire):
    """Certificate that the operator shows to Prometheus (mTLS)."""

    secret_name: Text = ""
    """Name of a Secret of type kubernetes.io/tls (keys tls.crt, tls.key) in the release's namespace."""


class ServingPodMonitors(Wire):
    """PodMonitors of the serving pods, which the operator creates if prometheus-operator is installed."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Labels by which your Prometheus selects them, such as release: kube-prometheus-stack. If the operator serves all
    namespaces, it finds the labels itself in the podMonitorSelector of the Prometheus objects."""
    interval_seconds: Annotated[int, Field(ge=2, le=15)] = 5
    """Seconds between two scrapes of a pod."""


class Prometheus(Wire):
    """The Prometheus from which the operator reads the metrics of serving pods."""

    url: Annotated[str, Field(pattern="^(https?://.+)?$")] = ""
    """Address of Prometheus, or of anything with its query API; on OpenShift that of Thanos (docs/openshift-ai.md).
    Empty: the Service of the only Prometheus of prometheus-operator, or of that in the namespace monitoring. Set it
    where others may create Prometheus objects."""
    token: Token = Token()
    """Bearer token for Prometheus; the operator sends none unless ownServiceAccount or secretName is set."""
    ca: Authority = Authority()
    """Certificate authority of Prometheus; empty: the system's authorities."""
    basic_auth: BasicAuth = BasicAuth()
    """User and password for Prometheus."""
    client_certificate: ClientCertificate = ClientCertificate()
    """Certificate that the operator shows to Prometheus (mTLS)."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers of every query, such as X-Scope-OrgID: TENANT of Mimir. Not for secrets."""
    proxy: Annotated[str, Field(pattern="^(https?://[^@]+)?$")] = ""
    """HTTP proxy on the way to Prometheus, without user and password: a URL with them belongs in a Secret that
    pod.extraEnv names (SPECULATIVE_PROMETHEUS_PROXY). For models see spec.weights.proxy of an object."""
    pod_monitors: ServingPodMonitors = ServingPodMonitors()
    """PodMonitors of the serving pods, which the operator creates if prometheus-operator is installed."""


class ServiceAccount(Wire):
    """ServiceAccount of the operator."""

    create: bool = True
    """Create the ServiceAccount."""
    name: Text = ""
    """Name of the ServiceAccount; empty: the release's name."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations to add."""


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

    install: bool = True
    """Install and upgrade the CRD with the release. Uninstalling the release keeps the CRD and all objects."""


class MetricsService(Wire):
    """A Service in front of /metrics."""

    enabled: bool = True
    """Create the Service."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations to add."""


class PodMonitor(Wire):
    """Scraping of the operator's own metrics by prometheus-operator."""

    enabled: bool = False
    """Create the PodMonitor; the cluster must have that kind."""
    interval: Annotated[str, Field(pattern="^[0-9]+(ms|s|m)$")] = "30s"
    """Scrape interval."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels by which your Prometheus selects PodMonitors, beside those that followPrometheus finds."""


class Alerts(Wire):
    """Alerts on the operator's metrics (docs/alerts.md)."""

    enabled: bool = False
    """Create a PrometheusRule; the cluster must have that kind. Without prometheus-operator load the chart's
    files/alerts.yaml."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels by which your Prometheus selects rules, such as release: kube-prometheus-stack, beside those that
    followPrometheus finds."""
    runbook_url: Text = ""
    """Address of the page docs/alerts.md for the annotation runbook_url; empty: the annotation runbook names page and
    section."""


class Dashboards(Wire):
    """Grafana dashboards of the fleet, of one object and of the operator."""

    enabled: bool = False
    """Create one ConfigMap per dashboard, which Grafana's sidecar loads."""
    labels: dict[str, str] = Field(default={"grafana_dashboard": "1"})
    """Labels by which the sidecar finds them."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations to add, such as the sidecar's grafana_folder."""
    openshift: bool = False
    """Create one ConfigMap per dashboard in openshift-config-managed, which OpenShift's console shows."""


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


class Metrics(Wire):
    """The operator's own metrics."""

    service: MetricsService = MetricsService()
    """A Service in front of /metrics."""
    follow_prometheus: bool = True
    """Have Helm look up the Prometheus objects of the cluster: podMonitor and alerts get the labels that they select
    by, and with an empty prometheus.url networkPolicy admits their namespaces. Not with watchNamespaces. You need the
    right to list them; helm template, and what uses it (Argo CD), finds none."""
    pod_monitor: PodMonitor = PodMonitor()
    """Scraping of the operator's own metrics by prometheus-operator."""
    alerts: Alerts = Alerts()
    """Alerts on the operator's metrics (docs/alerts.md)."""
    dashboards: Dashboards = Dashboards()
    """Grafana dashboards of the fleet, of one object and of the operator."""


class NetworkPolicy(Wire):
    """Access to metrics: to the operator's port 8080, which serves nothing else and which the kubelet always reaches,
    and to port 8001 of serving pods, unless settings.STEP_METRICS_FROM names others."""

    enabled: bool = True
    """Create a NetworkPolicy, unless prometheus.url names no Service and neither namespaces nor from is set. With false
    everybody reaches port 8001 of serving pods."""
    namespaces: list[Text] = Field(default_factory=list)
    """Namespaces whose pods may connect, as those of the release may; empty: that of the Service in prometheus.url, and
    with openshift-monitoring openshift-user-workload-monitoring too. Without prometheus.url: monitoring, and those of
    the Prometheus objects found."""
    from_: list[Anything] = Field(default_factory=list, alias="from")
    """Peers in place of these namespaces and the release's, as in a NetworkPolicy; for the operator's port only."""


class PodDisruptionBudget(Wire):
    """With two replicas: evictions take one operator pod at a time."""

    enabled: bool = True
    """Create the PodDisruptionBudget if replicas is 2."""


class Pod(Wire):
    """The operator's pod."""

    run_as_user: Annotated[int, Field(ge=1)] | None = None
    """User id of the pod; null: the image's, or on OpenShift the namespace's."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations added."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels to add to the pod."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels of nodes on which the pod may run."""
    tolerations: list[Anything] = Field(default_factory=list)
    """Taints of nodes that the pod tolerates."""
    affinity: Anything = Field(default_factory=dict)
    """Affinity rules of the pod."""
    topology_spread_constraints: list[Anything] = Field(default_factory=list)
    """Topology spread constraints; without a labelSelector they get that of the operator's pods."""
    priority_class_name: Text = ""
    """Priority class of the pod."""
    extra_env: list[Anything] = Field(default_factory=list)
    """Further environment variables of the container, as in a pod. Settings of the operator belong in settings."""
    extra_volumes: list[Anything] = Field(default_factory=list)
    """Further volumes, as in a pod."""
    extra_volume_mounts: list[Anything] = Field(default_factory=list)
    """Further mounts of the container, as in a pod."""


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
    replicas: Annotated[int, Field(ge=0, le=2)] = 1
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
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Lowest level of log messages."""
    log_format: Literal["json", "text"] = "json"
    """json: one object per line for machines; text: lines for people."""
    settings: dict[str, Text | int | float | bool] = Field(default_factory=dict)
    """Any other variable of docs/settings.md, without its prefix: {WORKERS: 32}."""
    engine_registry: Text = ""
    """Registry that mirrors the public images of engines, with any folder: mirror.example/hub. It takes the place of
    the registry in the image's name. Objects with engine.image keep that. Running pods stay (UpgradeWaits)."""
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
    pod: Pod = Pod()
    """The operator's pod."""
    fullname_override: Text = ""
    """Name of all objects of the release; empty: release and chart name."""
    # Helm hands this to every chart.
    global_: Anything | None = Field(default=None, alias="global", exclude=True)


def values_schema() -> dict[str, Any]:
    """values.schema.json."""
    schema = Values.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_drop_titles(schema)}


def _drop_titles(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            key: _drop_titles(value)
            for key, value in node.items()
            if not (key == "title" and isinstance(value, str)) and not (key == "default" and isinstance(value, dict))
        }
    return [_drop_titles(item) for item in node] if isinstance(node, list) else node


def values_yaml() -> str:
    """values.yaml: every value with its default and what it is for."""
    head = "# Values of the chart speculative-operator, with their defaults.\n"
    return head + "".join(_comment_lines(Values(), ""))


def _comment_lines(model: BaseModel, indent: str) -> list[str]:
    lines = []
    for name, field in type(model).model_fields.items():
        if field.exclude:
            continue
        value, description = getattr(model, name), " ".join((field.description or "").split())
        if not indent:
            lines.append("\n")
        lines.append(f"{indent}# {description}\n")
        if isinstance(value, BaseModel):
            lines += [f"{indent}{field.alias}:\n", *_comment_lines(value, f"{indent}  ")]
        else:
            text = yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("\n...\n").strip()
            lines.append(f"{indent}{field.alias}: {text}\n")
    return lines
