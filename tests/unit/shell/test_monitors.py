"""What PodMonitors must bear to be scraped, and which Prometheus is asked, by the Prometheus servers that there are."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.shell.fakeapi import FakeApi, FaultError

from speculative_operator.domain.observation import Gap
from speculative_operator.domain.reasons import Reason
from speculative_operator.settings import Settings
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.monitors import DEFAULT_URL, SERVERS, address_of, labels_of, namespace_of
from speculative_operator.shell.prometheus import Prometheus
from speculative_operator.shell.resources import POD_MONITOR
from speculative_operator.shell.resync import Resync

STACK = {"matchLabels": {"release": "kube-prometheus-stack"}}


def server(selector: Any, name: str = "k8s", namespace: str = "monitoring", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": SERVERS[0].api_version, "kind": "Prometheus",
        "metadata": {"name": name, "namespace": namespace}, "spec": {"podMonitorSelector": selector, **spec},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("selector", "labels"),
    [
        (STACK, {"release": "kube-prometheus-stack"}),
        ({}, {}),
        (None, {}),
        ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["ml", "web"]}]}, {"team": "ml"}),
        ({"matchExpressions": [{"key": "scraped", "operator": "Exists"}]}, {"scraped": "true"}),
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["web"]}]}, {}),
        ({"matchLabels": {"app.kubernetes.io/name": "x", "serving.speculative.dev/deployment": "y"}}, {}),
        ({"matchLabels": {"argocd.argoproj.io/instance": "theirs"}}, {}),
        ({"matchLabels": {"a b": "x", "c": "no value!", "d": 3}}, {}),
        ("garbled", {}),
    ],
)
def test_the_labels_of_one_server(selector: Any, labels: dict[str, str]) -> None:
    assert labels_of([server(selector)]) == labels


@pytest.mark.parametrize(
    ("url", "namespace"),
    [
        ("http://prometheus-operated.monitoring.svc:9090", "monitoring"),
        ("https://thanos-querier.openshift-monitoring.svc.cluster.local:9092", "openshift-monitoring"),
        ("http://10.0.0.1:9090", ""),
        ("https://prometheus.example.com", ""),
    ],
)
def test_the_namespace_of_prometheus_is_that_of_its_service(url: str, namespace: str) -> None:
    assert namespace_of(url) == namespace


def test_several_servers_are_served_together_where_they_agree() -> None:
    other = server({"matchLabels": {"release": "other", "team": "ml"}}, namespace="a")
    assert labels_of([other, server(STACK)]) == {"team": "ml"}


def test_the_server_that_the_operator_asks_goes_before_any_other() -> None:
    """Who may make a Prometheus of his own must not move the scraping of everybody."""
    other = server({"matchLabels": {"release": "other", "team": "ml"}}, namespace="a")
    assert labels_of([other, server(STACK)], "monitoring") == STACK["matchLabels"]
    assert labels_of([other], "monitoring") == {"release": "other", "team": "ml"}


class TestInTheCluster:
    @staticmethod
    def resync(kube: Kube, **settings: Any) -> Resync:
        return Resync(Settings(**settings), kube, Cache(), lambda _: None, frozenset)

    async def test_settings_go_before_what_was_found(self, api: FakeApi, kube: Kube) -> None:
        api.resources = (*api.resources, POD_MONITOR, *SERVERS)
        await api.put(SERVERS[0], server(STACK))
        looks = self.resync(kube, pod_monitor_labels='{"release": "mine", "team": "ml"}')
        await looks.discover()
        assert dict(looks.capabilities().monitor_labels) == {"release": "mine", "team": "ml"}

    async def test_a_failure_that_passes_leaves_labels_as_they_were(self, api: FakeApi, kube: Kube) -> None:
        api.resources = (*api.resources, POD_MONITOR, *SERVERS)
        await api.put(SERVERS[0], server(STACK))
        looks = self.resync(kube)
        await looks.discover()
        api.failures.append(lambda call: FaultError(500, "no") if call.plural == "prometheuses" else None)
        await looks.discover()
        assert looks.capabilities().monitor_labels == (("release", "kube-prometheus-stack"),)

    async def test_once_one_brings_figures_no_other_is_looked_for(self, api: FakeApi, kube: Kube) -> None:
        """Neither its address nor its labels are moved by what anybody installs or edits later."""
        api.resources = (*api.resources, POD_MONITOR, *SERVERS)
        await api.put(SERVERS[0], server(STACK, namespace="observability"))
        settled = [False]
        looks = Resync(Settings(), kube, Cache(), lambda _: None, frozenset, lambda: settled[0])
        await looks.discover()
        before = looks.prometheus, looks.capabilities()
        assert before[0].url == "http://prometheus-operated.observability.svc:9090"
        settled[0] = True
        await api.put(SERVERS[0], server({"matchLabels": {"release": "mine"}}, "mine", "team-x"))
        await looks.discover()
        assert (looks.prometheus, looks.capabilities()) == before

    @pytest.mark.parametrize("status", [403, 500])
    async def test_without_permission_or_answer_there_are_none(self, api: FakeApi, kube: Kube, status: int) -> None:
        api.resources = (*api.resources, POD_MONITOR, *SERVERS)
        api.failures.append(lambda call: FaultError(status, "no") if call.plural == "prometheuses" else None)
        looks = self.resync(kube)
        await looks.discover()
        assert looks.capabilities().monitor_labels == ()

    async def test_an_operator_of_some_namespaces_asks_for_nothing_of_the_cluster(
        self, api: FakeApi, kube: Kube
    ) -> None:
        api.resources = (*api.resources, POD_MONITOR, *SERVERS)
        looks = self.resync(kube, namespaces="models")
        await looks.discover()
        assert not [call for call in api.calls if call.plural == "prometheuses"]

    @pytest.mark.parametrize("readable", ["", "monitoring"])
    async def test_an_operator_of_some_namespaces_follows_what_its_roles_let_it_read(
        self, api: FakeApi, kube: Kube, readable: str
    ) -> None:
        api.resources = (*api.resources, POD_MONITOR, *SERVERS)
        api.allowed.add(("prometheuses", readable))
        await api.put(SERVERS[0], server(STACK))
        looks = self.resync(kube, namespaces="models")
        await looks.discover()
        assert looks.capabilities().monitor_labels == (("release", "kube-prometheus-stack"),)
        assert {call.namespace for call in api.calls if call.plural == "prometheuses"} == {readable}

    async def test_the_only_server_is_asked_if_no_address_is_set(self, api: FakeApi, kube: Kube) -> None:
        api.resources = (*api.resources, POD_MONITOR, *SERVERS)
        await api.put(SERVERS[0], server(STACK, namespace="observability"))
        for settings, url in (
            ({}, "http://prometheus-operated.observability.svc:9090"),
            ({"prometheus_url": "http://thanos:9090"}, "http://thanos:9090"),
            ({"prometheus_token_file": "/t", "prometheus_token_over_http": True}, DEFAULT_URL),
        ):
            looks = self.resync(kube, **settings)
            await looks.discover()
            assert looks.prometheus.url == url


@pytest.mark.parametrize(
    ("servers", "url"),
    [
        ([], DEFAULT_URL),
        ([server(None)], DEFAULT_URL),
        ([server(None, namespace="a")], "http://prometheus-operated.a.svc:9090"),
        ([server(None, namespace="a"), server(None)], DEFAULT_URL),
        ([{**server(None, namespace="a"), "kind": "PrometheusAgent"}], DEFAULT_URL),
        ([server(None, namespace="a", serviceName="prom", routePrefix="/p/")], "http://prom.a.svc:9090/p"),
        ([server(None, namespace="a", routePrefix="/")], "http://prometheus-operated.a.svc:9090"),
        ([server(None, namespace="a", web={"tlsConfig": {"cert": {}}})], "https://prometheus-operated.a.svc:9090"),
        ([server(None, namespace="openshift-monitoring"), server(None, namespace="a")], "http://prometheus-operated.a.svc:9090"),
    ],
)  # fmt: skip
def test_the_address_of_the_only_server(servers: list[dict[str, Any]], url: str) -> None:
    assert (address_of(servers).url, address_of(servers).fault) == (url, "")


@pytest.mark.parametrize(
    "spec",
    [
        {"serviceName": "169.254.169.254/latest/meta-data/#"},
        {"serviceName": "10.0.0.7:2379"},
        {"serviceName": "a.other-namespace"},
        {"serviceName": 7},
        {"routePrefix": "/p?query=x"},
        {"routePrefix": "/../etc"},
        {"routePrefix": "/p#"},
        {"routePrefix": ["/p"]},
    ],
)
def test_a_server_whose_address_would_lead_elsewhere_is_none(spec: dict[str, Any]) -> None:
    evil = server(None, namespace="tenant", **spec)
    assert address_of([evil]).url == DEFAULT_URL
    real = server(None, namespace="observability")
    assert address_of([evil, real]).url == "http://prometheus-operated.observability.svc:9090"


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ((("a", "x"), ("b", "y")), "there are 2 Prometheus servers (a/x, b/y): set the address"),
        ((("monitoring", "x"), ("monitoring", "y")), "there are 2 Prometheus servers (monitoring/x, monitoring/y)"),
        (
            (("openshift-monitoring", "k8s"), ("openshift-user-workload-monitoring", "u")),
            "Thanos only: set the address",
        ),
    ],
)
def test_of_several_none_is_guessed(places: tuple[tuple[str, str], ...], said: str) -> None:
    found = address_of(server(None, name, namespace) for namespace, name in places)
    assert found.url == ""
    assert said in found.fault
    assert "prometheus.url" in found.fault
    client = Prometheus(Settings(), address=lambda: found)
    assert client.fetch("ns", {"a": ("10.0.0.1",)}, 0.0, 100) == Gap(Reason.PROMETHEUS_ERROR, found.fault)
