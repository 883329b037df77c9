"""Answers depend on prompt and seed alone."""

from __future__ import annotations

import statistics
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from speculative_lab.emulator.http.answers import logprobs_of
from speculative_lab.emulator.texts import NATURAL_LIMIT, WORDS, Answer, count_tokens


@given(st.binary(), st.integers(-5, 5), st.lists(st.integers(1, 9), max_size=8))
def test_pieces_join_to_the_whole(prompt: bytes, seed: int, widths: list[int]) -> None:
    """However a stream is cut, it says the same."""
    answer, start, pieces = Answer.to(prompt, seed), 0, ""
    for width in widths:
        pieces += answer.text(start, start + width)
        start += width
    assert pieces == Answer.to(prompt, seed).text(0, start)


def test_prompts_and_seeds_differ() -> None:
    texts = {Answer.to(prompt, seed).text(0, 20) for prompt in (b"a", b"b") for seed in (0, 1)}
    assert len(texts) == 4


def test_known_answer() -> None:
    """Pinned: another process, release or platform must say the same for the lossless check to mean anything."""
    assert Answer.to(b"hello", 0).text(0, 3) == " staro mole poba"


def test_words_are_distinct() -> None:
    assert len(set(WORDS)) == len(WORDS) == 4096


def test_natural_lengths_spread_around_their_median() -> None:
    lengths = [Answer.to(str(number).encode(), 0).natural_length for number in range(2000)]
    assert 180 < statistics.median(lengths) < 220
    assert 1 <= min(lengths) < 40
    assert 1000 < max(lengths) <= NATURAL_LIMIT


def test_tokens_of_a_text() -> None:
    assert (count_tokens(""), count_tokens("abcd"), count_tokens("abcde")) == (1, 1, 2)


def test_corruption_is_rare_stays_where_it_is_and_follows_the_seed() -> None:
    count = 200_000
    clean = Answer.to(b"hello", 0)
    written = replace(clean, corrupt_one_in=10_000)
    wrong = _different(clean, written, 0, count)
    assert 8 <= len(wrong) <= 36
    assert _different(clean, written, wrong[3], wrong[3] + 1) == [wrong[3]], "however the stream is cut"
    other = Answer.to(b"hello", 1)
    assert _different(other, replace(other, corrupt_one_in=10_000), 0, count) != wrong


def _different(one: Answer, other: Answer, first: int, last: int) -> list[int]:
    both = enumerate(zip(one.tokens(first, last), other.tokens(first, last), strict=True), first)
    return [place for place, (a, b) in both if a != b]


def test_logprobs_tell_a_wrong_token_from_the_right_one() -> None:
    right = Answer.to(b"hello", 0)
    written = replace(right, corrupt_one_in=2)
    told = logprobs_of(written, right, 50, 5, ids=True)
    assert told["tokens"] == [f"token_id:{token}" for token in written.tokens(0, 50)]
    wrong = [place for place, token in enumerate(right.tokens(0, 50)) if told["tokens"][place] != f"token_id:{token}"]
    assert wrong == [place for place, value in enumerate(told["token_logprobs"]) if value < -0.1]
    assert 10 < len(wrong) < 40
