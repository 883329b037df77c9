"""What the Jobs of a training are given that their examples do not show."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.training.seen import BODY, IMAGE, TRAINING

from speculative_operator.api.training import to_training
from speculative_operator.domain.jobs import RESULT_FILE
from speculative_operator.domain.training import Trained, Training
from speculative_operator.training.jobs import Known, Means, look_job, train_job


def made_of(training: Training) -> str:
    pod = look_job(training, Means("o"))["spec"]["template"]["spec"]
    (look,) = (one["command"] for one in pod["initContainers"] if one["name"] == "look")
    return str(look[look.index("--made-of") + 1])


OTHERWISE = ({"samples": 500}, {"epochs": 11}, {"sequence": 128}, {"method": Trained.DFLASH}, {"k": 7})


@pytest.mark.parametrize("changed", OTHERWISE)
def test_a_training_that_would_learn_otherwise_is_another(changed: dict[str, int]) -> None:
    assert made_of(replace(TRAINING, **changed)) != made_of(TRAINING)  # type: ignore[arg-type]


def test_the_mark_has_the_version_of_the_verifier_and_not_the_branch_that_was_asked_for() -> None:
    branch, commit = (
        replace(TRAINING, verifier=replace(TRAINING.verifier, revision=one)) for one in ("main", "c" * 40)
    )
    assert made_of(branch) == made_of(commit)
    inspect, look = look_job(branch, Means("o"))["spec"]["template"]["spec"]["initContainers"]
    (file,) = (one["value"] for one in inspect["env"] if one["name"] == RESULT_FILE)
    assert look["command"][look["command"].index("--inspected") + 1] == file
    assert RESULT_FILE.startswith("SPECULATIVE_"), "no spec may set it: weights.env reaches containers with a cache"
    (folder,) = {one["mountPath"] for one in inspect["volumeMounts"] if file.startswith(f"{one['mountPath']}/")}
    assert folder in {one["mountPath"] for one in look["volumeMounts"]}


@pytest.mark.parametrize(
    ("method", "k", "given"),
    [
        ("eagle3", None, ["--ttt-steps", "3"]),
        ("peagle", 4, ["--num-depths", "4", "--num-layers", "4", "--no-norm-before-residual"]),
        ("dflash", None, ["--block-size", "16"]),
        ("dflash", 7, ["--block-size", "8"]),
    ],
)
def test_the_trainer_is_told_method_and_k(method: str, k: int | None, given: list[str]) -> None:
    asked = to_training({**BODY, "spec": {**BODY["spec"], "method": method, "maxSpeculativeTokens": k}}, IMAGE)
    pod = train_job(asked, Known("c", 36), 60, Means("o"))["spec"]["template"]["spec"]
    (train,) = (one for one in pod["initContainers"] if one["name"] == "train")
    assert train["command"][4:] == given
    assert {"name": "METHOD", "value": method} in train["env"]


def test_prompts_of_a_data_set_are_fetched_and_the_data_set_is_named_with_its_commit() -> None:
    prompts = {"prompts": "hf://datasets/org/chats/data/train.jsonl", "revision": "main"}
    training = to_training({**BODY, "spec": {**BODY["spec"], "data": prompts}}, IMAGE)
    first, fetch, look = look_job(training, Means("o"))["spec"]["template"]["spec"]["initContainers"]
    assert [one["name"] for one in (first, fetch, look)] == ["inspect", "prompts", "look"]
    assert fetch["command"][-4:] == ["--prompts", prompts["prompts"], "--prompts-revision", "main"]
    assert made_of(training) == made_of(replace(training, prompts=replace(training.prompts, revision="v2")))
    job = train_job(training, Known("c" * 40, 36, "d" * 40), 60, Means("o"))
    finish = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert finish[finish.index("--data") + 1] == f"{prompts['prompts']}@{'d' * 40}"


def test_a_copy_in_a_bucket_is_begun_without_accelerators_and_is_the_address_of_the_result() -> None:
    training = to_training({**BODY, "spec": {**BODY["spec"], "copyTo": "s3://bucket/heads/support/"}}, IMAGE)
    assert training.result == "s3://bucket/heads/support"
    pods = [
        job["spec"]["template"]["spec"]
        for job in (look_job(training, Means("o")), train_job(training, Known("c" * 40, 36), 60, Means("o")))
    ]
    look, train = [[*pod["initContainers"], *pod["containers"]] for pod in pods]
    assert [one["name"] for one in look] == ["inspect", "look", "fetch", "copy"]
    assert [one["name"] for one in train][-2:] == ["check", "copy"]
    begun, copied = look[-1]["command"], train[-1]["command"]
    assert begun == [*copied, "--begin"]
    assert copied[-2:] == ["--to", "s3://bucket/heads/support"]
    assert made_of(training) == made_of(TRAINING), "a copy makes no other training"


def test_more_hours_make_no_other_training() -> None:
    assert made_of(replace(TRAINING, hours=99)) == made_of(TRAINING)


def test_a_revision_in_the_address_is_that_beside_it() -> None:
    """The weights are fetched into a folder named for the repository without its revision."""
    model = {"model": "hf://Qwen/Qwen3-8B@main"}
    within = to_training({**BODY, "spec": {**BODY["spec"], "verifier": model}}, IMAGE)
    beside = {"model": "hf://Qwen/Qwen3-8B", "revision": "main"}
    assert within == to_training({**BODY, "spec": {**BODY["spec"], "verifier": beside}}, IMAGE)
    known = Known("c" * 40, 36)
    assert train_job(within, known, 60, Means("o")) == train_job(TRAINING, known, 60, Means("o"))


def test_the_log_of_a_training_is_kept_longer_than_that_of_a_look() -> None:
    jobs = look_job(TRAINING, Means("o")), train_job(TRAINING, Known("c", 36), 60, Means("o"))
    assert [job["spec"]["ttlSecondsAfterFinished"] for job in jobs] == [86_400, 7 * 86_400]
