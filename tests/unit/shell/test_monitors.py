"""What PodMonitors must bear to be scraped, by the selectors of the Prometheus servers that there are."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.shell.fakeapi import FakeApi, FaultError

from speculative_operator.settings import Settings
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.errors import ApiError
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.monitors import SERVERS, labels_of, namespace_of
from speculative_operator.shell.resources import POD_MONITOR
from speculative_operator.shell.resync import LABELS_ASKED, Resync

STACK = {"matchLabels": {"release": "kube-prometheus-stack"}}


def server(selector: Any, name: str = "k8s", namespace: str = "monitoring") -> dict[str, Any]:
    return {
        "apiVersion": SERVERS[0].api_version, "kind": "Prometheus",
        "metadata": {"name": name, "namespace": namespace}, "spec": {"podMonitorSelector": selector},
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

    async def test_found_labels_reach_render(self, api: FakeApi, kube: Kube) -> None:
        api.resources = (*api.resources, POD_MONITOR, *SERVERS)
        await api.put(SERVERS[0], server(STACK))
        looks = self.resync(kube)
        await looks.discover()
        assert looks.capabilities().monitor_labels == (("release", "kube-prometheus-stack"),)

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

    async def test_at_the_start_it_is_asked_for_again_and_not_for_ever(self, api: FakeApi, kube: Kube) -> None:
        """PodMonitors that exist would lose their labels, and the pods their scrapes."""
        api.resources = (*api.resources, POD_MONITOR, *SERVERS)
        api.failures.append(lambda call: FaultError(500, "no") if call.plural == "prometheuses" else None)
        looks = self.resync(kube)
        for _ in range(LABELS_ASKED - 1):
            with pytest.raises(ApiError):
                await looks.discover()
        await looks.discover()
        assert looks.capabilities().monitor_labels == ()

    async def test_without_permission_there_are_none(self, api: FakeApi, kube: Kube) -> None:
        api.resources = (*api.resources, POD_MONITOR, *SERVERS)
        api.failures.append(lambda call: FaultError(403, "no") if call.plural == "prometheuses" else None)
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
