"""The operator with real Jobs and pods: what runs keeps its versions while the hub is away; few Jobs read at once."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.cluster.hublab import DRAFT, MODELS, OPERATOR_IMAGE, TARGET, HubLab, folder_of_models
from tests.cluster.operatorlab import OperatorLab

from devcluster import Cluster
from speculative_operator.domain import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

Json = dict[str, Any]
LOOKING = {"job_image": OPERATOR_IMAGE, "check_pairs": "true"}
AWAY = {"path": "tiny/", "status": 503}
LONG_AGO = {"status": {"pair": {"failure": {"time": "2000-01-01T00:00:00Z"}}}}
JOBS_AT_A_TIME = 2


@pytest.fixture(scope="module")
def installed(node_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> OperatorLab:
    lab = OperatorLab(node_cluster, tmp_path_factory.mktemp("operator"))
    lab.install()
    return lab


@pytest.fixture
def hub(installed: OperatorLab) -> Iterator[HubLab]:
    """A namespace with a hub that serves the pair tiny/target and tiny/draft."""
    with folder_of_models(f"hub-operator-{os.getpid()}") as folder:
        for name in (TARGET, DRAFT):
            shutil.copytree(MODELS / name, folder / "tiny" / name)
        installed.enter()
        yield HubLab(installed, "hub", folder)
        installed.cluster.kubectl("delete", "namespace", installed.namespace, "--wait=false")


def pair(hub: HubLab, name: str, draft: str = DRAFT, **changes: Any) -> Json:
    return hub.body(name, f"hf://tiny/{TARGET}", f"hf://tiny/{draft}", **changes)


def apply(hub: HubLab, *bodies: Json) -> None:
    hub.lab.apply({"apiVersion": "v1", "kind": "List", "items": bodies})


def compared(hub: HubLab, name: str, reason: str) -> None:
    """Wait until PairCompatible of an object has a reason."""
    hub.wait(f"{name}: {reason}", lambda: hub.lab.condition("PairCompatible", name).get("reason") == reason)


def test_pods_keep_their_versions_while_the_hub_is_away(hub: HubLab) -> None:
    lab, both = hub.lab, ("asked", "wiped")

    def serving() -> Json:
        for name in both:
            hub.ready(name)
        return {name: hub.serving(name) for name in both}

    def commit() -> str:
        return str(hub.status("asked")["pair"]["speculatorPin"]["resolved"])

    with lab.operator(**LOOKING):
        apply(hub, *(pair(hub, name) for name in both))
        before, pinned = serving(), commit()
        assert all(pinned in args for pods in before.values() for _, args in pods.values())

        hub.order(AWAY)
        (hub.folder / "tiny" / DRAFT / "README.md").write_text("another commit")
        lab.cluster.kubectl("annotate", "specdep", "asked", "-n", lab.namespace, f"{names.ANNOTATION_REPIN}=1")
        wipe = json.dumps([{"op": "remove", "path": "/status"}])
        at = ("specdep", "wiped", "-n", lab.namespace, "--subresource=status")
        lab.cluster.kubectl("patch", *at, "--type=json", "-p", wipe)
        hub.wait("what was asked for is told of", lambda: "VersionsUnread" in hub.warned("asked"))
        compared(hub, "asked", "PairMatches")
        compared(hub, "wiped", "PairUnread")
        assert serving() == before

    with lab.operator(**LOOKING | {"check_pairs": "false"}):
        for name in both:
            compared(hub, name, "NotChecked")
        assert serving() == before

    # Where nobody waits it is tried again after an hour. Written by hand, it is also a status with two writers.
    lab.patch("specdep", "wiped", LONG_AGO, "--subresource=status")
    hub.order()
    with lab.operator(**LOOKING):
        for name in both:
            compared(hub, name, "PairMatches")
        hub.wait("what was asked for is followed", lambda: commit() != pinned)
        new = commit()
        hub.wait("by pods", lambda: [new in args for _, args in hub.serving("asked").values()] == [True])
        assert serving()["wiped"] == before["wiped"], "nobody asked for another version"
        hub.wait("nothing is to be told", lambda: "VersionsUnread" not in hub.warned("asked"))


def test_notes_outlive_a_restart_and_go_with_the_object(hub: HubLab) -> None:
    lab = hub.lab

    def notes() -> Json:
        return dict(lab.children("noted").get(("ConfigMap", "noted-notes"), {}))

    def facts() -> Any:
        return json.loads(notes()["data"]["notes.json"])["facts"]

    with lab.operator(**LOOKING):
        apply(hub, pair(hub, "noted"))
        hub.ready("noted")
        kept, status, pods = facts(), hub.status("noted"), hub.serving("noted")
        assert {one["manager"] for one in notes()["metadata"]["managedFields"]} == {names.FIELD_MANAGER}
    assert kept
    assert "memory" not in status
    assert "facts" not in status["pair"]
    with watched(lab) as told, lab.operator(**LOOKING):
        lab.cluster.kubectl("annotate", "specdep", "noted", "-n", lab.namespace, f"{names.ANNOTATION_PAUSED}=true")
        hub.wait("it is looked at", lambda: lab.condition("Progressing", "noted").get("reason") == "Paused")
        assert max(unfinished(told()), default=0) == 0, "the pair is not read again"
        assert hub.serving("noted") == pods
        assert facts() == kept
        lab.delete("specdep", "noted", "--wait=false")
        hub.wait("the notes are gone", lambda: not notes())


@contextmanager
def watched(lab: OperatorLab) -> Iterator[Callable[[], list[Json]]]:
    """What the API server tells of Jobs that read, in its order."""
    argv = ["get", "jobs", "-n", lab.namespace, "-l", f"{names.LABEL_JOB}=inspect", "-o", "json"]
    out = lab.directory / f"jobs-{lab.namespace}"
    decoder = json.JSONDecoder()

    def told() -> list[Json]:
        text, found = out.read_text().lstrip(), []
        with contextlib.suppress(json.JSONDecodeError):  # the last one may be half written
            while text:
                event, end = decoder.raw_decode(text)
                found.append(event)
                text = text[end:].lstrip()
        return found

    with out.open("w") as file:
        command = [str(lab.cluster.binaries.kubectl), *argv, "--watch", "--output-watch-events"]
        environment = {**os.environ, **lab.cluster.environment()}
        running = subprocess.Popen(command, env=environment, stdout=file, stdin=subprocess.DEVNULL)
        try:
            yield told
        finally:
            running.kill()
            running.wait()


def unfinished(events: list[Json]) -> list[int]:
    """How many Jobs had not ended, after each event."""
    jobs: set[str] = set()
    counts = []
    for event in events:
        job = event["object"]
        ends = {one["type"] for one in job["status"].get("conditions") or () if one["status"] == "True"}
        over = event["type"] == "DELETED" or ends & {"Complete", "Failed"}
        jobs = jobs - {job["metadata"]["uid"]} if over else jobs | {job["metadata"]["uid"]}
        counts.append(len(jobs))
    return counts


def test_few_jobs_read_at_a_time_also_after_a_restart(hub: HubLab) -> None:
    lab = hub.lab
    drafts = [f"draft-{number}" for number in range(5)]
    for name in drafts:
        shutil.copytree(MODELS / DRAFT, hub.folder / "tiny" / name)
    settings = {**LOOKING, "inspect_jobs": str(JOBS_AT_A_TIME)}
    # Of an image that is nowhere: no engine is needed here.
    bodies = [pair(hub, name, name, engine={"version": "0.32.0", "image": "nowhere:1"}) for name in drafts]
    with watched(lab) as told:
        first = lab.start(**settings)
        hub.wait("the operator is ready", lambda: first.answers("/readyz")[0] == 200)
        apply(hub, *bodies)
        hub.wait("Jobs", lambda: lab.listed("jobs"))
        first.kill()
        with lab.operator(**settings):
            for name in drafts:
                compared(hub, name, "PairMatches")
        counts = unfinished(told())
    assert max(counts) == JOBS_AT_A_TIME, counts
    assert len({event["object"]["metadata"]["uid"] for event in told()}) == len(drafts), "each is read once"
