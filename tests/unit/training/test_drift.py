"""What a look at service tells of a training that is done."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.training.seen import BODY, DAY, DONE, IMAGE, NOW, TRAINING, serving
from tests.unit.training.test_follow import absurd

from speculative_operator.api.training import TrainingStatus, to_training
from speculative_operator.domain.formats import timestamp
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.domain.training import Training
from speculative_operator.training.drift import compare_acceptance


def look(
    *deployments: dict[str, Any], days: float = 0.0, held: dict[str, Any] = DONE, of: Training = TRAINING
) -> dict[str, Any]:
    """The status after a look so many days behind NOW, at figures of that time."""
    now = NOW + days * DAY
    moved = json.loads(json.dumps(deployments).replace(timestamp(NOW), timestamp(now)))
    return compare_acceptance(of, held, moved, now)


def condition(status: dict[str, Any]) -> tuple[str, str] | None:
    found = [one for one in status["conditions"] if one["type"] == "AcceptanceHolds"]
    assert status["conditions"][0]["type"] == "Trained", "what others wait for stays where it was"
    return (found[0]["status"], found[0]["reason"]) if found else None


LOW, GOOD = serving("1.60", "20.0%"), serving("1.80", "26.7%")  # at K 3, where 1.90 is expected


def test_a_week_below_what_was_expected_proposes_a_training_and_less_does_not() -> None:
    first = look(LOW)
    assert (first["acceptanceBelowSince"], condition(first)) == (timestamp(NOW), None)
    before = look(LOW, days=6.99, held=first)
    assert before == first
    fell = look(LOW, days=7.0, held=before)
    assert condition(fell) == ("False", "AcceptanceFell")
    message = fell["conditions"][1]["message"]
    assert "demo has acceptance length 1.60 at K 3, and held-out prompts let expect 1.90 or more" in message
    assert look(LOW, days=7.5, held=fell)["retrainWith"] == fell["retrainWith"]
    back = look(GOOD, days=8.0, held=fell)
    assert condition(back) == ("True", "AcceptanceHolds")
    assert not {"acceptanceBelowSince", "retrainWith"} & back.keys()
    for status in (first, fell, back):
        TrainingStatus.model_validate(status)


def test_the_command_names_another_object_output_and_prompts_and_the_object_that_serves() -> None:
    first = look(LOW)
    command = look(LOW, days=7.0, held=first)["retrainWith"]
    day = timestamp(NOW + 7 * DAY)[:10].replace("-", "")
    assert command.startswith("kubectl get spectrain support -n models -o json | jq '")
    for part in (
        f'"name": "support-{day}"', '"namespace": "models"', f'.spec.output = "pvc://models/support-{day}"',
        f'.spec.data.prompts = "pvc://prompts/support-{day}.jsonl"', '.spec.tryOn = "demo"', "del(.status, ",
    ):  # fmt: skip
        assert part in command
    assert "labels" not in command, "those of an installer would make its object of it"
    copied = replace(TRAINING, copy_to=ModelSource(Scheme.S3, "bucket/heads"))
    assert f'.spec.copyTo = "s3://bucket/heads-{day}"' in look(LOW, days=7.0, held=first, of=copied)["retrainWith"]
    second = replace(TRAINING, name=f"support-{day}", queue="night")
    later = look(LOW, days=14.0, held={**first, "acceptanceBelowSince": timestamp(NOW + 7 * DAY)}, of=second)
    end = timestamp(NOW + 14 * DAY)[:10].replace("-", "")
    assert f'"name": "support-{end}"' in later["retrainWith"], "one day, not two"
    assert '"labels": {"kueue.x-k8s.io/queue-name": "night"}' in later["retrainWith"]


@pytest.mark.parametrize("start", ["pvc://prompts/", "hf://datasets/org/chats/"])
def test_names_that_have_no_room_for_the_day_are_cut_to_what_the_api_takes(start: str) -> None:
    for length in range(490, 513):
        for filler in ("a", "b/", "c-", "d.e_"):
            stem = f"{start}{filler * 512}"[: length - len(".jsonl")].rstrip("/")
            data = {"prompts": f"{stem}.jsonl", **({"revision": "v1"} if start.startswith("hf") else {})}
            spec = {**BODY["spec"], "data": data, "output": f"pvc://models/{filler * 512}"[:length].rstrip("/")}
            training = to_training({"metadata": {"name": f"a{'b-' * 24}c"}, "spec": spec}, IMAGE)
            command = look(LOW, days=7.0, held=look(LOW), of=training)["retrainWith"]
            assert "del(.status, .spec.data.revision)" in command
            prompts, output = re.findall(r'prompts = "([^"]+)" \| \.spec\.output = "([^"]+)"', command)[0]
            assert len(prompts) <= 512
            made = {**spec, "data": {"prompts": prompts}, "output": output}
            (name,) = re.findall(r'"name": "([^"]+)"', command)
            assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
            assert len(name) <= 50
            assert to_training({"metadata": {"name": name}, "spec": made}, IMAGE).prompts.uri != training.prompts.uri


@pytest.mark.parametrize(
    ("length", "rate", "holds"),
    [
        ("1.50", "50.0%", True), ("1.40", "40.0%", True), ("1.34", "34.0%", False),  # K 1: 1.50 is expected
        ("1.60", "30.0%", True), ("1.52", "26.0%", False),  # K 2: 1.70 at least
        ("1.72", "24.0%", True), ("1.70", "10.0%", False), ("2.50", "15.0%", True),  # K 3, 7 and 10: 1.90 at least
        ("1.00", "0.0%", False), ("65", "1e-320%", True), ("1.70", "28.0%", True),  # K unknown: as 1. 2.5: 1.80
    ],
)  # fmt: skip
def test_what_is_expected_depends_on_k(length: str, rate: str, holds: bool) -> None:
    assert ("acceptanceBelowSince" not in look(serving(length, rate))) is holds


def test_the_object_whose_acceptance_holds_best_counts() -> None:
    assert condition(look(LOW, serving("1.50", "50.0%", "other"))) == ("True", "AcceptanceHolds")


OTHERS: dict[str, dict[str, Any]] = {
    "off": serving("1.10", "3.0%", state="Off"),
    "old": serving("1.10", "3.0%", observedAt=timestamp(NOW - 2 * 3600)),
    "of tomorrow": serving("1.10", "3.0%", observedAt=timestamp(NOW + DAY)),
    "never": serving("1.10", "3.0%", observedAt=""),
    "no figures": serving("", ""),
    "absurd": serving("nan", "inf%"),
    "too long": serving("900", "50.0%"),
    "another": {**LOW, "spec": {"speculator": {"model": "pvc://models/support"}}},
    "another still serves": {**LOW, "status": {**LOW["status"], "pair": {"speculator": "pvc://models/support/model2"}}},
}


@pytest.mark.parametrize("case", OTHERS)
def test_without_figures_of_this_speculator_nothing_changes(case: str) -> None:
    below = look(LOW)
    for held in (DONE, below, look(LOW, days=7.0, held=below)):
        assert compare_acceptance(TRAINING, held, [OTHERS[case]], NOW) == held


@pytest.mark.parametrize("since", ["9999-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "?", timestamp(NOW - 31 * DAY)])
def test_a_time_that_cannot_be_begins_the_week_anew(since: str) -> None:
    found = look(LOW, held={**DONE, "acceptanceBelowSince": since})
    assert (found["acceptanceBelowSince"], condition(found)) == (timestamp(NOW), None)


def test_a_training_without_lengths_by_k_is_not_judged() -> None:
    for lengths in ([], None, ["1.5", "?"], ["1.5", 3], ["0.2"]):
        held = {**DONE, "expectedAcceptanceByK": lengths}
        assert look(LOW, held=held) == held


FIGURES = st.sampled_from(["1.00", "1.34", "2.0", "65", "1e300", "-1", "nan", "", "0.0%", "1e-320%", "100%", "101%"])


@given(
    held=st.dictionaries(st.sampled_from(sorted({*DONE, "acceptanceBelowSince", "retrainWith"})), absurd, max_size=4),
    bodies=st.lists(absurd, max_size=2),
    figures=st.dictionaries(st.sampled_from(["acceptanceLength", "acceptanceRate", "state"]), FIGURES | absurd),
    now=st.floats(0, 4e9),
)
def test_nothing_absurd_ends_in_an_error_or_in_a_loss(
    held: dict[str, Any], bodies: list[Any], figures: dict[str, Any], now: float
) -> None:
    status = DONE | held
    found = compare_acceptance(TRAINING, status, [*bodies, serving("1.50", "50.0%", **figures)], now)
    json.dumps(found)
    kept = {name: value for name, value in status.items() if name not in ("conditions", "acceptanceBelowSince")}
    assert {**found, **{name: value for name, value in kept.items() if name != "retrainWith"}} == found


@given(st.floats(1.0, 5.0), st.integers(1, 9))
def test_acceptance_is_below_if_and_only_if_it_is_below_nine_tenths(length: float, k: int) -> None:
    rate = 100 * (length - 1) / k
    found = look(serving(f"{length}", f"{min(rate, 100.0)}%"))
    expected = (1.5, 1.7, 1.9)[min(k, 3) - 1]
    if rate <= 100 and not math.isclose(length, 0.9 * expected) and rate >= 0.05:
        assert ("acceptanceBelowSince" in found) == (length < 0.9 * expected)
