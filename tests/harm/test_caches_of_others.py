"""Harm: files in a claim of others get another group, the API server is asked in vain for ever, a stranger's pod is
believed, or pods hang where their Job succeeds, because of how a cache is used."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.paired import LOOKING, PAIRED, Paired, advance
from tests.unit.reconcile.worlds import template
from tests.unit.shell.test_cache import job, owner, worker

from speculative_operator.domain.jobs import Purpose
from speculative_operator.domain.spec import Cache, DeploymentSpec, Weights
from speculative_operator.shell.cache import Cache as Seen

ASSIGNS_NONE = replace(LOOKING, assigns_uids=False)


def spec(cache: Cache) -> DeploymentSpec:
    return replace(PAIRED, weights=Weights(cache=cache))


def security(cluster: Paired) -> Any:
    return cluster.children["Job", "demo-fetch"]["spec"]["template"]["spec"]["securityContext"]


@pytest.mark.parametrize("size", ["", "500Gi"])
def test_files_in_a_claim_of_others_never_get_another_group(size: str) -> None:
    cluster = Paired(spec=spec(Cache("theirs", size=size)), capabilities=ASSIGNS_NONE)
    world = cluster.world
    cluster.world = lambda **change: world(claims=frozenset(), foreign_claims=frozenset({"theirs"}), **change)  # type: ignore[method-assign]
    cluster.tick()
    cluster.read()
    for _ in range(3):
        cluster.tick()
    assert cluster.claims == set(), "it is there"
    assert "fsGroup" not in security(cluster)


def test_a_claim_of_our_own_is_made_writable_for_its_job() -> None:
    cluster = Paired(spec=spec(Cache("models", size="500Gi")), capabilities=ASSIGNS_NONE)
    cluster.tick()
    cluster.read()
    for _ in range(3):
        cluster.tick()
    assert security(cluster)["fsGroup"] == 65532


def test_a_pod_by_the_labels_of_a_job_is_never_believed() -> None:
    """Whoever may make pods in the namespace could say what a model is."""
    cache = Seen()
    cache.put(owner())
    cache.put(job(uid="j"))
    for uid in ("", "another"):
        stranger = worker(2, "Succeeded")
        stranger["metadata"]["uid"] = f"s{uid}"
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "gemma-fetch", "uid": uid}
        stranger["metadata"]["ownerReferences"] = [reference] if uid else []
        stranger["metadata"]["labels"] |= {
            "serving.speculative.dev/job": "fetch", "batch.kubernetes.io/job-name": "gemma-fetch",
        }  # fmt: skip
        cache.put(stranger)
    snapshot = cache.snapshot(("ns", "gemma"))
    assert snapshot is not None
    assert (snapshot.workers["gemma-fetch"], snapshot.pods) == ((), ())


def test_pods_that_fetch_never_lack_what_the_settings_give_to_jobs() -> None:
    settings = (("SPECULATIVE_PLAIN_HTTP_REGISTRIES", "registry.example.com"), ("SPECULATIVE_SOURCE_TIMEOUT", "60"))
    able = replace(LOOKING, job_env=settings)
    cluster = Paired(spec=spec(Cache(node_path="/var/models")), capabilities=able)
    advance(cluster)
    first = template(cluster.children["Deployment", "demo"])["spec"]["initContainers"][0]
    assert [{"name": name, "value": value} for name, value in settings] == first["env"][: len(settings)]
    assert cluster.made == [Purpose.INSPECT]
