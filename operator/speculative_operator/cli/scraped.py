"""Checks of `doctor` on figures: how Prometheus finds the pods, what it has of them, and which table they follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from speculative_operator.cli.cluster import Object, condition, speculation
from speculative_operator.cli.commands import UnseenError
from speculative_operator.cli.diagnosis import Finding
from speculative_operator.cli.inspection import GOOD, OURS, Found, Look, first_few, full_name, settings_of
from speculative_operator.domain.reading import items
from speculative_operator.domain.reasons import ConditionType, Reason

PROMETHEUS = frozenset({Reason.PROMETHEUS_ERROR, Reason.PROMETHEUS_TIMEOUT})
FRESHNESS = frozenset({Reason.METRICS_STALE})
LABELS = frozenset({Reason.METRICS_FOREIGN})
FIGURES = frozenset({Reason.METRICS_MISSING, Reason.METRICS_PARTIAL, Reason.METRICS_ABSURD})
TABLES = frozenset({Reason.TABLE_NOT_IN_FORCE, Reason.ENGINE_VERSION_DIFFERS})
_BY_ITSELF = "The operator reads them from the pods: "


def selectors(look: Look) -> Iterator[Found]:
    """Yield the PodMonitors that no Prometheus of the cluster selects."""
    from speculative_operator.shell.resources import POD_MONITOR

    servers = servers_of(look)
    monitors = look.at.list_objects(POD_MONITOR.api_version, POD_MONITOR.plural, label_selector=OURS)
    asked = [(full_name(one), (one.get("spec") or {}).get("podMonitorSelector")) for one in servers]
    left = [
        full_name(one)
        for one in monitors
        if not any(selects(selector, one["metadata"].get("labels") or {}) for _, selector in asked)
    ]
    if asked and left:
        wanted = "; ".join(f"{server} asks for {selector}" for server, selector in asked)
        message = f"no Prometheus selects the PodMonitors {first_few(left)} ({wanted})"
        yield Found(message, "set prometheus.podMonitors.labels in the chart")


def servers_of(look: Look) -> list[Object]:
    """The Prometheus and PrometheusAgent objects of the cluster."""
    from speculative_operator.shell.monitors import SERVERS

    return [
        {**found, "kind": one.kind} for one in SERVERS for found in look.at.list_objects(one.api_version, one.plural)
    ]


def selects(selector: object, labels: Mapping[str, str]) -> bool:
    """True where a label selector of Kubernetes takes these labels; one that is absent takes none."""
    if not isinstance(selector, Mapping):
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(one, labels) for one in selector.get("matchExpressions") or ())


def _holds(one: Mapping[str, object], labels: Mapping[str, str]) -> bool:
    key, known = str(one.get("key")), items(one, "values")
    return {
        "In": labels.get(key) in known,
        "NotIn": labels.get(key) not in known,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }.get(str(one.get("operator")), False)


def findings_with(look: Look, reasons: frozenset[Reason]) -> Iterator[Found]:
    """Yield what the operator reports with one of these reasons."""
    return (finding_of(body, one) for body, one in look.findings() if one.reason in reasons)


def finding_of(body: Object, one: Finding) -> Found:
    """A status's finding on an object as a finding of `doctor`."""
    return Found(f"{full_name(body)}: {one.reason}: {one.message}. {one.means}".rstrip(), one.next)


def prometheus(look: Look) -> Iterator[Found]:
    """Yield findings on whether the operator gets answers of Prometheus, and where it reads the pods itself, why; last,
    the address that it found itself."""
    yield from findings_with(look, PROMETHEUS)
    for body in look.objects:
        message = str(condition(body, ConditionType.METRICS_AVAILABLE).get("message", ""))
        if _BY_ITSELF in message:
            yield Found(
                f"{full_name(body)}: the operator reads the pods itself: {message.partition(_BY_ITSELF)[2]}", "", GOOD
            )
    yield from _found_address(look)


def _found_address(look: Look) -> Iterator[Found]:
    """Yield which Prometheus an operator finds that has no address of one: its next start may find others."""
    from speculative_operator.shell.monitors import address_of

    named = ("PROMETHEUS_URL", "PROMETHEUS_TOKEN_FILE", "PROMETHEUS_BASIC_AUTH_FOLDER", "PROMETHEUS_CERTIFICATE_FOLDER")
    told = [settings_of(one["spec"]["template"]["spec"]) for one in look.operators]
    servers = servers_of(look) if any(not any(one.get(name) for name in named) for one in told) else ()
    if servers:
        found = address_of(servers)
        if found.fault:
            yield Found(f"no address of a Prometheus is set, and {found.fault}", "helm upgrade with prometheus.url")
        else:
            message = f"the operator finds {found.url} by itself; at a restart it would find what there is then"
            yield Found(message, f"to keep it, helm upgrade with prometheus.url={found.url}", GOOD)


def freshness(look: Look) -> Iterator[Found]:
    """Yield objects of which the operator has no figures of the last minute, though it says that there are some."""
    yield from findings_with(look, FRESHNESS)
    known, running = _objects_of(look, "object_info"), _objects_of(look, "object_running_requests")
    for body in look.objects:
        found = condition(body, ConditionType.METRICS_AVAILABLE)
        if found.get("status") == "True" and full_name(body) in known - running:
            message = f"{full_name(body)}: no figures of the last minute of every pod; {found.get('message', '')}"
            yield Found(message, "speculative doctor again in a minute; then look at the scrape job's targets")


def _objects_of(look: Look, metric: str) -> set[str]:
    """Full names of the objects that a metric of the operator is about."""
    return {f"{of.get('namespace')}/{of.get('name')}" for of in map(dict, look.figures.get(metric, {}))}


def tables(look: Look) -> Iterator[Found]:
    """Yield pods that the operator knows to follow another table than the active one; a difference that it does not
    judge is no fault: a pod without requests reads no table."""
    yield from findings_with(look, TABLES)
    for body in look.objects:
        held = ((body.get("status") or {}).get("engine") or {}).get("tableVersionInPods")
        seen = speculation(body)
        active = seen.get("rowsVersion") or seen.get("tableVersion")
        if held is not None and active is not None and held < active:
            yield Found(
                f"{full_name(body)}: pods last had table {held}, active is {active}; idle pods read none", "", GOOD
            )


def figures(look: Look) -> Iterator[Found]:
    """Yield pods without figures, and whether they export any: if they do, the fault lies with the scraping."""
    for body, one in look.findings():
        if one.reason in FIGURES:
            found = finding_of(body, one)
            yield Found(f"{found.message} {_describe_exports(look, body)}".rstrip(), found.next)


def _describe_exports(look: Look, body: Object) -> str:
    """A sentence on what the first ready pod exports; empty where it cannot be asked."""
    from speculative_operator.engines.exposition import ExpositionError, parse
    from speculative_operator.engines.registry import NAMES
    from speculative_operator.shell.bodies import port_of

    try:
        pod = next((one for one in look.pods_of(body) if condition(one, "Ready").get("status") == "True"), None)
        if pod is None:
            return ""
        path = (pod["metadata"].get("annotations") or {}).get("prometheus.io/path", "metrics")
        page = look.at.page(pod, str(port_of(dict(pod))), path)
        count = len({key.name for key in parse(page, NAMES)})
    except (UnseenError, ExpositionError):
        return ""
    name = pod["metadata"]["name"]
    if count:
        return f"{name} exports {count} of the series itself, so they get lost on the way: scrape job or its labels."
    return f"{name} exports none of the series itself: look at its log and at the engine's arguments."
