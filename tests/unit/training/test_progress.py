"""What lines of the library's logs tell of a training. The lines are as speculators 0.9.0 wrote them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_operator.training.progress import (
    MOST_CHARACTERS,
    Progress,
    answers_progress,
    expected_lengths,
    training_progress,
)
from speculative_operator.training.scripts import ENVIRONMENT

BEGUN = "[16:08:58] INFO     Training epoch {}/4 started                    trainer.py:739"
STEP = (
    "           INFO     train/loss_0=1.405, train/full_acc_0=0.280, train/cond_acc_0=0.280, train/loss_1=1.489, "
    "train/full_acc_1=0.060, train/cond_acc_1=0.216, train/loss={}, train/error_records=0.00e+00, "
    "profile/step_ms=1.80e+03, profile/tokens_per_s=1.01e+03, epoch={}, lr=0.002, global_step={}"
)
VALIDATED = (
    "[16:14:46] INFO     val/loss_0_epoch=0.834, val/full_acc_0_epoch=0.442, val/cond_acc_0_epoch=0.442, "
    "val/loss_1_epoch=0.849, val/full_acc_1_epoch=0.206, val/full_acc_2_epoch=0.104, val/loss_epoch=2.553, epoch=1"
)
ANSWERS = (
    "Generating responses: 0sample [00:00, ?sample/s]\rGenerating responses: 31sample [00:03, 16.63sample/s, ok=29, "
    "err=2, trunc=3, rps=1.0, tps=111]"
)


def test_a_running_epoch_is_told_with_its_last_step_and_the_last_validation() -> None:
    text = "\n".join(
        [BEGUN.format(1), STEP.format("4.428", 0, 310), VALIDATED, BEGUN.format(2), STEP.format("2.7", 1, 330)]
    )
    found = training_progress(text)
    assert found is not None
    assert found.acceptance_length == pytest.approx(1.752)
    assert replace(found, acceptance_length=None) == Progress(330, 1320, 2.7)


def test_the_number_of_steps_is_unknown_until_an_epoch_has_ended() -> None:
    text = "\n".join([BEGUN.format(1), STEP.format("15.4", 0, 20)])
    assert training_progress(text) == Progress(20, 0, 15.4)
    assert training_progress(text, per_epoch=324) == Progress(20, 1296, 15.4)


def test_a_log_that_was_cut_in_front_tells_what_it_still_has() -> None:
    assert training_progress(STEP.format("2.1", 2, 700)) == Progress(700, 0, 2.1)


def test_a_loss_that_is_no_number_is_unknown() -> None:
    assert training_progress(STEP.format("nan", 0, 20)) == Progress(20)


def test_answers_are_counted_with_those_that_failed() -> None:
    assert answers_progress(ANSWERS) == Progress(31, 0)
    assert answers_progress("Generating responses:  12%|#| 120/1000 [00:03, ok=119, err=1, trunc=3]") == Progress(
        120, 1000
    )


@given(st.text())
def test_other_text_tells_nothing(text: str) -> None:
    assert training_progress(text) is None
    assert answers_progress(text) is None


def test_the_length_is_one_more_than_the_shares_of_drafts_that_are_right() -> None:
    measured = {"full_acc_0": 0.5, "full_acc_1": 0.25, "full_acc_2": 0.125, "loss": 2.0}
    assert expected_lengths(measured) == [1.5, 1.75, 1.875]
    assert expected_lengths({"loss": 2.0}) == []


@given(st.dictionaries(st.sampled_from(["full_acc_0", "full_acc_1", "full_acc_3", "loss"]), st.floats()))
def test_a_length_is_possible_or_unknown(measured: dict[str, float]) -> None:
    assert all(math.isfinite(length) and 1.0 <= length <= 3.0 for length in expected_lengths(measured))


def test_shares_of_drafts_that_are_right_by_themselves_are_multiplied() -> None:
    """P-EAGLE; `full_acc` is their mean and no length."""
    measured = {"full_acc": 0.4, "position_0_acc": 0.5, "position_1_acc": 0.4, "position_2_acc": 0.2}
    assert expected_lengths(measured) == pytest.approx([1.5, 1.7, 1.74])
    assert expected_lengths(measured | {"position_1_acc": 1.5}) == []


@given(st.integers(1, 6).flatmap(lambda k: st.lists(st.lists(st.booleans(), min_size=k, max_size=k), min_size=1)))
def test_of_blocks_the_first_and_the_whole_length_are_exact(blocks: list[list[bool]]) -> None:
    """Measured as the library does (models/dflash/metrics.py), where the first place of a block is no draft."""
    runs = [next((at for at, right in enumerate(block) if not right), len(block)) for block in blocks]
    by_place = zip(*blocks, strict=True)
    measured = {f"position_{at}_acc": sum(right) / len(blocks) for at, right in enumerate(by_place, 1)}
    lengths = expected_lengths(measured | {"eal": 1 + sum(runs) / len(blocks)})
    truth = [1 + sum(min(run, k) for run in runs) / len(blocks) for k in range(1, len(blocks[0]) + 1)]
    assert (len(lengths), lengths[0], lengths[-1]) == (len(truth), *map(pytest.approx, (truth[0], truth[-1])))
    assert lengths == sorted(lengths)


def test_the_longest_lines_are_not_wrapped() -> None:
    """Of DFlash with the largest K; the library's log is wrapped at COLUMNS, and `progress` cuts lines, too."""
    places = [f"position_{at}_acc" for at in range(1, 32)]
    step = ", ".join(f"train/{name}=1.00e-05" for name in ["loss", "ce", "full_acc", *places, "eal", "error_records"])
    profile = ", ".join(f"profile/figure_{at}_ms=1.00e+03" for at in range(10))
    trained = f"[16:08:58] INFO     {step}, {profile}, epoch=0, lr=2.00e-05, global_step=123456     trainer.py:587"
    shares = ", ".join(f"val/{name}_epoch=0.500" for name in places)
    validated = f"[16:08:58] INFO     val/loss_epoch=2.553, {shares}, val/eal_epoch=4.000, epoch=1     trainer.py:671"
    found = training_progress(f"{validated}\n{trained}")
    assert found is not None
    assert (found.step, found.acceptance_length) == (123456, 4.0)
    assert max(len(trained), len(validated)) < int(ENVIRONMENT["COLUMNS"]) <= MOST_CHARACTERS


def test_drafts_that_are_right_together_are_told_better_than_by_products() -> None:
    assert expected_lengths({f"position_{at}_acc": 0.5 for at in (1, 2, 3)} | {"eal": 2.5}) == [1.5, 2.0, 2.5]


HOSTILE = (
    "train/loss=," * 6000 + "epoch=1," * 10000,
    "Generating responses:" * 4000 + "1/" * 20000 + "ok=1" * 10000,
    "val/" + "a_epoch" * 20000,
    "Training epoch " + "9" * 100_000 + "/9 started",
    "epoch=" + "9" * 5000 + ", train/loss=1, global_step=" + "9" * 5000,
    "\r" * 160_000,
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_no_log_takes_more_than_a_moment(line: str) -> None:
    """The image is the user's. A pattern that goes back and forth took hours for the first of these."""
    for text in (line, "\n".join([line] * 40)):
        answers_progress(text)
        training_progress(text)


def test_numbers_that_nobody_counts_to_are_not_read() -> None:
    assert training_progress("Training epoch 1/" + "9" * 5000 + " started") is None
