"""Values of the Helm chart: their types make values.schema.json, their docstrings and defaults values.yaml."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, Field

from speculative_operator.api.wire import Wire
from speculative_operator.domain.privileges import Privilege

Text = str
Anything = dict[str, Any]
Seconds = Annotated[int, Field(ge=1, le=300)]
PrivilegeName = Annotated[str, Field(pattern=rf"^({'|'.join(Privilege)}|\*)$")]


class Image(Wire):
    """Image of the operator."""

    repository: Text = "speculative-operator"
    """Registry and name."""
    tag: Text = ""
    """Tag; empty: the chart's appVersion."""
    digest: Annotated[str, Field(pattern="^(sha256:[0-9a-f]{64})?$")] = ""
    """Digest, sha256:...; wins over the tag."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the kubelet pulls it."""
    pull_secrets: list[Text] = Field(default_factory=list)
    """Names of Secrets for the registry."""


class Token(Wire):
    """Bearer token for Prometheus; without either none is sent."""

    own_service_account: bool = False
    """Send a token of the operator's ServiceAccount, made for Prometheus alone: not the one for the API server."""
    audience: Annotated[str, Field(min_length=1)] = "prometheus"
    """Audience of that token, which the proxy before Prometheus must ask for (kube-rbac-proxy:
    --auth-token-audiences). With the API server's own audience whoever reads the token has the operator's permissions:
    prefer a Secret with the token of a ServiceAccount that may only read metrics."""
    over_http: bool = False
    """Send a token though prometheus.url is http://, readable for everybody on the way."""
    secret_name: Text = ""
    """Or: a Secret of the release's namespace."""
    key: Text = "token"
    """Key in the Secret."""


class Authority(Wire):
    """Certificate authority of Prometheus; empty: the system's."""

    config_map_name: Text = ""
    """ConfigMap of the release's namespace."""
    key: Text = "ca.crt"
    """Key in it."""


class ServingPodMonitors(Wire):
    """PodMonitors of the serving pods, which the operator makes where prometheus-operator runs."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Labels by which your Prometheus chooses them, such as release: kube-prometheus-stack. Where the operator serves
    all namespaces it finds them itself, in the podMonitorSelector of the Prometheus objects."""
    interval_seconds: Annotated[int, Field(ge=2, le=15)] = 5
    """Seconds between two scrapes."""


class Prometheus(Wire):
    """Where the metrics of the serving pods are read."""

    url: Annotated[str, Field(pattern="^https?://")] = "http://prometheus-operated.monitoring.svc:9090"
    """Prometheus, or anything with its query API."""
    token: Token = Token()
    """Bearer token for Prometheus; without either none is sent."""
    ca: Authority = Authority()
    """Certificate authority of Prometheus; empty: the system's."""
    pod_monitors: ServingPodMonitors = ServingPodMonitors()
    """PodMonitors of the serving pods, which the operator makes where prometheus-operator runs."""


class ServiceAccount(Wire):
    """Who the operator is in the cluster."""

    create: bool = True
    """Make the ServiceAccount."""
    name: Text = ""
    """Its name; empty: that of the release."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of it."""


class Rbac(Wire):
    """Permissions."""

    create: bool = True
    """Make roles and bindings for the operator: for the whole cluster, or for watchNamespaces alone."""
    aggregate: bool = True
    """Let the built-in roles view, edit and admin see and change SpeculativeDeployments."""


class AdmissionPolicy(Wire):
    """A ValidatingAdmissionPolicy: the operator's ServiceAccount writes what is its own, and nothing else."""

    enabled: bool = True
    """Make it. Off where nobody may make objects of the cluster's scope."""
    namespaces: list[Text] = Field(default=["kube-system", "kube-public", "kube-node-lease"])
    """Namespaces in which it writes nothing, beside all whose names begin with kube-."""


class Crds(Wire):
    """The definition of SpeculativeDeployment."""

    install: bool = True
    """Install and upgrade it with the release. It stays when the release goes, and with it every object."""


class MetricsService(Wire):
    """A Service in front of /metrics."""

    enabled: bool = True
    """Make it."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of it."""


class PodMonitor(Wire):
    """Scraping of the operator's own metrics by prometheus-operator."""

    enabled: bool = False
    """Make it; needs the kind PodMonitor."""
    interval: Annotated[str, Field(pattern="^[0-9]+(ms|s|m)$")] = "30s"
    """How often."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels by which your Prometheus chooses it."""


class Pairs(Wire):
    """What is done about verifier and speculator before pods are made of them."""

    check: bool = True
    """Read both in a Job (of the operator's image) and refuse pairs that do not fit. Needs a way to their source."""
    catalogue: Text = ""
    """Known speculators of your own for speculator.auto, as CSV text (docs/catalogue.md): made into a ConfigMap."""
    catalogue_config_map: Annotated[str, Field(pattern="^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$")] = ""
    """Or: a ConfigMap of the release's namespace with the key catalogue.csv; empty: RELEASE-NAME-catalogue, if any."""


class Metrics(Wire):
    """The operator's own metrics."""

    service: MetricsService = MetricsService()
    """A Service in front of /metrics."""
    pod_monitor: PodMonitor = PodMonitor()
    """Scraping of the operator's own metrics by prometheus-operator."""


class NetworkPolicy(Wire):
    """Who may reach the operator's port 8080 (/metrics; nothing else listens). The kubelet always may."""

    enabled: bool = True
    """Make a NetworkPolicy. It is made where it is known who asks: from is given, or prometheus.url names a Service."""
    from_: list[Anything] = Field(default_factory=list, alias="from")
    """Peers as in NetworkPolicy; empty: the namespace of the Service in prometheus.url, and that of the release."""


class Pod(Wire):
    """The operator's pod."""

    run_as_user: Annotated[int, Field(ge=1)] | None = None
    """User id; null: the image's, or on OpenShift the namespace's."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations added."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels added."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Nodes to run on."""
    tolerations: list[Anything] = Field(default_factory=list)
    """Taints to bear."""
    affinity: Anything = Field(default_factory=dict)
    """Affinity."""
    priority_class_name: Text = ""
    """Priority class."""


class Resources(Wire):
    """Resources of the operator: 200 MiB carry some 400 objects, 384 MiB some 1,000; for more, raise both."""

    requests: dict[str, Text | int] = Field(default={"cpu": "100m", "memory": "200Mi"})
    """Reserved."""
    limits: dict[str, Text | int] = Field(default={"memory": "384Mi"})
    """Bound. None on CPU: a throttled operator reacts late, and what it takes beyond its request is idle anyway."""


class Values(Wire):
    """Values of the chart speculative-operator."""

    image: Image = Image()
    """Image of the operator."""
    replicas: Annotated[int, Field(ge=0, le=2)] = 1
    """Operator pods. One works at a time; a second one only waits, which saves seconds when a node dies."""
    watch_namespaces: list[Annotated[str, Field(pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]] = Field(
        default_factory=list
    )
    """Namespaces to serve; empty: all. With names given, the operator holds Roles in these and nothing more."""
    template_privileges: list[PrivilegeName] = Field(default_factory=list)
    """What spec.template may ask for beyond the level baseline of Pod Security, such as [hostPath]; '*' allows all of
    it. Empty: who may create SpeculativeDeployments gets no more by it than pods of that level (docs/security.md)."""
    node_folders: list[Annotated[str, Field(pattern="^/")]] = Field(default_factory=list)
    """Folders of nodes below which weights.cache.nodePath may lie; empty: any that is not the system's."""
    prometheus: Prometheus = Prometheus()
    """Where the metrics of the serving pods are read."""
    pairs: Pairs = Pairs()
    """What is done about verifier and speculator before pods are made of them."""
    tick_seconds: Seconds = 10
    """Seconds between two looks at each object."""
    leader_election: bool = True
    """Hold a Lease before writing anything."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Lowest level that is logged."""
    log_format: Literal["json", "text"] = "json"
    """json: one object per line; text: for people."""
    settings: dict[str, Text | int | float | bool] = Field(default_factory=dict)
    """Any other variable of docs/settings.md, without its prefix: {WORKERS: 32}."""
    service_account: ServiceAccount = ServiceAccount()
    """Who the operator is in the cluster."""
    rbac: Rbac = Rbac()
    """Permissions."""
    admission_policy: AdmissionPolicy = AdmissionPolicy()
    """A ValidatingAdmissionPolicy: the operator's ServiceAccount writes what is its own, and nothing else."""
    crds: Crds = Crds()
    """The definition of SpeculativeDeployment."""
    metrics: Metrics = Metrics()
    """The operator's own metrics."""
    network_policy: NetworkPolicy = NetworkPolicy()
    """Who may reach the operator's port 8080 (/metrics; nothing else listens). The kubelet always may."""
    resources: Resources = Resources()
    """Resources of the operator: 200 MiB carry some 400 objects, 384 MiB some 1,000; for more, raise both."""
    pod: Pod = Pod()
    """The operator's pod."""
    fullname_override: Text = ""
    """Name of all objects of the release; empty: made of release and chart name."""
    # Helm hands this to every chart.
    global_: Anything | None = Field(default=None, alias="global", exclude=True)


def values_schema() -> dict[str, Any]:
    """values.schema.json."""
    schema = Values.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_untitled(schema)}


def _untitled(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            key: _untitled(value)
            for key, value in node.items()
            if not (key == "title" and isinstance(value, str)) and not (key == "default" and isinstance(value, dict))
        }
    return [_untitled(item) for item in node] if isinstance(node, list) else node


def values_yaml() -> str:
    """values.yaml: every value with its default and what it is for."""
    head = "# Values of the chart speculative-operator, with their defaults.\n"
    return head + "".join(_commented(Values(), ""))


def _commented(model: BaseModel, indent: str) -> list[str]:
    lines = []
    for name, field in type(model).model_fields.items():
        if field.exclude:
            continue
        value, description = getattr(model, name), " ".join((field.description or "").split())
        if not indent:
            lines.append("\n")
        lines.append(f"{indent}# {description}\n")
        if isinstance(value, BaseModel):
            lines += [f"{indent}{field.alias}:\n", *_commented(value, f"{indent}  ")]
        else:
            text = yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("\n...\n").strip()
            lines.append(f"{indent}{field.alias}: {text}\n")
    return lines
