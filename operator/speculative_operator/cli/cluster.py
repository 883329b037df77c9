"""SpeculativeDeployments of a cluster, for the commands that read them or annotate one. Only `bench` writes
anything else: its Jobs and their prompts.

The cluster is that of the kubeconfig's current context, as for kubectl, or of `--context`. Used by `get`, `status`,
`explain`, `doctor` and `annotate`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from speculative_operator.cli.commands import CommandError, UnseenError, format_age
from speculative_operator.domain import names
from speculative_operator.domain.reading import seconds_of
from speculative_operator.domain.spec import Mode

Object = Mapping[str, Any]
OLD_SECONDS = 120.0
"""Age of figures from which it is told: the operator brings new ones every half minute while there are requests."""
SECONDS = 10.0
"""Seconds that one request may take."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments by which every command names its cluster."""
    parser.add_argument("-n", "--namespace", metavar="NS", default="", help="namespace (that of the context)")
    parser.add_argument("--context", metavar="C", default="", help="context of the kubeconfig (the current one)")


def add_selector(parser: argparse.ArgumentParser) -> None:
    """Add the argument that chooses objects by their labels."""
    parser.add_argument("-l", "--selector", metavar="LABELS", default="", help="those with these labels, as team=chat")


class Cluster:
    """One cluster. Every method raises CommandError with the API server's message: UnseenError where this user may not
    ask."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from kubernetes import client, config
        from kubernetes.config import ConfigException

        file, settings = os.environ.get("KUBECONFIG") or None, client.Configuration()
        settings.retries = 1  # else a server that is busy is waited for four times as long, also at an interrupt
        try:
            api = config.new_client_from_config(file, arguments.context or None, client_configuration=settings)
            contexts, active = config.list_kube_config_contexts(config_file=file)
        except (ConfigException, OSError, TypeError) as problem:
            raise CommandError(f"no kubeconfig can be used: {problem}", "name one in KUBECONFIG") from None
        self._api, self._core = client.CustomObjectsApi(api), client.CoreV1Api(api)
        self._rights, self._batch = client.AuthorizationV1Api(api), client.BatchV1Api(api)
        named = next((one for one in contexts if one["name"] == arguments.context), active)
        self.namespace: str = arguments.namespace or named["context"].get("namespace") or "default"

    def objects(self, *, everywhere: bool = False, labels: str = "") -> list[Object]:
        """The SpeculativeDeployments of the namespace, or of all namespaces, that a label selector takes."""
        if everywhere:
            found = self.list_objects(names.API_VERSION, names.PLURAL, label_selector=labels)
        else:
            found = self._list(self._api.list_namespaced_custom_object, *self._ours, label_selector=labels)
        return [_without_managers(one) for one in found]

    def object(self, name: str) -> Object:
        """One SpeculativeDeployment of the namespace."""
        return _without_managers(self._call(self._api.get_namespaced_custom_object, *self._ours, name))

    def object_with_notes(self, name: str) -> Object:
        """One SpeculativeDeployment with the operator's notes in its status; without notes where this user may not read
        them."""
        from speculative_operator.reconcile.snapshot import notes

        body = self.object(name)
        try:
            config = self._call(self._core.read_namespaced_config_map, names.notes(name), self.namespace)
        except CommandError:
            return body
        found = notes.read(config, body["metadata"]["uid"])
        return {**body, "status": notes.put_in(body.get("status") or {}, found)}

    def pods(self, name: str) -> list[Object]:
        """Serving pods of an object; an empty list where this user may not list pods."""
        labels = ",".join(f"{key}={value}" for key, value in names.selector(name).items())
        try:
            return self._pods(f"{labels},!{names.LABEL_CANDIDATE}")
        except CommandError:
            return []

    def _pods(self, label: str) -> list[Object]:
        return self._list(self._core.list_namespaced_pod, self.namespace, label_selector=label)

    def annotate(self, name: str, annotation: str, value: str | None) -> None:
        """Set an annotation of an object, or remove it (None)."""
        body = {"metadata": {"annotations": {annotation: value}}}
        self._call(self._api.patch_namespaced_custom_object, *self._ours, name, body)

    def create(self, body: Object) -> None:
        """Create a Job or a ConfigMap."""
        make = self._batch.create_namespaced_job if body["kind"] == "Job" else self._core.create_namespaced_config_map
        self._call(make, self.namespace, dict(body))

    def delete_labelled(self, kind: str, label: str) -> None:
        """Delete Jobs with their pods, or ConfigMaps, that have a label."""
        jobs, maps = self._batch, self._core
        delete = (
            jobs.delete_collection_namespaced_job if kind == "Job" else maps.delete_collection_namespaced_config_map
        )
        self._call(delete, self.namespace, label_selector=label, propagation_policy="Background")

    def delete_job(self, name: str) -> None:
        """Delete a Job with its pods, if it is not gone."""
        self._call(self._batch.delete_namespaced_job, name, self.namespace, missing={}, propagation_policy="Background")

    def jobs(self, label: str) -> list[Object]:
        """Jobs that have a label."""
        return self._list(self._batch.list_namespaced_job, self.namespace, label_selector=label)

    def annotate_job(self, name: str, annotation: str, value: str) -> None:
        """Set an annotation of a Job."""
        body = {"metadata": {"annotations": {annotation: value}}}
        self._call(self._batch.patch_namespaced_job, name, self.namespace, body)

    def pods_of_job(self, name: str) -> list[Object]:
        """Pods of a Job, the newest first."""
        found = self._pods(f"batch.kubernetes.io/job-name={name}")
        return sorted(found, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True)

    def log(self, pod: Object) -> str:
        """Log of a pod's only container."""
        meta = pod["metadata"]
        return str(self._answer(self._core.read_namespaced_pod_log, meta["name"], meta["namespace"]))

    def warnings(self, name: str) -> list[str]:
        """Messages of the warnings on an object of the namespace, the newest last."""
        about = f"involvedObject.name={name},type=Warning"
        found = self._list(self._core.list_namespaced_event, self.namespace, field_selector=about)
        return [str(one.get("message")) for one in sorted(found, key=lambda one: str(one.get("lastTimestamp")))]

    def list_objects(self, api_version: str, plural: str, **selectors: str) -> list[Object]:
        """Objects of a kind in all namespaces; none where there is no such kind. `selectors`: label_selector,
        field_selector."""
        group, _, version = api_version.partition("/")
        return self._list(self._api.list_cluster_custom_object, group, version, plural, missing={}, **selectors)

    def nodes(self) -> list[Object]:
        """All nodes."""
        return self._list(self._core.list_node)

    def every_pod(self, **selectors: str) -> list[Object]:
        """Pods of all namespaces."""
        return self._list(self._core.list_pod_for_all_namespaces, **selectors)

    def page(self, pod: Object, port: str, path: str) -> str:
        """The page that a pod serves on a port, asked through the API server. Raises UnseenError where it cannot be
        asked."""
        try:
            return self._proxied("GET", "pods", pod["metadata"], port, path).decode(errors="replace")
        except CommandError as problem:
            raise UnseenError(problem.problem) from None

    def service_page(self, namespace: str, service: str, path: str, parameters: Mapping[str, str]) -> bytes:
        """What a Service answers, as SCHEME:NAME:PORT, asked through the API server."""
        name, _, port = service.rpartition(":")
        where = {"namespace": namespace, "name": name}
        return self._proxied("GET", "services", where, port, path, query=list(parameters.items()))

    def ask(self, pod: Object, path: str, body: Object | None = None, seconds: float = SECONDS) -> str:
        """What the engine of a pod answers to a GET, or to a POST of `body`, asked through the API server."""
        from speculative_operator.shell.bodies import port_of

        method, port = "POST" if body else "GET", str(port_of(dict(pod)))
        told = self._proxied(method, "pods", pod["metadata"], port, path, body=body, seconds=seconds)
        return told.decode(errors="replace")

    def _proxied(
        self, method: str, kind: str, of: Object, port: str, path: str, *, seconds: float = SECONDS, **what: Any
    ) -> bytes:
        """What a port of a pod or Service answers. `what`: `query` parameters, or a `body`."""
        from kubernetes.client.exceptions import ApiException

        api, headers = self._core.api_client, {"Content-Type": "application/json", "Accept": "*/*"}
        where = f"/api/v1/namespaces/{of['namespace']}/{kind}/{of['name']}:{port}/proxy/{path.lstrip('/')}"
        request = api.param_serialize(
            method, where, query_params=what.get("query"), header_params=headers, body=what.get("body"),
            auth_settings=["BearerToken"],
        )  # fmt: skip

        def send(**_: Any) -> bytes:
            answer = api.call_api(*request, _request_timeout=seconds)
            content = bytes(answer.read())
            if not 200 <= answer.status <= 299:
                raise ApiException(status=answer.status, reason=answer.reason, body=content.decode(errors="replace"))
            return content

        return bytes(self._answer(send))

    def operator_silent(self, now: float) -> float | None:
        """Seconds since an operator of the cluster last renewed its Lease, where that is longer than a Lease may rest;
        None while one does, and where this user may read no Lease."""
        path = "coordination.k8s.io", "v1"
        try:
            ours = f"metadata.name={names.OPERATOR}"
            found = self._list(self._api.list_cluster_custom_object, *path, "leases", field_selector=ours)
        except CommandError:
            try:
                one = self._api.get_namespaced_custom_object
                found = [self._call(one, *path, names.INSTALLED_IN, "leases", names.OPERATOR)]
            except CommandError:
                return None
        over = [late for one in found if (late := _since_renewal(one.get("spec") or {}, now)) is not None]
        return min(over) if over and len(over) == len(found) else None

    def may(self, user: str, namespace: str, verb: str, resource: str, group: str) -> bool:
        """True where `user` may use the verb on the resource in a namespace (empty: in all namespaces)."""
        plural, _, part = resource.partition("/")
        what = {"verb": verb, "group": group, "resource": plural, "subresource": part, "namespace": namespace}
        spec = {"user": user, "resourceAttributes": {key: value for key, value in what.items() if value}}
        try:
            found = self._call(self._rights.create_subject_access_review, {"spec": spec})
        except UnseenError:
            if not namespace:
                raise
            found = self._call(self._rights.create_namespaced_local_subject_access_review, namespace, {"spec": spec})
        return found["status"].get("allowed") is True

    @property
    def _ours(self) -> tuple[str, str, str, str]:
        return names.GROUP, names.VERSION, self.namespace, names.PLURAL

    def _list(self, ask: Callable[..., Any], *what: Any, **more: Any) -> list[Object]:
        return list(self._call(ask, *what, **more).get("items") or ())

    def _call(self, ask: Callable[..., Any], *what: Any, missing: Object | None = None, **more: str) -> Object:
        answer = self._answer(ask, *what, missing=missing, **more)
        if not isinstance(answer, Mapping):
            answer = self._core.api_client.sanitize_for_serialization(answer)
        return answer if isinstance(answer, Mapping) else {}

    def _answer(self, ask: Callable[..., Any], *what: Any, missing: Object | None = None, **more: str) -> Any:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            return ask(*what, _request_timeout=SECONDS, **more)
        except ApiException as problem:
            if problem.status == 404 and missing is not None:
                return missing
            refused = UnseenError if problem.status == 403 else CommandError
            raise refused(message_of(problem), _REMEDY.get(problem.status, "")) from None
        except HTTPError as problem:
            remedy = "look at KUBECONFIG and --context"
            raise CommandError(f"the API server cannot be reached: {problem}", remedy) from None


def _since_renewal(lease: Object, now: float) -> float | None:
    """Seconds since a Lease was renewed, where that is more than twice what it lasts and a minute, by which clocks may
    differ; else None."""
    renewed = seconds_of(str(lease.get("renewTime")))
    if renewed is None:
        return None  # a Lease that was given back has no time, and another operator takes it at once
    return now - renewed if now - renewed > 60.0 + 2.0 * float(lease.get("leaseDurationSeconds") or 0.0) else None


_REMEDY = {
    401: "log in again",
    403: "ask for the role view or edit of the namespace",
    404: "look at the name and at -n; `speculative doctor` tells whether the operator is installed",
}


def _without_managers(body: Object) -> Object:
    """The object without the record of who wrote which field, as kubectl shows it."""
    metadata = {key: value for key, value in (body.get("metadata") or {}).items() if key != "managedFields"}
    return {**body, "metadata": metadata}


def message_of(problem: Any) -> str:
    """The message of the API server about a refused request."""
    try:
        return str(json.loads(problem.body)["message"])
    except (ValueError, KeyError, TypeError):
        return f"{problem.status} {problem.reason}"


def plain(text: str) -> str:
    """`text` without characters that a terminal would obey: pods and servers may say anything."""
    return "".join(one if one.isprintable() or one == "\n" else "?" for one in text)


def condition(body: Object, kind: str) -> Object:
    """One condition of an object; empty where it has none."""
    found: Iterable[Object] = (body.get("status") or {}).get("conditions") or ()
    return next((one for one in found if one.get("type") == kind), {})


def mode(body: Object) -> str:
    """Who chooses K: the mode of the spec, or Paused."""
    if (body["metadata"].get("annotations") or {}).get(names.ANNOTATION_PAUSED) == "true":
        return "Paused"
    return str((body["spec"].get("speculation") or {}).get("mode") or Mode.AUTO)


def ready(body: Object) -> str:
    """Number of ready pods of those wanted, such as `1/2`."""
    status = body.get("status") or {}
    return str(status.get("ready") or f"{status.get('readyReplicas', 0)}/{body['spec'].get('replicas', 1)}")


def number(text: object) -> float | None:
    """A finite number that a status writes as text; None for anything else."""
    try:
        found = float(str(text))
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def speculation(body: Object) -> Object:
    """The part `status.speculation` of an object; empty where it has none."""
    return (body.get("status") or {}).get("speculation") or {}


def age_of(seen: Object, now: float) -> str:
    """How old the figures of a `status.speculation` are, once they are older than the operator needs for new ones."""
    observed = seconds_of(str(seen.get("observedAt")))
    if observed is None or now - observed <= OLD_SECONDS:
        return ""
    return f", {format_age(now - observed)} ago"


def skips(body: Object) -> bool:
    """True where the pods of an object skip their speculator while K stays 0."""
    return speculation(body).get("skips") is True and not speculation(body).get("speculatorRemoved")
