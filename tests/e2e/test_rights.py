"""Objects of every target live their whole lives under the rights of the chart's roles: the API server's audit log has
no denied request and no verb that nothing used. Other writers never stop beside them, and at rest the operator writes
nothing.

Controllers of KServe and LWS are stand-ins (tests/kserve.py, tests/kserve_llm.py, tests/lws.py); their kinds are real.
The whole cluster is served first, then one namespace. A right that this life cannot use stands in ELSEWHERE.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Event, Thread
from typing import Any

import pytest
from kubernetes import client, config
from tests import definitions, gateway, kserve, kserve_llm, lws
from tests.e2e import audit, taken
from tests.e2e.conftest import LONG, NAMESPACE, Stage, until
from tests.e2e.cowriter import CoWriter

from demo import hub, pairs, scene
from devcluster.cluster import Cluster
from generate import rbac
from speculative_operator.domain import names

Json = dict[str, Any]
REST = float(os.environ.get("SPECULATIVE_REST_SECONDS", "60"))
"""For how long nothing may be written at rest."""
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2400 + REST)]

CHART = scene.ROOT / "charts" / "speculative-operator"
RELEASE, SYSTEM = "speculative-operator", scene.OPERATOR_NAMESPACE
VALUES = "image.repository=speculative-operator,tickSeconds=6,settings.RESYNC_SECONDS=30"
WHOLE = "whole"
TARGETS = {"isvc": "InferenceService", "llm": "LLMInferenceService", "group": "LeaderWorkerSet"}
"""Further objects of this life, by name."""
SLOW = {"path": "safetensors", "slow_to": 60_000}
"""Of the hub: so slow that progress is asked for."""
STATIC = {"mode": "Static", "maxSpeculativeTokens": 5, "schedule": [[1, 4, 5], [5, 8, 2]]}

CANDIDATES = "speculator.measure, which takes minutes: tests/e2e/test_measuring.py uses it"
TRAININGS = "no SpeculatorTraining lives here: tests/cluster/test_training.py has one under the same roles"
ELSEWHERE: dict[audit.Right, str] = {
    (names.GROUP, f"{names.TRAINING_PLURAL}/status", "patch"): TRAININGS,
    (names.GROUP, f"{names.TRAINING_PLURAL}/finalizers", "update"): TRAININGS,
    (names.GROUP, names.PLURAL, "create"): CANDIDATES,
    (names.GROUP, names.PLURAL, "delete"): CANDIDATES,
    (names.GROUP, f"{names.PLURAL}/finalizers", "update"): "no request: OwnerReferencesPermissionEnforcement, which is "
    "on here, asks whether the operator may before it lets a child block its owner's deletion",
}
BEFORE_COLLECTING: frozenset[audit.Right] = frozenset(
    (("apps", "replicasets", "list"), ("apps", "statefulsets", "list"))
)
"""Asked for before a payload is deleted, at the first resync without an object that needs it: in this life or not."""


@dataclass(frozen=True)
class Life:
    """What the operator asked of the API server from its start on, and of that at rest; and what others wrote."""

    asked: list[Json]
    at_rest: list[Json]
    beside: list[Json]
    """What it asked from that rest on, while others write."""
    written: Counter[str]
    """By others at rest, by kind."""
    filled_in: int
    """Fields that webhooks put in at rest, because they were gone."""
    taken_away: list[str]
    """What others had written and was gone."""


@pytest.fixture(scope="module")
def stage(enclosures: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A cluster with every optional kind and a hub, without the operator."""
    folder = scene.ROOT / "build" / f"hub-rights-{os.getpid()}"
    options = replace(
        scene.options(f"rights-{os.getpid()}", hub.images()),
        accelerators={"nvidia.com/gpu": 16},
        node_labels={"accelerator": "h100"},
        api_server_flags={"enable-admission-plugins": "OwnerReferencesPermissionEnforcement"},
    )
    with Cluster.start(options) as cluster:
        if cluster.enclosure is None:
            pytest.skip("the audit log of an existing cluster is not ours")
        kserve.install(cluster)
        lws.install(cluster)
        gateway.install(cluster)
        definitions.install(cluster, [*definitions.read("monitoring"), definitions.PROMETHEUS, definitions.AGENT])
        cluster.kubectl("create", "namespace", NAMESPACE)
        try:
            hub.serve(cluster, folder)
            yield Stage(cluster, tmp_path_factory.mktemp("stage"))
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def wide(stage: Stage) -> Life:
    """The whole cluster is served."""
    since = stage.cluster.audit_log.stat().st_size
    installed(stage, "install", "--create-namespace", "--set", VALUES)
    until(partial(may_own, stage), LONG)
    take_names(stage)
    with writers(stage.cluster) as (controllers, others):
        arrive(stage, SLOW)
        change_tables(stage)
        repair(stage)
        settle(stage)
        began, written, filled_in = stage.cluster.audit_log.stat().st_size, others.written.copy(), filled(controllers)
        time.sleep(REST)
        at_rest = audit.requests(stage.cluster.audit_log, began)
        written, filled_in = others.written.copy() - written, filled(controllers) - filled_in
        roll(stage)
        take_back(stage)
        leave(stage)
        asked, beside = (audit.requests(stage.cluster.audit_log, start) for start in (since, began))
        return Life(asked, at_rest, beside, written, filled_in, others.taken_away)


@pytest.fixture(scope="module")
def narrow(stage: Stage, wide: Life) -> Life:
    """One namespace is served: the roles hold there alone."""
    before, since = operators(stage), stage.cluster.audit_log.stat().st_size
    installed(stage, "upgrade", "--reset-then-reuse-values", "--set", f"watchNamespaces={{{NAMESPACE}}}")
    until(lambda: not before & operators(stage), LONG)
    with writers(stage.cluster) as (_, others):
        arrive(stage)
        change_tables(stage)
        take_back(stage)
        leave(stage)
    # The one before is still there when its roles are gone.
    asked = [one for one in audit.requests(stage.cluster.audit_log, since) if audit.pod_of(one) not in before]
    return Life(asked, [], [], others.written, 0, others.taken_away)


def test_nothing_is_denied(wide: Life) -> None:
    assert audit.denied(wide.asked) == []


def test_no_right_is_unused(wide: Life) -> None:
    granted = audit.rights_of((*rbac.OPERATOR, *rbac.leader(RELEASE), *rbac.CLUSTER))
    unused = granted - audit.used(wide.asked)
    assert sorted(unused - ELSEWHERE.keys() - BEFORE_COLLECTING) == []
    assert ELSEWHERE.keys() <= unused, "used here after all"


def test_nothing_is_written_at_rest_beside_writers_that_never_stop(wide: Life) -> None:
    print(f"in {REST:.0f} s of others' writes: {sum(wide.written.values())} {dict(wide.written)}")
    assert audit.writes(wide.at_rest) == []
    assert {"SpeculativeDeployment", "Deployment", "InferenceService/status", "Pod"} <= wide.written.keys()


def test_what_others_write_is_left_to_them(wide: Life) -> None:
    assert wide.taken_away == []
    assert wide.filled_in == 0, "the operator and the webhooks write against each other"


def test_no_conflict_with_another_writer_is_lost(wide: Life) -> None:
    last = {one["requestURI"]: one["responseStatus"].get("code") for one in wide.beside if audit.writes([one])}
    assert [uri for uri, code in last.items() if code == 409] == []


def test_nothing_is_denied_where_one_namespace_is_served(narrow: Life) -> None:
    assert audit.denied(narrow.asked) == []
    everywhere = {one["requestURI"] for one in narrow.asked if not one.get("objectRef", {}).get("namespace")}
    assert not [one for one in everywhere if "?" in one], "it asks for nothing of the whole cluster"


# -- the operator, and the others


def installed(stage: Stage, verb: str, *arguments: str) -> None:
    """The operator as a user installs it."""
    stage.cluster.helm(verb, RELEASE, str(CHART), "--namespace", SYSTEM, *arguments)
    stage.cluster.kubectl("rollout", "status", "-n", SYSTEM, scene.OPERATOR, f"--timeout={LONG:.0f}s")


def operators(stage: Stage) -> set[str]:
    """Pods of the operator."""
    found = stage.cluster.kubectl("get", "pods", "-n", SYSTEM, "-o", "name").stdout
    return {one.removeprefix("pod/") for one in found.split()}


def may_own(stage: Stage) -> bool:
    """Whether the operator may let a child block its owner's deletion. The API server asks for the kinds that there are
    every 30 s, and until then OwnerReferencesPermissionEnforcement knows nothing of ours."""
    owner = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": "a", "uid": "u", "controller": True}
    meta: Json = {"name": "a", "labels": {names.LABEL_MANAGED_BY: names.OPERATOR}}
    meta["ownerReferences"] = [{**owner, "blockOwnerDeletion": True}]
    body = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    how = ("--server-side", "--dry-run=server", "--as", audit.USER, "-n", NAMESPACE)
    return stage.cluster.kubectl("apply", *how, "-f", "-", input=body, check=False).returncode == 0


@contextmanager
def writers(cluster: Cluster) -> Iterator[tuple[list[kserve.Controller], CoWriter]]:
    """KServe and LWS, and those who write beside them."""
    loaded, stop = client.Configuration(), Event()
    load: Any = config.load_kube_config
    load(str(cluster.kubeconfig), client_configuration=loaded)
    with client.ApiClient(loaded) as api:
        controllers = [kserve.Controller(api, NAMESPACE), kserve_llm.Controller(api, NAMESPACE)]
        groups, others = lws.Controller(api, NAMESPACE), CoWriter(api, NAMESPACE)
        runs: list[Callable[[Event], None]] = [*(one.run for one in controllers), groups.run, others.run]
        threads = [Thread(target=run, args=(stop,), daemon=True) for run in runs]
        for thread in threads:
            thread.start()
        try:
            yield controllers, others
            assert all(thread.is_alive() for thread in threads), "a stand-in has failed; see its exception above"
        finally:
            stop.set()
            for thread in threads:
                thread.join(60.0)


def filled(controllers: list[kserve.Controller]) -> int:
    return sum(one.filled_in for one in controllers)


# -- the life


def arrive(stage: Stage, *faults: Json) -> None:
    """All objects come, one by way of a hub into a claim, and serve."""
    stage.order(*faults)
    for body in (read(WHOLE), *map(of_target, TARGETS)):
        stage.apply(body)
    if faults:
        until(lambda: "%" in str((stage.get("specdep", WHOLE).get("status") or {}).get("weights")), LONG)
        stage.order()
    for name in (WHOLE, *TARGETS):
        scene.wait_ready(stage.cluster, name, LONG)


def change_tables(stage: Stage) -> None:
    """Another K, which reaches the pods without a rollout."""
    before = pods(stage)
    versions = {name: tables(stage, name) for name in (WHOLE, *TARGETS)}
    for name in (WHOLE, *TARGETS):
        edit(stage, name, {"speculation": {"schedule": [[1, 2, 5], [3, 8, 2]]}})
    for name, version in versions.items():
        until(lambda name=name, version=version: tables(stage, name) > version, LONG)  # type: ignore[misc]
    assert pods(stage) == before


def take_names(stage: Stage) -> None:
    """Objects whose children's names are somebody else's: each is read before it is left alone."""
    deployed, kept = unread("taken", replicas=2, route={"gateway": {"name": "public"}}), read("kept")
    targets = ("InferenceService", "InferenceService", "LLMInferenceService", "LeaderWorkerSet")
    served = ("runtime", "service", "llm-service", "set")
    ours = [deployed, *(unread(name, target=target) for name, target in zip(served, targets, strict=True))]
    ours[-1]["spec"] |= {"nodes": 2, "verifier": {**ours[-1]["spec"]["verifier"], "tensorParallelSize": 2}}
    theirs = [*taken.of_deployment(deployed), *taken.of_pair(kept), *taken.of_targets(*served)]
    for one in (*theirs, kept, *ours):
        stage.apply(one)
    for body in ours:
        until(partial(conflicts, stage, body["metadata"]["name"]), LONG)
    until(lambda: "belong" in stage.condition("kept", "PairCompatible").get("message", ""), LONG)
    stage.cluster.kubectl("delete", "specdep", "--all", "-n", NAMESPACE)
    for one in theirs:
        stage.cluster.kubectl("delete", one["kind"], one["metadata"]["name"], "-n", NAMESPACE)


def conflicts(stage: Stage, name: str) -> bool:
    return bool(stage.condition(name, "Ready").get("reason") == "NameConflict")


def repair(stage: Stage) -> None:
    """A child that somebody deletes comes back."""
    stage.cluster.kubectl("delete", "service", WHOLE, "-n", NAMESPACE)
    until(lambda: stage.get("service", WHOLE), LONG)


def settle(stage: Stage) -> None:
    """Wait until nothing was written for a while."""
    log, ends = stage.cluster.audit_log, time.monotonic() + LONG
    since, quiet = log.stat().st_size, time.monotonic()
    while time.monotonic() < quiet + 20.0:
        time.sleep(1.0)
        found = audit.writes(audit.requests(log, since))
        if found:
            since, quiet = log.stat().st_size, time.monotonic()
        assert time.monotonic() < ends, f"never at rest: {found}"


def roll(stage: Stage) -> None:
    """An edit for which pods are replaced arrives, though others write in between."""
    before = pods(stage)
    for name in (WHOLE, *TARGETS):
        edit(stage, name, {"verifier": {"maxModelLen": 1024}})
    for name in (WHOLE, *TARGETS):
        until(partial(serves_edited, stage, name), LONG)
    assert not pods(stage) & before


def serves_edited(stage: Stage, name: str) -> bool:
    """All pods of the object, of which there is one, have what the edit says, and are ready."""
    found = stage.pods(name)
    arguments = [" ".join(pod["spec"]["containers"][0]["args"]) for pod in found]
    edited = all(re.search(r"--max-model-len[= ]1024\b", one) for one in arguments)
    return bool(found) and edited and all(map(scene.is_ready, found))


def take_back(stage: Stage) -> None:
    """What an edit makes needless goes."""
    edit(stage, WHOLE, {"speculation": {"mode": "Disabled", "schedule": None}, "replicas": 1, "route": None})
    until(lambda: not stage.table_config(WHOLE), LONG)
    until(lambda: not stage.get("poddisruptionbudget", WHOLE) and not stage.get("httproute", WHOLE), LONG)
    scene.wait_ready(stage.cluster, WHOLE, LONG)


def leave(stage: Stage) -> None:
    """All objects go, and with them what was made for them."""
    stage.cluster.kubectl("delete", "specdep", "--all", "-n", NAMESPACE)
    until(lambda: not stage.items("pods", names.LABEL_DEPLOYMENT), LONG)
    for kind in ("deployment", "service", "configmap", *kserve_kinds()):
        until(lambda kind=kind: not stage.items(kind, names.LABEL_DEPLOYMENT), LONG)  # type: ignore[misc]


def kserve_kinds() -> tuple[str, ...]:
    return "inferenceservice", "servingruntime", "llminferenceservice", "leaderworkerset"


def pods(stage: Stage) -> set[str]:
    """Serving pods of all objects."""
    return {pod["metadata"]["uid"] for name in (WHOLE, *TARGETS) for pod in stage.pods(name)}


def tables(stage: Stage, name: str) -> int:
    """Version of the table that the pods have."""
    status = stage.get("specdep", name).get("status") or {}
    return int((status.get("engine") or {}).get("tableVersionInPods") or 0)


def edit(stage: Stage, name: str, spec: Json) -> None:
    patch = json.dumps({"spec": spec})
    stage.cluster.kubectl("patch", "specdep", name, "-n", NAMESPACE, "--type=merge", "-p", patch)


# -- the objects


def read(name: str) -> Json:
    """Two pods whose pair is read, and whose weights come into a claim."""
    body = pairs.manifest(name, f"hf://tiny/{hub.TARGET}", hub.DRAFT)
    body["spec"]["speculation"] = dict(STATIC)
    body["spec"]["weights"]["cache"]["claimName"] = name
    body["spec"] |= {"route": {"gateway": {"name": "public"}}, "replicas": 2}
    return body


def unread(name: str, **changes: Any) -> Json:
    """An object whose pair nobody looks at."""
    body = copy.deepcopy(scene.variants()[0].manifest)
    body["metadata"] = {"name": name, "namespace": NAMESPACE}
    body["spec"] |= {"speculation": dict(STATIC), **changes}
    return body


def of_target(name: str) -> Json:
    target = TARGETS[name]
    if target == "LeaderWorkerSet":
        body = unread(name, target=target, nodes=2)
        body["spec"]["verifier"]["tensorParallelSize"] = 2
        return body
    platform = {"hardwareProfile": {"name": "gpu"}, "connection": "registry", "exposed": True}
    return unread(name, target=target, inferenceService=platform)
