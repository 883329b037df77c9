"""Pairs whose weights are fetched into a cache: what happens when ..."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.reconcile.paired import (
    CACHED,
    COMMITS,
    DRAFT,
    EAGLE,
    FOREIGN,
    LOOKING,
    PAIRED,
    VERIFIER,
    Paired,
    advance,
    drawn,
    hub,
    serving,
    state,
    told,
    with_cache,
)
from tests.unit.reconcile.worlds import settled, template

from speculative_operator.api.status import Status
from speculative_operator.domain.actions import ApplyChild
from speculative_operator.domain.jobs import Phase, Progress, Purpose
from speculative_operator.domain.models import Pin
from speculative_operator.domain.spec import Cache, Method, ModelSource, Scheme, Speculator, Weights
from speculative_operator.reconcile.pair import jobs
from speculative_operator.reconcile.pair.pairing import BLOCKED_SECONDS
from speculative_operator.reconcile.snapshot.records import keys
from speculative_operator.reconcile.snapshot.writing import should_write

GB = 1_000_000_000


def key(name: str, commit: str = "") -> str:
    return Pin(Scheme.HF, name, "", commit or COMMITS[name]).key


COLLECTING = replace(PAIRED, weights=Weights(cache=Cache("models", size="500Gi", collect=True)))


def kept(cluster: Paired) -> set[str]:
    args = cluster.args(Purpose.FETCH)
    return {args[place + 1] for place, word in enumerate(args) if word == "--keep"}


def fetching() -> Paired:
    """The Job that fetches has just been made."""
    cluster = Paired(spec=with_cache())
    cluster.tick()
    cluster.read()
    cluster.tick()
    cluster.tick()
    assert cluster.made == [Purpose.INSPECT, Purpose.FETCH]
    return cluster


def test_weights_come_before_pods() -> None:
    cluster = fetching()
    assert cluster.claims == {"models"}
    assert cluster.args(Purpose.FETCH) == [
        "fetch", "--cache", "/cache",
        "--verifier", f"hf://{VERIFIER}", "--verifier-revision", COMMITS[VERIFIER],
        "--speculator", f"hf://{EAGLE}", "--speculator-revision", COMMITS[EAGLE],
        "--object", "models/demo/uid-1",
    ]  # fmt: skip
    for _ in range(3):
        assert not cluster.serves()
        cluster.tick()
    assert state(cluster, "Ready") == ("False", "Downloading")
    assert state(cluster, "Progressing") == ("True", "Downloading")
    assert state(cluster, "WeightsReady") == ("False", "Downloading")
    cluster.fetched()
    outcome = cluster.tick()
    assert ("Normal", "WeightsCached") in told(outcome)
    assert cluster.serves()
    assert state(cluster, "WeightsReady") == ("True", "WeightsCached")
    assert "17.2GB" in cluster.condition("WeightsReady")["message"]
    assert cluster.status["weights"] == {"text": "17.2GB", "bytes": 17_181_470_720, "totalBytes": 17_181_470_720}
    Status.model_validate(cluster.status)


def test_pods_mount_the_claim_read_only_and_ask_no_hub() -> None:
    cluster = serving(spec=with_cache())
    pod = template(cluster.children["Deployment", "demo"])["spec"]
    (container,) = pod["containers"]
    assert container["args"][0] == f"/mnt/models/models/.speculative-cache/models/{key(VERIFIER)}"
    assert key(EAGLE) in " ".join(container["args"])
    claims = [one for one in pod["volumes"] if "persistentVolumeClaim" in one]
    assert [one["persistentVolumeClaim"] for one in claims] == [{"claimName": "models", "readOnly": True}]
    (mount,) = [one for one in container["volumeMounts"] if one["name"] == claims[0]["name"]]
    assert mount["readOnly"] is True
    assert {"name": "HF_HUB_OFFLINE", "value": "1"} in container["env"]
    assert cluster.status["pair"]["cache"] == "models/.speculative-cache"
    assert cluster.status["pair"]["verifierPin"]["uri"] == f"hf://{VERIFIER}", "people see where it is from"


@pytest.mark.parametrize("check_pairs", [True, False])
def test_a_cache_needs_no_checks(check_pairs: bool) -> None:
    cluster = serving(spec=with_cache(), capabilities=replace(LOOKING, check_pairs=check_pairs))
    assert key(VERIFIER) in cluster.engine_args[0]
    assert state(cluster, "PairCompatible") == (("True", "PairMatches") if check_pairs else ("Unknown", "NotChecked"))


@pytest.mark.parametrize(("side", "name"), [("verifier", EAGLE), ("speculator", VERIFIER)])
def test_beside_a_model_in_a_claim_the_other_is_fetched_under_its_own_name(side: str, name: str) -> None:
    """An error of the Job names the side that it was given."""
    cluster = Paired()
    facts = {"verifier": cluster.facts(VERIFIER), "speculator": cluster.facts(EAGLE)}
    lying = Pin(Scheme.PVC, "theirs/model", "", "sha256:" + "0" * 64)
    facts[side] = replace(facts[side], pin=lying)
    job = jobs.fetching(replace(cluster.snapshot(), spec=with_cache()), tuple(facts.values()), (), 0.0)
    assert job is not None
    other = {"verifier": "speculator", "speculator": "verifier"}[side]
    assert job.args[3:7] == (f"--{other}", f"hf://{name}", f"--{other}-revision", COMMITS[name])
    assert f"--{side}" not in job.args


def test_a_claim_that_is_there_is_left_alone() -> None:
    cluster = Paired(spec=with_cache(), claims={"models"})
    made = [action for outcome in advance(cluster) for action in outcome.actions if isinstance(action, ApplyChild)]
    assert {action.manifest["kind"] for action in made} >= {"Job", "Deployment"}
    assert "PersistentVolumeClaim" not in {action.manifest["kind"] for action in made}


def test_a_claim_without_size_is_the_users() -> None:
    cluster = Paired(spec=replace(PAIRED, weights=Weights(cache=Cache("theirs"))))
    advance(cluster)
    assert cluster.claims == set()
    assert "theirs" in cluster.engine_args[0]


def test_nothing_is_fetched_for_a_pair_that_does_not_fit() -> None:
    cluster = Paired(spec=with_cache(replace(PAIRED, speculator=drawn(FOREIGN))))
    advance(cluster)
    assert cluster.made == [Purpose.INSPECT]
    assert state(cluster, "WeightsReady") == ("False", "PairMismatch")


def test_what_engines_do_not_load_is_served_from_the_cache() -> None:
    source = ModelSource(Scheme.S3, "bucket/qwen")

    class Bucket(Paired):
        def facts(self, name: str) -> Any:
            found = super().facts(VERIFIER if name.startswith("s3") else name)
            return replace(found, pin=Pin(Scheme.S3, "bucket/qwen", "", "sha256:1")) if name.startswith("s3") else found

    cluster = Bucket(spec=with_cache(replace(PAIRED, verifier=replace(PAIRED.verifier, source=source))))
    advance(cluster)
    assert Pin(Scheme.S3, "bucket/qwen", "", "sha256:1").key in cluster.engine_args[0]
    cluster.edit(weights=Weights())
    cluster.tick()
    assert state(cluster, "Ready") == ("False", "UnsupportedSource")
    assert "spec.weights.cache" in cluster.condition("Ready")["message"]


def test_without_an_image_for_jobs_what_only_jobs_bring_is_refused() -> None:
    source = ModelSource(Scheme.S3, "bucket/qwen")
    spec = with_cache(replace(PAIRED, verifier=replace(PAIRED.verifier, source=source)))
    cluster = Paired(spec=spec, capabilities=replace(LOOKING, job_image=""))
    cluster.tick()
    assert state(cluster, "Ready") == ("False", "UnsupportedSource")


# -- progress


def test_progress_is_shown_and_seldom_written() -> None:
    cluster = fetching()
    cluster.comes(Progress(2 * GB, 17 * GB, 0.5 * GB, "model-00001-of-00005.safetensors"))
    outcome = cluster.tick()
    assert outcome.events == ()
    assert cluster.condition("WeightsReady")["message"] == "2GB of 17GB, 500MB/s, 30s left"
    assert cluster.status["weights"] == {
        "text": "11%, 30s left", "bytes": 2 * GB, "totalBytes": 17 * GB, "rate": "500MB/s", "left": "30s",
    }  # fmt: skip
    old = cluster.status
    cluster.comes(Progress(6 * GB, 17 * GB, 0.4 * GB, "model-00002-of-00005.safetensors"))
    new = cluster.look().status
    assert new["weights"]["text"] == "35%, 30s left"
    assert not should_write(old, new, cluster.now, cluster.now + 29)
    assert should_write(old, new, cluster.now, cluster.now + 30)
    assert not should_write(new, new, cluster.now, cluster.now + 60)
    Status.model_validate(new)


def test_a_download_that_stands_still_is_told_at_once() -> None:
    cluster = fetching()
    cluster.comes(Progress(2 * GB, 17 * GB, 0.5 * GB, "a.safetensors"))
    cluster.tick()
    old = cluster.status
    cluster.comes(Progress(2 * GB, 17 * GB, 0.0, "a.safetensors", stalled_seconds=75.0))
    outcome = cluster.tick()
    assert should_write(old, cluster.status, cluster.now, cluster.now + 1)
    assert told(outcome) == [("Warning", "DownloadStalled")]
    assert "a.safetensors" in cluster.condition("WeightsReady")["message"]
    assert cluster.tick().events == ()
    cluster.comes(Progress(3 * GB, 17 * GB, 0.5 * GB, "a.safetensors"))
    assert told(cluster.tick()) == [("Normal", "Downloading")]


def test_a_job_whose_pod_does_not_start_says_why() -> None:
    cluster = fetching()
    cluster.fates[Purpose.FETCH] = {"trouble": "Unschedulable: persistentvolumeclaim models not found"}
    cluster.tick()
    assert "persistentvolumeclaim models not found" in cluster.condition("WeightsReady")["message"]


# -- failures


@pytest.mark.parametrize("reason", ["SourceUnauthorized", "CacheFull", "ChecksumMismatch", "CacheUnwritable"])
def test_a_download_that_fails_is_told_with_its_remedy_and_tried_again(reason: str) -> None:
    cluster = fetching()
    cluster.fails(Purpose.FETCH, reason, "17.2 GB are needed, 3.1 GB are free", file="a.safetensors", remedy="grow it")
    outcome = cluster.tick()
    assert told(outcome) == [("Warning", reason)]
    assert cluster.condition("WeightsReady")["message"] == (
        "17.2 GB are needed, 3.1 GB are free (a.safetensors); grow it"
    )
    assert state(cluster, "Ready") == ("False", reason)
    for _ in range(3):
        assert cluster.tick().actions == ()
    cluster.now += BLOCKED_SECONDS
    for _ in range(3):
        assert cluster.tick().events == ()
    assert cluster.made == [Purpose.INSPECT, Purpose.FETCH, Purpose.FETCH]
    cluster.fetched()
    cluster.tick()
    assert cluster.serves()


def test_a_job_without_a_result_is_named() -> None:
    cluster = fetching()
    cluster.fates[Purpose.FETCH] = {"phase": Phase.FAILED, "trouble": "OOMKilled"}
    cluster.tick()
    assert state(cluster, "WeightsReady") == ("False", "SourceUnreachable")
    assert "OOMKilled" in cluster.condition("WeightsReady")["message"]


def test_without_facts_nothing_is_fetched_and_no_pod_is_made() -> None:
    cluster = Paired(spec=with_cache())
    cluster.tick()
    cluster.fails(Purpose.INSPECT, "SourceUnreachable", "no answer")
    cluster.tick()
    assert not cluster.serves()
    assert state(cluster, "WeightsReady") == ("False", "SourceUnreachable")
    cluster.now += BLOCKED_SECONDS
    advance(cluster)
    assert state(cluster, "Ready") == ("True", "AllReady")


# -- a change while pods serve


def test_a_pair_rolls_as_one_once_all_of_it_is_there() -> None:
    cluster = serving(spec=COLLECTING)
    deployment = cluster.deployment
    cluster.commits[VERIFIER] = "9" * 40
    cluster.edit(
        verifier=replace(PAIRED.verifier, source=replace(hub(VERIFIER), revision="v2")),
        speculator=Speculator(Method.DRAFT_MODEL, hub(DRAFT)),
    )
    cluster.tick()
    cluster.read()
    for _ in range(4):
        cluster.tick()
        assert cluster.deployment == deployment
    assert {key(VERIFIER), key(EAGLE), key(VERIFIER, "9" * 40), key(DRAFT)} == kept(cluster)
    assert keys(cluster.status) >= kept(cluster)
    assert state(cluster, "Ready") == ("False", "Downloading")
    cluster.fails(Purpose.FETCH, "SourceThrottled")
    for _ in range(3):
        cluster.tick()
        assert cluster.deployment == deployment
    assert state(cluster, "Available") == ("True", "AllReady")
    cluster.now += BLOCKED_SECONDS
    advance(cluster)
    cluster.settle()
    assert cluster.templates == 2
    assert key(VERIFIER, "9" * 40) in cluster.engine_args[0]
    assert key(DRAFT) in " ".join(cluster.engine_args)
    assert set(cluster.status["pair"]["previous"]) == {key(VERIFIER), key(EAGLE)}


def test_folders_of_other_objects_are_kept() -> None:
    cluster = Paired(spec=COLLECTING, kept=frozenset({"0123456789abcdef"}))
    cluster.tick()
    cluster.read()
    cluster.tick()
    cluster.tick()
    assert "0123456789abcdef" in kept(cluster)
    made = cluster.made
    cluster.kept = frozenset({"another"})
    cluster.tick()
    assert cluster.made == made, "a download that runs is not begun anew for it"


def test_pods_without_a_cache_run_on_until_it_is_filled() -> None:
    cluster = serving()
    deployment = cluster.deployment
    cluster.edit(weights=CACHED)
    for _ in range(3):
        cluster.tick()
        assert cluster.deployment["spec"] == deployment["spec"]
    assert cluster.made == [Purpose.INSPECT, Purpose.FETCH], "what was read holds"
    cluster.fetched()
    advance(cluster)
    assert cluster.templates == 2
    assert key(VERIFIER) in cluster.engine_args[0]
    table = cluster.table
    cluster.edit(weights=Weights())
    advance(cluster)
    assert COMMITS[VERIFIER] in cluster.engine_args
    assert (cluster.table["rows"], cluster.table["try"]) == (table["rows"], table["try"])


def test_pods_that_were_never_looked_at_run_on_until_the_cache_is_filled() -> None:
    before = settled(spec=PAIRED)
    cluster = Paired(status=before.status, children=before.children, pods=before.pods, uids=before.uids, templates=1)
    deployment = cluster.deployment
    cluster.edit(weights=CACHED)
    cluster.tick()
    cluster.read()
    cluster.tick()
    assert cluster.deployment["spec"] == deployment["spec"]
    advance(cluster)
    assert cluster.templates == 2
    assert key(VERIFIER) in cluster.engine_args[0]


def test_a_restart_in_the_middle_goes_on_with_the_job_that_runs() -> None:
    cluster = fetching()
    cluster.memory, cluster.applied = None, {}
    cluster.tick()
    assert cluster.look().actions == ()
    assert cluster.made == [Purpose.INSPECT, Purpose.FETCH]
    cluster.fetched()
    cluster.tick()
    assert cluster.serves()


def test_files_of_a_claim_are_mounted_from_there() -> None:
    source = ModelSource(Scheme.PVC, "theirs/qwen")

    class Claim(Paired):
        def facts(self, name: str) -> Any:
            found = super().facts(VERIFIER if name.startswith("pvc") else name)
            return replace(found, pin=Pin(Scheme.PVC, "theirs/qwen", "", "sha256:1")) if "pvc" in name else found

    cluster = Claim(spec=with_cache(replace(PAIRED, verifier=replace(PAIRED.verifier, source=source))))
    cluster.tick()
    job = cluster.children["Job", "demo-inspect"]["spec"]["template"]["spec"]
    mounted = [one for one in job["volumes"] if "persistentVolumeClaim" in one]
    assert [one["persistentVolumeClaim"] for one in mounted] == [{"claimName": "theirs", "readOnly": True}]
    cluster.read()
    cluster.tick()
    cluster.tick()
    assert f"hf://{EAGLE}" in cluster.args(Purpose.FETCH)
    assert "pvc://theirs/qwen" not in cluster.args(Purpose.FETCH)
    cluster.fetched()
    advance(cluster)
    assert cluster.engine_args[0] == "/mnt/models/theirs/qwen"
