"""A second Prometheus, installed by anybody in any namespace, took from the PodMonitors of every settled object the
label by which the first one scraped them: dashboards, alerts and autoscalers went blind."""

from __future__ import annotations

from typing import Any

from tests.unit.reconcile.worlds import settled

from speculative_operator.domain.actions import ApplyChild
from speculative_operator.render import Capabilities
from speculative_operator.shell.monitors import address_of, labels_of, namespace_of


def server(namespace: str, **labels: str) -> dict[str, Any]:
    """A Prometheus object that selects PodMonitors by `labels`."""
    return {
        "kind": "Prometheus",
        "metadata": {"namespace": namespace, "name": "k8s"},
        "spec": {"podMonitorSelector": {"matchLabels": labels}},
    }


def offered(*servers: dict[str, Any]) -> Capabilities:
    """What an operator finds that starts among these servers."""
    labels = labels_of(servers, namespace_of(address_of(servers).url))
    return Capabilities(pod_monitor=True, monitor_labels=tuple(sorted(labels.items())))


FIRST, SECOND = server("observability", release="kps"), server("team-x", release="mine")


def test_a_second_prometheus_takes_no_label_from_a_pod_monitor() -> None:
    cluster = settled(capabilities=offered(FIRST))
    cluster.capabilities = offered(FIRST, SECOND)
    assert cluster.capabilities.monitor_labels == (), "the two disagree"
    applied = [one.manifest for one in cluster.tick().actions if isinstance(one, ApplyChild)]
    assert [one for one in applied if one["kind"] == "PodMonitor"] == []


def test_nor_does_a_server_that_cannot_be_read_any_more() -> None:
    cluster = settled(capabilities=offered(FIRST))
    cluster.capabilities = offered()
    assert not [one for one in cluster.tick().actions if isinstance(one, ApplyChild)]


def test_a_label_that_is_found_later_is_added() -> None:
    cluster = settled(capabilities=offered(FIRST))
    cluster.capabilities = offered(FIRST, server("team-x", team="ml"))
    (applied,) = [one.manifest for one in cluster.tick().actions if isinstance(one, ApplyChild)]
    labels = applied["metadata"]["labels"]
    assert (applied["kind"], labels["release"], labels["team"]) == ("PodMonitor", "kps", "ml")
