"""When answers with drafts count as those without: ties, defects, and what an engine does not repeat by itself."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_operator.outputs.judge import NEAR, Answer, Judgement, Kind, Run, Written, judge
from speculative_operator.outputs.record import Record, Verdict, read

LENGTH = 8


def token(name: str, logprob: float = -0.1, **others: float) -> Written:
    return Written(name, logprob, {name: logprob, **others})


PLAIN: list[Written] = [token(f"t{place}", other=-4.0) for place in range(LENGTH)]


def put(answer: Answer, place: int, written: Written) -> list[Written]:
    """The answer with another token at a place, and what would follow it."""
    return [*answer[:place], written, *(token(f"else{number}") for number in range(place + 1, len(answer)))]


def judged(without: Answer, drafted: Answer, control: Answer | None = None) -> Judgement:
    return judge([without], [control if control is not None else without], [drafted])


places = st.integers(0, LENGTH - 1)


def test_the_same_is_the_same() -> None:
    found = judged(PLAIN, PLAIN)
    assert (found.verdict, found.tokens, found.partings) == (Verdict.SAME, LENGTH, ())


@given(st.lists(st.floats(-0.05, 0.05), min_size=LENGTH, max_size=LENGTH))
def test_numerics_alone_are_no_difference(noise: list[float]) -> None:
    noisy = [replace(one, logprob=one.logprob + shift) for one, shift in zip(PLAIN, noise, strict=True)]
    assert judged(PLAIN, noisy).verdict is Verdict.SAME


@given(places, st.floats(0.0, NEAR - 0.01), st.floats(-0.2, 0.2))
def test_tokens_about_equally_likely_are_a_tie(place: int, gap: float, shift: float) -> None:
    without = put(PLAIN, place, token("one", -0.7, two=-0.7 - gap))
    drafted = put(PLAIN, place, token("two", -0.7 + shift, one=-0.7 - gap + shift))
    (parting,) = judged(without, drafted).partings
    assert (parting.kind, parting.position) == (Kind.TIE, place + 1)
    assert judged(without, drafted).verdict is Verdict.TIES


@given(places, st.floats(NEAR + 0.01, 20.0))
def test_one_token_that_the_verifier_would_not_write_is_found(place: int, gap: float) -> None:
    """Whether the distribution is the same, or another one."""
    without = put(PLAIN, place, token("one", -0.1, two=-0.1 - gap))
    for wrong in (token("two", -0.1 - gap, one=-0.1), token("two", -0.1, one=-0.1 - gap), token("two", -0.1)):
        found = judged(without, put(PLAIN, place, wrong))
        assert found.verdict is Verdict.DIFFERENT
        assert (found.partings[0].position, found.tokens) == (place + 1, place)


def test_a_tie_in_one_run_excuses_no_other_distribution() -> None:
    without = put(PLAIN, 3, token("one", -0.7, two=-0.8))
    assert judged(without, put(PLAIN, 3, token("two", -0.01, one=-5.0))).verdict is Verdict.DIFFERENT


@given(places, places)
def test_what_the_engine_does_not_repeat_by_itself_counts_for_nothing(drafts: int, alone: int) -> None:
    control, drafted = put(PLAIN, alone, token("a")), put(PLAIN, drafts, token("b"))
    found = judged(PLAIN, drafted, control)
    assert found.partings[0].kind is (Kind.DIFFERENT if drafts < alone else Kind.UNSTEADY)
    assert judged(PLAIN, control, control).verdict is Verdict.SAME


def test_an_answer_that_ends_early_is_different() -> None:
    assert judged(PLAIN, PLAIN[:-1]).verdict is Verdict.DIFFERENT


def test_the_same_tokens_from_another_distribution_are_different() -> None:
    """Beyond what the engine's own distributions differ by."""
    shifted = [replace(one, logprob=one.logprob - 0.3) for one in PLAIN]
    found = judged(PLAIN, shifted)
    assert (found.verdict, found.partings) == (Verdict.DIFFERENT, ())
    assert judged(PLAIN, shifted, control=shifted).verdict is Verdict.SAME
    absurd = [replace(one, logprob=float("nan")) for one in PLAIN]
    assert judged(PLAIN, absurd).verdict is Verdict.DIFFERENT


def test_runs_over_other_prompts_are_refused() -> None:
    runs: Run = [PLAIN, PLAIN]
    with pytest.raises(ValueError, match="shorter"):
        judge(runs, runs, [PLAIN])


def test_a_record_is_read_as_it_was_written() -> None:
    record = Record(Verdict.TIES, "abc", "2026-11-28T08:00:00Z", 24, 3000, 1, 0)
    assert read(record.to_text()) == record


@given(st.text(max_size=40) | st.sampled_from(["{}", "null", "[1]", '{"verdict": "Same"}']))
def test_whatever_else_is_written_is_no_record(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    "change",
    [{"verdict": "Fine"}, {"template": ""}, {"template": "x" * 64}, {"at": "now"}, {"tokens": -1}, {"at": 7}],
)
def test_a_record_with_an_absurd_part_is_none(change: dict[str, object]) -> None:
    record = Record(Verdict.SAME, "abc", "2026-11-28T08:00:00Z", 24, 3000, 1, 0)
    assert read(json.dumps(json.loads(record.to_text()) | change)) is None
