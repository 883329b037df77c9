"""Faults of what the operator asks: the API server and Prometheus, each behind a proxy that the operator alone uses."""

from __future__ import annotations

import itertools
import random
import shutil

from aiohttp import web

from chaos import lies
from chaos.faults.fault import Fault
from chaos.ground import AUTO, Ground, manifest
from chaos.lies import Lie
from chaos.proxy import Behaviour, Proxy
from demo.scene import NAMESPACE, SceneError, until

LATE, NEW, VERSIONS = "fault-late", "fault-new", "many-versions"
RESTORED_SECONDS = 30.0
"""Within which an object is reconciled that is made once etcd was restored."""
PROMETHEUS_BACK = "Tuning goes on once Prometheus answers."


class _ApiServer(Fault):
    """One of the API server, with an edit and a lost child for the operator to see to when it can."""

    def inject(self, ground: Ground) -> None:
        self.fail(ground)
        ground.edit_cost()
        ground.lose_policy()
        ground.edit_deployment()

    def fail(self, ground: Ground) -> None:
        raise NotImplementedError

    def heal(self, ground: Ground) -> None:
        ground.api_proxy.restore()


class ApiServerGone(_ApiServer):
    name = "API server gone"
    does = "Connections are cut and new ones refused, for longer than the operator's Lease lasts."
    remedy = "Pods keep their table; edits wait until it is back."
    seconds = 25.0

    def fail(self, ground: Ground) -> None:
        ground.api_proxy.refuse()


class ApiServerHanging(_ApiServer):
    name = "API server hanging"
    does = "Requests are never answered and watches fall silent, for longer than the Lease lasts."
    remedy = "The same; the operator writes nothing until it has its Lease again."
    seconds = 25.0

    def fail(self, ground: Ground) -> None:
        ground.api_proxy.hang()


class ApiServerThrottling(_ApiServer):
    name = "API server throttling"
    does = "Seven of ten requests get 429 with Retry-After, some 500, as under priority and fairness at the limit."
    remedy = "Changes take longer. Look for who asks so much."
    seconds = 20.0

    def fail(self, ground: Ground) -> None:
        ground.api_proxy.behaviour = _throttling(random.Random(ground.rng.random()))  # noqa: S311  a die


def _throttling(rng: random.Random) -> Behaviour:
    async def behave(proxy: Proxy, request: web.Request) -> web.StreamResponse:
        drawn = rng.random()
        if drawn < 0.7:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429, "message": "too many"}
            return web.json_response(status, status=429, headers={"Retry-After": "1"})
        if drawn < 0.8:
            return web.Response(status=500, text="internal error")
        return await proxy.forward(request)

    return behave


class EtcdRestored(Fault):
    """The programs of the control plane are restarted with it, as a restore demands; nodes are not."""

    name = "etcd restored"
    does = (
        "etcd gets back an earlier copy of its data: an edit and an object of since then are gone, and every version is"
        " lower than those that are known."
    )
    remedy = (
        "Nothing: the operator forgets what it knew and lists anew. What came after the copy is to be applied again."
    )
    seconds = 5.0

    def prepare(self, ground: Ground) -> None:
        data, self._copy = ground.cluster.state_dir / "etcd", ground.folder / "etcd-earlier"
        with ground.cluster.without("kube-apiserver", "etcd"):
            shutil.copytree(data, self._copy)

    def inject(self, ground: Ground) -> None:
        starts = ground.operator.starts
        ground.edit_cost()
        ground.objects.apply(manifest(LATE, replicas=0))
        until(f"{LATE} has its Deployment", lambda: ground.objects.get("deployments", LATE, NAMESPACE), 60.0)
        self._pass_versions(ground)
        data = ground.cluster.state_dir / "etcd"
        with ground.cluster.without("kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler"):
            shutil.rmtree(data)
            shutil.move(self._copy, data)
        ground.objects.apply(manifest(NEW, replicas=0))
        until(f"{NEW} has its Deployment", lambda: ground.objects.get("deployments", NEW, NAMESPACE), RESTORED_SECONDS)
        if ground.operator.starts != starts:
            raise SceneError("the operator ended")
        if ground.objects.get("deployments", LATE, NAMESPACE):
            raise SceneError(f"{LATE} does not exist any more, and the operator made its Deployment again")

    def _pass_versions(self, ground: Ground) -> None:
        """Many writes of others: versions get higher by more than a restart of the control plane brings."""
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": VERSIONS, "namespace": "neighbour"}}
        for number in range(1000):
            ground.objects.apply({**body, "data": {"number": str(number)}})

    def heal(self, ground: Ground) -> None:
        ground.remove(NEW)

    def clear(self, ground: Ground) -> None:
        ground.objects.delete("configmaps", VERSIONS, "neighbour")


class PrometheusGone(Fault):
    name = "Prometheus gone"
    does = "Its port is closed."
    remedy = f"`MetricsAvailable` is False with `PrometheusError`. {PROMETHEUS_BACK}"

    def inject(self, ground: Ground) -> None:
        ground.prometheus_proxy.refuse()

    def heal(self, ground: Ground) -> None:
        ground.prometheus_proxy.restore()


class PrometheusHanging(PrometheusGone):
    name = "Prometheus hanging"
    does = "It takes queries and never answers."
    remedy = f"`MetricsAvailable` is False with `PrometheusTimeout`. {PROMETHEUS_BACK}"

    def inject(self, ground: Ground) -> None:
        ground.prometheus_proxy.hang()


class PrometheusLying(PrometheusGone):
    name = "Prometheus lying"
    does = (
        "Every answer is another lie: NaN and negative counters, drafts never accepted, an engine twenty times slower"
        " or faster, counters that fall, half of the series, samples of next week."
    )
    remedy = "`MetricsAvailable` says what is absurd. What is plausible is believed, within prepared K."
    seconds = 30.0

    def inject(self, ground: Ground) -> None:
        turns = itertools.cycle(ground.rng.sample(lies.ALL, len(lies.ALL)))
        ground.prometheus_proxy.behaviour = lying(lambda matrix: next(turns)(matrix))  # noqa: PLW0108  another lie each time


class PrometheusBelievable(PrometheusGone):
    name = "Prometheus lying believably"
    does = "It says all along that no draft is accepted and that every step takes twenty times as long."
    remedy = "K may fall to 0, and comes back with the truth."
    seconds = 40.0

    def inject(self, ground: Ground) -> None:
        ground.prometheus_proxy.behaviour = lying(useless_and_slow)


def useless_and_slow(matrix: lies.Matrix) -> lies.Matrix:
    """Two lies that agree with each other."""
    return lies.slow_engine(lies.useless_drafts(matrix))


class PodLying(PrometheusGone):
    name = "one pod lying"
    does = "The series of one pod of two say that no draft was accepted and that each step took long."
    remedy = "No pod is restarted for it. Compare the pods in Grafana, and delete the one that is ill."
    seconds = 30.0

    def inject(self, ground: Ground) -> None:
        pod = ground.rng.choice(ground.pods(AUTO))
        ground.prometheus_proxy.behaviour = lying(lies.about_pod(pod, useless_and_slow))


def lying(lie: Lie) -> Behaviour:
    async def behave(proxy: Proxy, request: web.Request) -> web.StreamResponse:
        async with proxy.ask(request, **{"Accept-Encoding": "identity"}) as answer:
            body = await answer.read()
            kind = answer.headers.get("Content-Type", "")
            return web.Response(status=answer.status, body=lies.answer_with(lie, body), headers={"Content-Type": kind})

    return behave


class PrometheusHuge(PrometheusGone):
    name = "Prometheus huge"
    does = "Every answer is well formed and has no end."
    remedy = f"`MetricsAvailable` is False; the message names the size or the time. {PROMETHEUS_BACK}"
    seconds = 20.0

    def inject(self, ground: Ground) -> None:
        ground.prometheus_proxy.behaviour = _endless


async def _endless(_: Proxy, request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    for piece in lies.endless():
        await response.write(piece)
    return response
