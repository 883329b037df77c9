"""What PodMonitors must bear to be scraped, by the selectors of the Prometheus servers that there are."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.shell.fakeapi import FakeApi, FaultError

from speculative_operator.settings import Settings
from speculative_operator.shell.cache import Cache
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.monitors import SERVERS, labels_of
from speculative_operator.shell.resources import POD_MONITOR
from speculative_operator.shell.resync import Resync

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
        ({"matchLabels": {"a b": "x", "c": "no value!", "d": 3}}, {}),
        ("garbled", {}),
    ],
)
def test_the_labels_of_one_server(selector: Any, labels: dict[str, str]) -> None:
    assert labels_of([server(selector)]) == labels


def test_several_servers_are_served_together_and_the_first_has_its_own() -> None:
    other = server({"matchLabels": {"release": "other", "team": "ml"}}, namespace="z")
    assert labels_of([other, server(STACK)]) == {"release": "kube-prometheus-stack", "team": "ml"}


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

    async def test_without_permission_labels_stay(self, api: FakeApi, kube: Kube) -> None:
        api.resources = (*api.resources, POD_MONITOR, *SERVERS)
        await api.put(SERVERS[0], server(STACK))
        looks = self.resync(kube)
        await looks.discover()
        api.failures.append(lambda call: FaultError(403, "no") if call.plural == "prometheuses" else None)
        await looks.discover()
        assert looks.capabilities().monitor_labels == (("release", "kube-prometheus-stack"),)

    async def test_an_operator_of_some_namespaces_asks_for_nothing_of_the_cluster(
        self, api: FakeApi, kube: Kube
    ) -> None:
        api.resources = (*api.resources, POD_MONITOR, *SERVERS)
        looks = self.resync(kube, namespaces="models")
        await looks.discover()
        assert not [call for call in api.calls if call.plural == "prometheuses"]
