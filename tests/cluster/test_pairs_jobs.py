"""Jobs and claims on a cluster with a node, by hand: applied twice, heard while they run and at their end, and what
they leave in a claim mounted where an engine would find it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.cluster.podlab import PodLab, container, shell

from speculative_operator.domain import names
from speculative_operator.domain.jobs import JobSeen, Phase, Progress, encode, progress_line
from speculative_operator.settings import Settings
from speculative_operator.shell.cache import Cache, Snapshot
from speculative_operator.shell.jobs import Jobs
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.resources import CHILD_SELECTOR, CLAIM, JOB, POD
from speculative_operator.shell.telemetry import Telemetry

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
SOME = Progress(bytes=10, total=40, rate=5.0, file="model.safetensors")
FACTS = {"verifier": {"config": {"vocab_size": 2048}}}

FETCH = f"""
import os, pathlib, time
cache = pathlib.Path("/cache")
part = cache / "partial" / "abc"
part.mkdir(parents=True)
(part / "config.json").write_text("{{}}")
print({progress_line(SOME)!r}, flush=True)
while not (cache / "go").exists():
    time.sleep(0.1)
(cache / "models").mkdir()
(part / "config.json").chmod(0o444)
os.rename(part, cache / "models" / "abc")
open("/dev/termination-log", "w").write({encode(FACTS)!r})
"""
REFUSED = {"error": {"reason": "SourceForbidden", "message": "403"}}
FAIL = f"""
import sys
open("/dev/termination-log", "w").write({encode(REFUSED)!r})
sys.exit(1)
"""


class JobLab:
    """The shell's client, cache and looks at Jobs, on a namespace of a cluster."""

    def __init__(self, lab: PodLab, kube: Kube) -> None:
        self.lab = lab
        self.kube = kube
        self.jobs = Jobs(kube, time.monotonic)
        owner = {"name": "gemma", "namespace": lab.namespace, "uid": "o", "resourceVersion": "1"}
        self.owner: Json = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": owner}

    async def snapshot(self) -> Snapshot:
        """As the operator would have it after a listing. Jobs get their owner here: the cluster has no such object, and
        would collect what it owns."""
        cache = Cache()
        cache.put(self.owner)
        for resource in (CLAIM, JOB, POD):
            async for body in self.kube.list(resource, self.lab.namespace, CHILD_SELECTOR):
                if resource is JOB:
                    body["metadata"]["ownerReferences"] = [{"uid": self.owner["metadata"]["uid"]}]
                cache.put(body)
        found = cache.snapshot((self.lab.namespace, "gemma"))
        assert found is not None
        return found

    async def until(self, what: str, check: Callable[[JobSeen], bool]) -> JobSeen:
        """Look until the one Job is as asked for."""
        deadline = time.monotonic() + 120
        while True:
            (seen,) = await self.jobs.observe(await self.snapshot(), time.time()) or (None,)
            if seen is not None and check(seen):
                return seen
            assert time.monotonic() < deadline, f"not {what}: {seen}; {self.lab.describe()}"
            await asyncio.sleep(0.2)

    def claim(self) -> Json:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        labels = {names.LABEL_MANAGED_BY: names.OPERATOR}
        meta = {"name": names.CACHE_CLAIM, "namespace": self.lab.namespace, "labels": labels}
        return {"apiVersion": CLAIM.api_version, "kind": CLAIM.kind, "metadata": meta, "spec": spec}

    def job(self, purpose: str, code: str, **volumes: Any) -> Json:
        labels = {names.LABEL_MANAGED_BY: names.OPERATOR, names.LABEL_JOB: purpose}
        meta = {
            "name": f"gemma-{purpose}",
            "namespace": self.lab.namespace,
            "labels": {**labels, names.LABEL_DEPLOYMENT: "gemma"},
            "annotations": {names.ANNOTATION_WANTED: "4711"},
        }
        weights: Json = {"name": names.JOB_CONTAINER, "image": "python", "args": ["-u", "-c", code]}
        pod: Json = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [weights]}
        if volumes:
            weights["volumeMounts"] = [{"name": "cache", "mountPath": "/cache"}]
            pod["volumes"] = [{"name": "cache", **volumes}]
        spec = {"backoffLimit": 0, "template": {"metadata": {"labels": labels}, "spec": pod}}
        return {"apiVersion": JOB.api_version, "kind": JOB.kind, "metadata": meta, "spec": spec}


@asynccontextmanager
async def job_lab(lab: PodLab, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[JobLab]:
    monkeypatch.setenv("KUBECONFIG", str(lab.cluster.kubeconfig))
    kube = Kube(Settings(), Telemetry())
    await kube.start()
    yield JobLab(lab, kube)
    await kube.close()


@pytest.fixture
async def jobs(lab: PodLab, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[JobLab]:
    async with job_lab(lab, monkeypatch) as made:
        yield made


def claimed() -> Json:
    return {"persistentVolumeClaim": {"claimName": names.CACHE_CLAIM}}


async def test_a_download_from_claim_to_mounted_folder(jobs: JobLab) -> None:
    lab = jobs.lab
    await jobs.kube.apply(CLAIM, jobs.claim())
    manifest = jobs.job("fetch", FETCH, **claimed())
    made = await jobs.kube.apply(JOB, manifest)
    again = await jobs.kube.apply(JOB, manifest, uid=made["metadata"]["uid"])
    assert again["metadata"]["generation"] == made["metadata"]["generation"]
    assert again["spec"] == made["spec"], "what the server put in is no difference"

    running = await jobs.until("under way", lambda seen: seen.progress is not None)
    assert (running.phase, running.progress, running.wanted) == (Phase.RUNNING, SOME, "4711")
    snapshot = await jobs.snapshot()
    assert set(snapshot.claims) == {names.CACHE_CLAIM}
    assert (snapshot.pods, len(snapshot.workers["gemma-fetch"])) == ((), 1)

    lab.run("touch /cache/go", "go", volumes=[{"name": "c", **claimed()}], container=mount("/cache"))
    done = await jobs.until("done", lambda seen: seen.phase is not Phase.RUNNING)
    assert (done.phase, done.result, done.trouble) == (Phase.SUCCEEDED, FACTS, "")
    script = "cat /models/it/config.json; touch /models/it/more && echo written; exit 0"
    seen = lab.run(
        script, "engine", volumes=[{"name": "c", **claimed()}], container=mount("/models/it", "models/abc", read=True)
    )
    assert seen.startswith("{}")
    assert "written" not in seen


def mount(path: str, part: str = "", *, read: bool = False) -> Json:
    return {"volumeMounts": [{"name": "c", "mountPath": path, "subPath": part, "readOnly": read}]}


async def test_a_failure_tells_its_reason_and_deleting_the_job_takes_its_pod(jobs: JobLab) -> None:
    made = await jobs.kube.apply(JOB, jobs.job("inspect", FAIL))
    failed = await jobs.until("failed", lambda seen: seen.phase is Phase.FAILED)
    assert failed.result == REFUSED
    await jobs.kube.delete(JOB, jobs.lab.namespace, "gemma-inspect", made["metadata"]["uid"])
    jobs.lab.until(lambda: not jobs.lab.list("pods"))


async def test_an_image_that_is_not_there_is_told_while_the_job_waits(jobs: JobLab) -> None:
    manifest = jobs.job("inspect", "")
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/no-such:1"
    await jobs.kube.apply(JOB, manifest)
    seen = await jobs.until("in trouble", lambda seen: "ImagePull" in seen.trouble)
    assert seen.phase is Phase.RUNNING


def test_a_message_of_the_longest_kind_arrives_whole(lab: PodLab) -> None:
    """Kubernetes cuts at 4096 bytes; a result as long as that must not lose its end."""
    lab.pod("p", shell("head -c 5000 /dev/zero | tr '\\0' x > /dev/termination-log"), restartPolicy="Never")
    state = container(lab.wait_for_end("p"))["state"]["terminated"]
    assert state["message"] == "x" * 4096
