"""Installing: the chart and the one file made from it, on a cluster with controllers, under Pod Security and RBAC."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.operatorlab import until

from devcluster import Cluster
from devcluster.errors import DevClusterError
from generate import manifests, rbac
from monitoring.alerts import groups
from monitoring.dashboards import DASHBOARDS
from speculative_operator.domain import names
from speculative_operator.reconcile.world import catalogue_of
from speculative_operator.settings import Settings

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
CHART = str(ROOT / "charts" / "speculative-operator")
INSTALL = ROOT / "manifests" / "install.yaml"
NAMESPACE = manifests.NAMESPACE
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:speculative-operator"


IMAGE = "image.repository=speculative-operator"
"""The one value that has no default: the name that manifests/ have."""


def rendered(cluster: Cluster, *settings: str, release: str = "speculative-operator") -> list[dict[str, Any]]:
    """Objects of the chart; settings as for --set."""
    options = [option for setting in (IMAGE, *settings) for option in ("--set", setting)]
    text = cluster.helm("template", release, CHART, "--namespace", NAMESPACE, *options).stdout
    return [item for item in yaml.safe_load_all(text) if item]


def one(objects: list[dict[str, Any]], kind: str, name: str = "speculative-operator") -> dict[str, Any]:
    (found,) = [item for item in objects if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    return found


def environment(objects: list[dict[str, Any]], name: str = "speculative-operator") -> dict[str, str]:
    (container,) = one(objects, "Deployment", name)["spec"]["template"]["spec"]["containers"]
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[Cluster]:
    """The operator from manifests/, as README and demo install it."""
    cluster.kubectl("apply", "--server-side", "-f", str(INSTALL.parent))
    cluster.wait_for_kinds()
    until("its roles are in force", lambda: may(cluster, "watch", OWN))
    yield cluster
    cluster.kubectl("delete", "--ignore-not-found", "--timeout=300s", "-f", str(INSTALL))


def test_install_file_is_what_the_chart_renders(cluster: Cluster) -> None:
    text = cluster.helm("template", "speculative-operator", CHART, "--namespace", NAMESPACE, "--set", IMAGE).stdout
    assert manifests.install(text) == INSTALL.read_text(), "run: make generate"


def test_chart_passes_helms_own_check(cluster: Cluster) -> None:
    assert "0 chart(s) failed" in cluster.helm("lint", "--strict", CHART).stdout


def test_an_install_without_an_image_says_what_to_do(cluster: Cluster) -> None:
    with pytest.raises(DevClusterError, match=r"image\.repository is empty.*make image.*--set image\.repository="):
        cluster.helm("template", "a", CHART)


def test_alerts_and_dashboards_are_those_of_the_repository(cluster: Cluster) -> None:
    objects = rendered(
        cluster, "metrics.alerts.enabled=true", "metrics.alerts.labels.release=kps", "metrics.dashboards.enabled=true",
        "metrics.dashboards.annotations.grafana_folder=Serving", "metrics.dashboards.openshift=true", "metrics.alerts.runbookUrl=https://example.org/a.md",
    )  # fmt: skip
    rule = one(objects, "PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "kps"
    found = json.dumps(rule["spec"]).replace('"runbook_url": "https://example.org/a.md', '"runbook": "docs/alerts.md')
    assert json.loads(found) == groups()
    for name, board in DASHBOARDS.items():
        config = one(objects, "ConfigMap", f"speculative-operator-dashboard-{name}")
        assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert config["metadata"]["annotations"] == {"grafana_folder": "Serving"}
        assert json.loads(config["data"][f"speculative-{name}.json"]) == board.json()
    labels = [item["metadata"]["labels"] for item in objects if "console" in item["metadata"]["name"]]
    assert [each["console.openshift.io/dashboard"] for each in labels] == ["true"] * len(DASHBOARDS)
    assert not {"PrometheusRule"} & {item["kind"] for item in rendered(cluster)}


def test_kustomization_builds(cluster: Cluster) -> None:
    built = list(yaml.safe_load_all(cluster.kubectl("kustomize", str(ROOT)).stdout))
    assert len(built) == len(list(yaml.safe_load_all(INSTALL.read_text())))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("replica=1", "replica"),
        ("replicaCount=3", "replicaCount"),
        ("prometheus.url=prometheus:9090", "prometheus/url"),
        ("tickSeconds=0", "tickSeconds"),
        ("tickSeconds=5", "settings.PROMETHEUS_TIMEOUT_SECONDS"),
        ("logLevel=LOUD", "logLevel"),
        ("image.digest=abc", "image/digest"),
        ("watchNamespaces={A_b}", "watchNamespaces"),
        ("settings.TICK_SECONDS=3", "tickSeconds"),
        ("settings.NO_SUCH_THING={a}", "settings"),
        ("settings.PROMETHEUS_HEADERS=a", "prometheus.headers"),
        ("settings.ENGINE_REGISTRY=a", "engineRegistry"),
        ("prometheus.proxy=proxy:3128", "prometheus/proxy"),
        ("prometheus.proxy=http://a:b@proxy:3128", "prometheus/proxy"),
    ],
)
def test_wrong_values_are_refused(cluster: Cluster, setting: str, said: str) -> None:
    with pytest.raises(DevClusterError) as caught:
        rendered(cluster, setting)
    assert said in str(caught.value)


def test_contradicting_values_are_refused(cluster: Cluster) -> None:
    with pytest.raises(DevClusterError, match="set leaderElection: true or replicaCount: 1"):
        rendered(cluster, "replicaCount=2", "leaderElection=false")
    with pytest.raises(DevClusterError, match="keep one of them"):
        rendered(cluster, "prometheus.token.secretName=a", "prometheus.token.ownServiceAccount=true")

    with pytest.raises(DevClusterError, match="keep one of them"):
        rendered(
            cluster,
            "prometheus.url=https://thanos.example",
            "prometheus.token.secretName=a",
            "prometheus.basicAuth.secretName=b",
        )


def test_a_password_is_not_sent_readable_for_all(cluster: Cluster) -> None:
    with pytest.raises(DevClusterError, match=r"prometheus\.token\.overHttp"):
        rendered(cluster, "prometheus.basicAuth.secretName=a")


@pytest.mark.parametrize("token", ["ownServiceAccount=true", "secretName=a"])
def test_a_token_is_not_sent_readable_for_all(cluster: Cluster, token: str) -> None:
    with pytest.raises(DevClusterError, match=r"prometheus\.token\.overHttp"):
        rendered(cluster, f"prometheus.token.{token}")
    allowed = environment(rendered(cluster, f"prometheus.token.{token}", "prometheus.token.overHttp=true"))
    assert allowed["SPECULATIVE_PROMETHEUS_TOKEN_OVER_HTTP"] == "true"


def test_the_token_for_prometheus_is_for_nobody_else(cluster: Cluster) -> None:
    objects = rendered(cluster, "prometheus.url=https://thanos.example", "prometheus.token.ownServiceAccount=true")
    volumes = one(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
    (source,) = next(volume for volume in volumes if volume["name"] == "token")["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "prometheus"
    assert environment(objects)["SPECULATIVE_PROMETHEUS_TOKEN_FILE"] == "/etc/speculative-operator/token/token"


def test_metrics_of_the_operator_are_for_who_scrapes_them(cluster: Cluster) -> None:
    (rule,) = one(rendered(cluster), "NetworkPolicy")["spec"]["ingress"]
    assert rule["ports"] == [{"port": "http", "protocol": "TCP"}]
    assert rule["from"][1]["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "monitoring"}
    own = rendered(cluster, "networkPolicy.from[0].ipBlock.cidr=10.0.0.0/8", "prometheus.url=https://thanos.example")
    assert one(own, "NetworkPolicy")["spec"]["ingress"][0]["from"] == [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    for without in ("networkPolicy.enabled=false", "prometheus.url=https://thanos.example"):
        assert "NetworkPolicy" not in {item["kind"] for item in rendered(cluster, without)}, without


def admitted(policy: dict[str, Any]) -> list[str]:
    """Namespaces whose pods may connect."""
    peers = [peer["namespaceSelector"] for peer in policy["spec"]["ingress"][0]["from"] if "namespaceSelector" in peer]
    return [selector["matchLabels"]["kubernetes.io/metadata.name"] for selector in peers]


def test_on_openshift_both_prometheus_servers_may_scrape_the_operator(cluster: Cluster) -> None:
    """With the address that docs/openshift-ai.md tells, which is of Thanos and not of who scrapes."""
    page = (ROOT / "docs" / "openshift-ai.md").read_text()
    (url,) = re.findall(r"url: (https://thanos-querier\S+)", page)
    both = ["openshift-monitoring", "openshift-user-workload-monitoring"]
    assert admitted(one(rendered(cluster, f"prometheus.url={url}"), "NetworkPolicy")) == both
    own = rendered(cluster, "prometheus.url=https://thanos.example", "networkPolicy.namespaces={a,b}")
    assert admitted(one(own, "NetworkPolicy")) == ["a", "b"]
    policy = ROOT / "manifests" / "olm" / "manifests" / "speculative-operator.networkpolicy.yaml"
    assert admitted(yaml.safe_load(policy.read_text())) == ["monitoring", *both]


def test_named_namespaces_get_roles_and_nothing_cluster_wide(cluster: Cluster) -> None:
    objects = rendered(cluster, "watchNamespaces={models,more}", "rbac.aggregate=false", "crds.enabled=false")
    kinds = {item["kind"] for item in objects}
    assert not {kind for kind in kinds if kind.startswith("Cluster")}
    hooks = [item for item in objects if "helm.sh/hook" in (item["metadata"].get("annotations") or {})]
    assert {item["metadata"]["name"] for item in hooks} == {"speculative-operator-test"}, "made by `helm test` alone"
    roles = [item for item in objects if item["kind"] == "Role" and item not in hooks]
    assert {item["metadata"]["namespace"] for item in roles} == {"models", "more", NAMESPACE}
    only_wide = {permission.resource for permission in rbac.CLUSTER}
    rules = one(rendered(cluster), "ClusterRole")["rules"]
    wide = [rule for rule in rules if not only_wide.issuperset(rule["resources"])]
    assert all(role["rules"] == wide for role in roles if role["metadata"]["namespace"] != NAMESPACE)
    assert environment(objects)["SPECULATIVE_NAMESPACES"] == "models,more"


def test_values_reach_the_operator(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables that the chart sets are read as they were meant."""
    objects = rendered(
        cluster,
        "watchNamespaces={b,a}",
        "prometheus.url=https://thanos.example:9091/",
        "prometheus.token.ownServiceAccount=true",
        "prometheus.ca.configMapName=ca",
        "tickSeconds=30",
        "leaderElection=false",
        "logLevel=DEBUG",
        "pairs.check=false",
        "image.repository=registry.example/operator",
        "image.tag=v7",
        r"prometheus.headers.X-Scope-OrgID=team-a",
        "prometheus.proxy=http://proxy.example:3128",
        "prometheus.clientCertificate.secretName=client",
        "engineRegistry=mirror.example/hub",
        "settings.WORKERS=7",
        "settings.STALE_AFTER_SECONDS=45",
    )
    for name, value in environment(objects).items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.namespace_list == ("a", "b")
    assert settings.prometheus_url == "https://thanos.example:9091"
    assert settings.prometheus_token_file == "/etc/speculative-operator/token/token"
    assert settings.prometheus_ca_file == "/etc/speculative-operator/ca/ca.crt"
    assert (settings.tick_seconds, settings.leader_election, settings.log_level) == (30.0, False, "DEBUG")
    assert (settings.check_pairs, settings.job_image) == (False, "registry.example/operator:v7")
    assert settings.prometheus_header_map == {"X-Scope-OrgID": "team-a"}
    assert settings.prometheus_proxy == "http://proxy.example:3128"
    assert settings.prometheus_certificate_folder == mount_of(objects, "certificate", "client")
    assert settings.engine_registry == "mirror.example/hub"
    assert (settings.workers, settings.stale_after_seconds) == (7, 45.0)


def mount_of(objects: list[dict[str, Any]], volume: str, secret: str) -> str:
    """Where the operator's container sees a Secret."""
    spec = one(objects, "Deployment")["spec"]["template"]["spec"]
    assert {"name": volume, "secret": {"secretName": secret}} in spec["volumes"]
    (path,) = [mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"] if mount["name"] == volume]
    return str(path)


def test_two_operators_are_evicted_one_at_a_time_and_spread(cluster: Cluster) -> None:
    spread = "topologySpreadConstraints[0]"
    values = (f"{spread}.maxSkew=1", f"{spread}.topologyKey=zone", f"{spread}.whenUnsatisfiable=ScheduleAnyway")
    objects = rendered(cluster, "replicaCount=2", *values)
    template = one(objects, "Deployment")["spec"]["template"]
    budget = one(objects, "PodDisruptionBudget")["spec"]
    (constraint,) = template["spec"]["topologySpreadConstraints"]
    for selector in (budget["selector"], constraint["labelSelector"]):
        assert selector["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert (budget["maxUnavailable"], constraint["topologyKey"]) == (1, "zone")
    for few in (("replicaCount=1",), ("replicaCount=2", "podDisruptionBudget.enabled=false")):
        assert "PodDisruptionBudget" not in {item["kind"] for item in rendered(cluster, *few)}, few


def test_server_takes_every_object_of_a_release(installed: Cluster) -> None:
    """With everything switched on that has a switch; strict validation, Pod Security of the namespace as warnings."""
    values = (
        "image.tag=x",
        "imagePullSecrets[0].name=a",
        "prometheus.url=https://prometheus-operated.monitoring.svc:9090",
        "prometheus.token.ownServiceAccount=true",
        "prometheus.ca.configMapName=ca",
        "podSecurityContext.runAsUser=1000650000",
        "nodeSelector.zone=a",
        "tolerations[0].operator=Exists",
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].key=metadata.name",
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].operator=In",
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].values={a}",
        "podAnnotations.a=b",
        "podLabels.a=b",
        "replicaCount=2",
        "prometheus.clientCertificate.secretName=certificate",
        "prometheus.headers.X-Scope-OrgID=a",
        "extraEnv[0].name=A",
        "extraEnv[0].value=b",
        "extraVolumes[0].name=extra",
        "extraVolumes[0].configMap.name=extra",
        "extraVolumeMounts[0].name=extra",
        "extraVolumeMounts[0].mountPath=/extra",
        "topologySpreadConstraints[0].maxSkew=1",
        "topologySpreadConstraints[0].topologyKey=kubernetes.io/hostname",
        "topologySpreadConstraints[0].whenUnsatisfiable=DoNotSchedule",
        "priorityClassName=system-cluster-critical",
        "metrics.service.annotations.a=b",
        "serviceAccount.annotations.a=b",
        "fullnameOverride=all",
    )
    text = yaml.safe_dump_all(for_a_dry_run(rendered(installed, *values, release="all")))
    done = installed.kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", input=text)
    assert "Warning" not in done.stderr


OWN_ROWS = 'verifier,speculator,method,k,source,date\n# ours\nme/model,me/head,eagle3,3,"our wiki, page 2",2026-09\n'


@pytest.mark.parametrize("ending", ["", "\n", "\n\n"])
def test_rows_of_the_users_own_reach_the_operators_pod(installed: Cluster, tmp_path: Path, ending: str) -> None:
    """As text, which the chart makes a ConfigMap of, byte by byte but for the end."""
    (tmp_path / "rows.csv").write_text(OWN_ROWS.rstrip("\n") + ending)
    rows = f"pairs.catalogue={tmp_path / 'rows.csv'}"
    text = installed.helm("template", "mine", CHART, "-n", NAMESPACE, "--set", IMAGE, "--set-file", rows).stdout
    objects = [item for item in yaml.safe_load_all(text) if item]
    name = "mine-speculative-operator"
    held = one(objects, "ConfigMap", f"{name}-catalogue")["data"]["catalogue.csv"]
    assert held.strip() == OWN_ROWS.strip()
    (entry,) = [entry for entry in catalogue_of(held, "catalogue.csv").entries if entry.added]
    assert (entry.verifier, entry.speculator, entry.k, entry.source) == ("me/model", "me/head", 3, "our wiki, page 2")
    assert catalogue_volume(objects, name) == f"{name}-catalogue"
    done = installed.kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", input=without_crd(objects))
    assert "Warning" not in done.stderr


def test_a_config_map_of_the_users_own_is_mounted_where_it_is(installed: Cluster) -> None:
    objects = rendered(installed, "pairs.catalogueConfigMap=our-pairs", release="mine")
    assert catalogue_volume(objects, "mine-speculative-operator") == "our-pairs"
    assert not [item for item in objects if item["kind"] == "ConfigMap"]
    done = installed.kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", input=without_crd(objects))
    assert "Warning" not in done.stderr
    with pytest.raises(DevClusterError, match="keep one of them"):
        rendered(installed, "pairs.catalogueConfigMap=our-pairs", "pairs.catalogue=x")


def catalogue_volume(objects: list[dict[str, Any]], name: str) -> str:
    """ConfigMap that the operator reads rows from where its setting says; it may be absent."""
    spec = one(objects, "Deployment", name)["spec"]["template"]["spec"]
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "catalogue"]
    (mount,) = [mount for mount in spec["containers"][0]["volumeMounts"] if mount["name"] == "catalogue"]
    assert environment(objects, name)["SPECULATIVE_CATALOGUE"] == f"{mount['mountPath']}/catalogue.csv"
    assert "subPath" not in mount, "it would never change"
    assert volume["configMap"]["optional"] is True
    return str(volume["configMap"]["name"])


def without_crd(objects: list[dict[str, Any]]) -> str:
    """The definition is there already, from the manifests."""
    return yaml.safe_dump_all(item for item in for_a_dry_run(objects) if item["kind"] != "CustomResourceDefinition")


def for_a_dry_run(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A pod, that of the test hook, is only taken where its ServiceAccount exists, which a dry run does not make."""
    for item in objects:
        if item["kind"] == "Pod":
            del item["spec"]["serviceAccountName"]
    return objects


def test_operators_pod_is_let_in_under_restricted_pod_security(installed: Cluster) -> None:
    """No node runs it here: it is enough that the controller may make it."""
    pods = until("a pod is made", lambda: installed.objects.list("pods", NAMESPACE))
    security = pods[0]["spec"]["securityContext"]
    assert security == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}, "no fixed user id"


def may(cluster: Cluster, verb: str, resource: str, *, namespace: str = "default", who: str = ACCOUNT) -> bool:
    """A resource may be followed by `:subresource` or by `/name`."""
    resource, _, below = resource.partition(":")
    part = ("--subresource", below) if below else ()
    answer = cluster.kubectl("auth", "can-i", verb, resource, *part, "-n", namespace, "--as", who, check=False)
    return answer.stdout.strip() == "yes"


OWN = f"{names.PLURAL}.{names.GROUP}"


@pytest.mark.parametrize(
    ("role", "may_do", "may_not"),
    [("view", "list", "create"), ("edit", "create", ""), ("admin", "delete", "")],
)
def test_built_in_roles_take_up_the_new_kind(installed: Cluster, role: str, may_do: str, may_not: str) -> None:
    user = f"user-{role}"
    options = (f"--clusterrole={role}", f"--user={user}", "-n", "default")
    installed.kubectl("create", "rolebinding", user, *options)
    try:
        until("the role has taken it up", lambda: may(installed, may_do, OWN, who=user))
        assert not may_not or not may(installed, may_not, OWN, who=user)
        assert not may(installed, "patch", f"{OWN}:status", who=user)
    finally:
        installed.kubectl("delete", "rolebinding", user, "-n", "default")
