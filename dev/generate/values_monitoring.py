"""Values of the Helm chart about Prometheus and the operator's own metrics. `generate.values` holds the others."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from speculative_operator.api.wire import Wire

Anything = dict[str, Any]


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
    secret_name: str = ""
    """Alternatively: name of a Secret in the release's namespace that holds the token."""
    key: str = "token"
    """Key of the token in the Secret."""


class Authority(Wire):
    """Certificate authority of Prometheus; empty: the system's authorities."""

    config_map_name: str = ""
    """ConfigMap in the release's namespace that holds the authority; empty: the system's authorities."""
    key: str = "ca.crt"
    """Key of the authority in the ConfigMap."""


class BasicAuth(Wire):
    """User and password for Prometheus."""

    secret_name: str = ""
    """Name of a Secret of type kubernetes.io/basic-auth (keys username, password) in the release's namespace."""


class ClientCertificate(Wire):
    """Certificate that the operator shows to Prometheus (mTLS)."""

    secret_name: str = ""
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
    extraEnv names (SPECULATIVE_PROMETHEUS_PROXY). For models see spec.weights.proxy of an object."""
    pod_monitors: ServingPodMonitors = ServingPodMonitors()
    """PodMonitors of the serving pods, which the operator creates if prometheus-operator is installed."""


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
    runbook_url: str = ""
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
    namespaces: list[str] = Field(default_factory=list)
    """Namespaces whose pods may connect, as those of the release may; empty: that of the Service in prometheus.url, and
    with openshift-monitoring openshift-user-workload-monitoring too. Without prometheus.url: monitoring, and those of
    the Prometheus objects found."""
    from_: list[Anything] = Field(default_factory=list, alias="from")
    """Peers in place of these namespaces and the release's, as in a NetworkPolicy; for the operator's port only."""
