"""The operator's own Jobs, run by hand on a cluster with a node: real models, tiny ones, through a hub to a claim."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.joblab import JobLab, job_lab
from tests.cluster.podlab import PodLab

from demo import scene
from speculative_operator.api.convert import to_domain
from speculative_operator.domain import names
from speculative_operator.domain.jobs import Exit, Phase, Purpose
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.render import jobs as manifests
from speculative_operator.shell.resources import CLAIM, JOB

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "dev" / "data" / "models"
HUB = "http://hub.{namespace}.svc:8080"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """What the hub serves: `tiny/target`, `tiny/draft`, `tiny/eagle3`. Not below /tmp, which pods have of their own."""
    made = ROOT / "build" / f"hub-{os.getpid()}"
    for name in ("target", "draft", "eagle3"):
        shutil.copytree(MODELS / name, made / "tiny" / name)
    yield made
    shutil.rmtree(made)


@pytest.fixture
async def jobs(lab: PodLab, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[JobLab]:
    """A namespace with a hub in it."""
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from modelservers.hub import main; main()"
    args = ["-c", code, str(ROOT / "dev"), "--folder", str(folder), "--host", "0.0.0.0", "--port", "8080"]
    probe = {"httpGet": {"path": "/_control", "port": 8080}, "periodSeconds": 1}
    lab.pod("hub", {"name": "hub", "image": "python", "args": args, "readinessProbe": probe}, labels={"app": "hub"})
    lab.create("services", "hub", spec={"selector": {"app": "hub"}, "ports": [{"port": 8080}]})
    lab.ready("hub")
    async with job_lab(lab, monkeypatch) as made:
        yield made


def spec_of(lab: PodLab, name: str = "gemma", verifier: str = "hf://tiny/target") -> DeploymentSpec:
    body = {
        "verifier": {"model": verifier},
        "speculator": {"method": "draft_model", "model": "hf://tiny/draft"},
        "weights": {
            "hubEndpoint": HUB.format(namespace=lab.namespace),
            "cache": {"size": "1Gi", "accessMode": "ReadWriteOnce"},
        },
    }
    meta = {"name": name, "namespace": lab.namespace, "uid": "o", "generation": 1}
    return to_domain({"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": body})


async def test_what_another_try_cannot_help_ends_a_download_with_its_first_pod(jobs: JobLab) -> None:
    """A Job that fetches has six tries more, minutes apart; `kubectl get jobs` says Failed at once."""
    spec = spec_of(jobs.lab)
    claim = manifests.cache_claim(spec, spec.weights.cache or pytest.fail("no cache"))
    await jobs.kube.apply(CLAIM, claim)
    words = ("fetch", "--cache", manifests.CACHE, "--speculator", "hf://tiny/missing")
    made = manifests.job(
        manifests.JobInput(
            spec, Purpose.FETCH, "4711", scene.IMAGE, words,
            cache=claim["metadata"]["name"], owns_cache=True, assigns_uids=False,
        )
    )  # fmt: skip
    made["metadata"].pop("ownerReferences")
    await jobs.kube.apply(JOB, made)
    seen = await jobs.until("ended", lambda seen: seen.phase is not Phase.RUNNING)
    assert seen.phase is Phase.FAILED
    assert seen.result is not None
    assert (seen.result["error"]["side"], seen.result["error"]["reason"]) == ("speculator", "SourceNotFound")
    status = jobs.lab.get("jobs", made["metadata"]["name"])["status"]
    ends = {one["type"]: one["reason"] for one in status["conditions"]}
    assert ends["Failed"] == "PodFailurePolicy"
    assert status["failed"] == 1
    assert f"exit code {Exit.FINAL}" in next(one["message"] for one in status["conditions"] if one["type"] == "Failed")
