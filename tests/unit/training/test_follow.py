"""What a training does next, by what the API server has of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.training.seen import BODY, FACTS, IMAGE, NOW, TRAINING, condition, job, pod

from speculative_operator.api.crd import training_schema
from speculative_operator.api.training import TrainingStatus, to_training
from speculative_operator.domain.formats import timestamp
from speculative_operator.domain.jobs import Phase, encode
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.domain.training import Stage, Trained
from speculative_operator.training.follow import follow, has_ended
from speculative_operator.training.jobs import Means
from speculative_operator.training.progress import Progress
from speculative_operator.training.seen import JobSeen, Seen, job_seen

MEANS = Means("operator:1")
LOOKED = JobSeen(Phase.SUCCEEDED, results={"inspect": FACTS, "look": {"rows": 1200}})
KNOWN = {"verifierVersion": "c" * 40, "verifierLayers": 36, "stage": "Preparing"}


def with_job(place: str, job: JobSeen, status: dict[str, Any]) -> Seen:
    return Seen(TRAINING, status, look=job) if place == "look" else Seen(TRAINING, status, train=job)


def test_the_whole_way() -> None:
    first = follow(Seen(TRAINING, {}), MEANS, NOW)
    assert first.job is not None
    assert first.job["metadata"]["name"] == "support-look"
    stored = follow(Seen(TRAINING, first.status, look=LOOKED), MEANS, NOW)
    assert stored.job is None, "an operator that ends now has lost nothing"
    assert stored.status["verifierLayers"] == KNOWN["verifierLayers"]
    second = follow(Seen(TRAINING, stored.status, look=LOOKED), MEANS, NOW)
    assert second.job is not None
    assert second.job["metadata"]["name"] == "support-train"
    assert second.status["samples"] == 1200
    running = JobSeen(Phase.RUNNING, running="train", started=NOW, pod_started=NOW + 60)
    third = follow(
        Seen(TRAINING, second.status, train=running, progress=Progress(50, 200, 2.5, 1.7)), MEANS, NOW + 3660
    )
    assert third.job is None
    figures = {"step": 50, "steps": 200, "progress": "25%", "loss": "2.500", "expectedAcceptance": "1.70"}
    assert {**third.status, "stage": "Training", **figures} == third.status
    assert third.status["cost"] == "10", "two accelerators for an hour at 5.00"
    fourth = follow(Seen(TRAINING, third.status, train=running, progress=Progress(100, 200)), MEANS, NOW + 3760)
    assert fourth.status["timeLeft"] == "4m", "100 steps at 50 in 100 s, rounded up"
    check = {"acceptanceLength": 2.04, "acceptanceLengths": [1.6, 2.04], "dataDigest": "sha256:1"}
    done = JobSeen(Phase.SUCCEEDED, results={"check": check}, ended=NOW + 7200)
    last = follow(Seen(TRAINING, fourth.status, train=done), MEANS, NOW + 7300)
    assert condition(last.status) == ("True", Reason.TRAINED)
    assert last.status["speculator"] == "pvc://models/support/model"
    assert (last.status["expectedAcceptance"], last.status["stage"]) == ("2.04", "Done")
    assert last.status["expectedAcceptanceByK"] == ["1.60", "2.04"]
    assert not {"step", "timeLeft"} & last.status.keys()
    assert follow(Seen(TRAINING, last.status), MEANS, NOW + 9000).status == last.status, "its Job may be gone"
    for step in (first, second, third, fourth, last):
        TrainingStatus.model_validate(step.status)


ERRORS: dict[str, tuple[JobSeen, Reason]] = {
    "told": (
        JobSeen(Phase.FAILED, results={"look": {"error": {"reason": "BadData", "message": "line 7"}}}),
        Reason.BAD_DATA,
    ),
    "deadline": (JobSeen(Phase.FAILED, cause="DeadlineExceeded"), Reason.DEADLINE_EXCEEDED),
    "memory": (JobSeen(Phase.FAILED, ends=frozenset({"OOMKilled", "Error"})), Reason.OUT_OF_MEMORY),
    "node": (JobSeen(Phase.FAILED, ends=frozenset({"NodeLost"})), Reason.NODE_LOST),
    "other": (JobSeen(Phase.FAILED, trouble="container train ended: Error, exit code 1"), Reason.TRAINING_FAILED),
    "lie": (JobSeen(Phase.FAILED, results={"check": {"error": {"reason": "Trained"}}}), Reason.TRAINING_FAILED),
    "unknown": (JobSeen(Phase.FAILED, results={"check": {"error": {"reason": "Gone"}}}), Reason.TRAINING_FAILED),
}


@pytest.mark.parametrize("case", ERRORS)
def test_each_failure_has_its_reason_and_is_the_end(case: str) -> None:
    seen, reason = ERRORS[case]
    for place in ("look", "train"):
        step = follow(with_job(place, seen, KNOWN), MEANS, NOW)
        assert condition(step.status) == ("False", reason)
        assert step.job is None
        assert has_ended(step.status)


def test_a_verifier_without_layers_or_too_large_takes_no_accelerator() -> None:
    none = replace(LOOKED, results={"inspect": {"verifier": {"config": {}}}})
    assert condition(follow(Seen(TRAINING, {}, look=none), MEANS, NOW).status) == ("False", Reason.UNKNOWN_VERIFIER)
    large = json.loads(json.dumps(FACTS))
    large["verifier"]["weights"]["bytes"] = 140 * 10**9
    step = follow(Seen(TRAINING, {}, look=replace(LOOKED, results={"inspect": large})), MEANS, NOW)
    assert (condition(step.status), step.job) == (("False", Reason.MEMORY_SHORT), None)
    unknown = replace(TRAINING, product="")
    step = follow(Seen(unknown, {}, look=replace(LOOKED, results={"inspect": large})), MEANS, NOW)
    assert not has_ended(step.status)


def test_a_verifier_that_moves_while_it_is_looked_at_is_not_trained_for() -> None:
    moved = json.loads(json.dumps(FACTS).replace("c" * 40, "d" * 40))
    step = follow(Seen(TRAINING, {}, look=replace(LOOKED, results={**LOOKED.results, "fetch": moved})), MEANS, NOW)
    assert (condition(step.status), step.job) == (("False", Reason.OUTPUT_FOREIGN), None)
    assert f"set verifier.revision to {'c' * 40}" in step.status["conditions"][0]["message"]


def test_prompts_of_a_data_set_are_trained_on_at_the_commit_that_was_looked_at() -> None:
    training = replace(TRAINING, prompts=ModelSource(Scheme.HF, "datasets/org/chats/a.jsonl"))
    lacking = follow(Seen(training, {}, look=LOOKED), MEANS, NOW)
    assert (condition(lacking.status), lacking.job) == (("Unknown", Reason.TRAINING_WAITS), None)
    fetched = {"prompts": {"prompts": {"pin": {"resolved": "d" * 40}}}}
    looked = replace(LOOKED, results={**LOOKED.results, **fetched})
    stored = follow(Seen(training, {}, look=looked), MEANS, NOW)
    assert (stored.status["dataVersion"], stored.job) == ("d" * 40, None)
    made = [follow(Seen(training, stored.status, look=looked), MEANS, NOW)]
    made += [follow(Seen(training, {**stored.status, "jobStartedAt": timestamp(NOW)}), MEANS, NOW)]
    for step in made:
        assert f"{training.prompts.uri}@{'d' * 40}" in json.dumps(step.job)
    error = {"reason": "SourceNotFound", "side": "prompts", "message": "no such file", "remedy": "correct the path"}
    failed = JobSeen(Phase.FAILED, results={"prompts": {"error": error}})
    step = follow(Seen(training, {}, look=failed), MEANS, NOW)
    assert condition(step.status) == ("False", Reason.SOURCE_NOT_FOUND)
    assert step.status["conditions"][0]["message"] == "data.prompts: no such file; correct the path"


def test_what_went_with_its_pod_is_no_fault_of_the_verifier() -> None:
    step = follow(Seen(TRAINING, {}, look=replace(LOOKED, results={})), MEANS, NOW)
    assert (condition(step.status), step.job) == (("Unknown", Reason.TRAINING_WAITS), None)


def test_a_job_that_is_gone_is_not_made_of_a_verifier_that_nobody_knows() -> None:
    step = follow(Seen(TRAINING, {"jobStartedAt": "2026-11-28T10:00:00Z"}), MEANS, NOW)
    assert step.job is not None
    assert step.job["metadata"]["name"] == "support-look"


def test_a_job_of_somebody_else_is_left_alone() -> None:
    for place in ("look", "train"):
        step = follow(with_job(place, JobSeen(Phase.SUCCEEDED, owned=False), {}), MEANS, NOW)
        assert (condition(step.status), step.job) == (("False", Reason.NAME_CONFLICT), None)
        assert not has_ended(step.status)


def test_a_job_that_is_gone_is_made_again_for_the_rest_of_the_hours() -> None:
    status = {**KNOWN, "jobStartedAt": "2026-11-28T10:00:00Z"}
    begun = 1795860000.0
    step = follow(Seen(TRAINING, status), MEANS, begun + 3 * 3600)
    assert step.job is not None
    assert step.job["spec"]["activeDeadlineSeconds"] == 9 * 3600
    assert condition(step.status)[1] == Reason.TRAINING_RESUMED
    over = follow(Seen(TRAINING, status), MEANS, begun + 12 * 3600)
    assert (condition(over.status), over.job) == (("False", Reason.DEADLINE_EXCEEDED), None)
    later = follow(Seen(TRAINING, {**status, "jobStartedAt": "2999-01-01T00:00:00Z"}), MEANS, begun)
    assert later.job is not None
    assert later.job["spec"]["activeDeadlineSeconds"] == 12 * 3600, "an absurd time gives no more than was asked for"


def test_a_pod_without_a_node_is_told_and_nothing_else_changes() -> None:
    waiting = pod(
        "Pending", conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3"}]
    )
    seen = job_seen(job(), [waiting], TRAINING.uid, Phase.RUNNING, "")
    step = follow(Seen(TRAINING, KNOWN, train=seen), MEANS, NOW)
    assert condition(step.status) == ("Unknown", Reason.TRAINING_WAITS)
    assert "Unschedulable: 0/3" in step.status["conditions"][0]["message"]


def test_what_a_container_left_is_read_by_its_name() -> None:
    left = pod(
        "Failed", init=[("look", 3, '{"no": "mark"}'), ("states", 1, "")], main=[("fetch", 137, "", "OOMKilled")]
    )
    seen = job_seen(job(), [left], TRAINING.uid, Phase.FAILED, "the Job says")
    assert seen.ends == {"OOMKilled", "Error"}
    assert seen.results == {}
    assert seen.trouble == 'container look ended: Error, exit code 3: {"no": "mark"}'


@pytest.mark.parametrize(
    ("method", "served"),
    [
        ("eagle3", '{"method": "eagle3"'),
        ("peagle", '{"method": "eagle3", "parallelDrafting": true'),
        ("dflash", '{"method": "dflash"'),
    ],
)
def test_a_canary_is_offered_and_none_is_started(method: str, served: str) -> None:
    done = JobSeen(Phase.SUCCEEDED, results={"check": {}})
    step = follow(Seen(replace(TRAINING, try_on="demo", method=Trained(method)), KNOWN, train=done), MEANS, NOW)
    assert step.job is None
    assert "kubectl patch specdep demo -n models" in step.status["tryWith"]
    assert f'.spec.speculator = {served}, "model": "pvc://models/support/model"}}' in step.status["tryWith"]


absurd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = sorted(training_schema()["properties"]["status"]["properties"])


@given(
    status=st.dictionaries(st.sampled_from(FIELDS), absurd, max_size=6),
    results=st.dictionaries(
        st.sampled_from(["inspect", "fetch", "look", "check"]),
        st.dictionaries(
            st.sampled_from(["verifier", "error", "rows", "acceptanceLength", "acceptanceLengths"]), absurd
        ),
        max_size=3,
    ),
    phase=st.sampled_from(Phase),
    progress=st.none()
    | st.builds(Progress, st.integers(), st.integers(), st.floats() | st.none(), st.floats() | st.none()),
    now=st.floats(0, 4e9),
)
def test_nothing_absurd_ends_in_an_error_or_in_more_than_was_asked_for(
    status: dict[str, Any], results: dict[str, Any], phase: Phase, progress: Progress | None, now: float
) -> None:
    for seen in (
        Seen(TRAINING, status, look=JobSeen(phase, results=results)),
        Seen(TRAINING, status, train=JobSeen(phase, results=results, running="train"), progress=progress),
        Seen(TRAINING, status),
    ):
        step = follow(seen, MEANS, now)
        json.dumps(step.status, allow_nan=True)
        if step.job is not None:
            assert step.job["spec"]["activeDeadlineSeconds"] <= 12 * 3600
            (owner,) = step.job["metadata"]["ownerReferences"]
            assert owner["uid"] == TRAINING.uid


def test_the_spec_reaches_the_domain() -> None:
    assert to_training(BODY, IMAGE) == TRAINING
    assert to_training({**BODY, "spec": {**BODY["spec"], "image": "mine:1"}}, IMAGE).image == "mine:1"
    assert set(Stage) >= {"Done", "Failed"}


def test_what_a_container_left_in_an_earlier_pod_is_over_once_it_has_ended_anew() -> None:
    words = encode({"error": {"reason": "OutOfMemory", "message": "too little memory"}})
    first = pod("Failed", init=[("train", 1, words)])
    second = pod("Failed", init=[("train", 0, "")], main=[("check", 3, encode({"error": {}}))])
    seen = job_seen(job(), [second, first], TRAINING.uid, Phase.FAILED, "")
    assert set(seen.results) == {"check"}
    assert set(job_seen(job(), [first], TRAINING.uid, Phase.FAILED, "").results) == {"train"}
