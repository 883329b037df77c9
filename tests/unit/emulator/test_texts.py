"""Answers depend on prompt and seed alone."""

from __future__ import annotations

import statistics

from hypothesis import given
from hypothesis import strategies as st

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
