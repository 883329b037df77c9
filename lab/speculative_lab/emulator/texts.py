"""Prompts to token counts, and made-up answers that depend on the prompt and the seed alone (pure).

Called by `http`. An answer never depends on K, load or time: the same prompt gives the same tokens byte for byte in
every process with the same seed, which is what makes the lossless check meaningful here.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

CHARACTERS_PER_TOKEN = 4
CHAT_TOKENS_PER_MESSAGE = 4
"""Role and separators that a chat template adds to each message; once more for the answer's opening."""
VOCABULARY = 4096
NATURAL_MEDIAN = 200
"""Tokens after which half of the answers end by themselves; log-normal with the spread below."""
NATURAL_SIGMA = 0.8
NATURAL_LIMIT = 4000
_ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "st", "tr")
_VOWELS = ("a", "e", "i", "o")
_SYLLABLES = tuple(onset + vowel for onset in _ONSETS for vowel in _VOWELS)
WORDS = tuple(f" {first}{second}" for first in _SYLLABLES for second in _SYLLABLES)
"""Text of each token: a blank and two syllables, 64 x 64 of them."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def count_tokens(text: str) -> int:
    """About one token for four characters, at least one."""
    return max(1, -(-len(text) // CHARACTERS_PER_TOKEN))


@dataclass(frozen=True)
class Answer:
    """The endless answer to one prompt; how much of it is given is decided by the request."""

    key: int
    corrupt_one_in: int = 0
    """Of so many tokens one is wrong; 0: none is."""

    @classmethod
    def to(cls, prompt: bytes, seed: int) -> Answer:
        """The answer to `prompt` (its canonical bytes) in a process with `seed`."""
        digest = hashlib.blake2b(prompt, digest_size=8, salt=(seed % 2**64).to_bytes(8, "little")).digest()
        return cls(int.from_bytes(digest, "little"))

    @cached_property
    def natural_length(self) -> int:
        """Tokens after which it ends by itself, unless told to ignore its end."""
        first, second = (_hash(self.key ^ 0xA5A5, 0, 2).astype(np.float64) + 0.5) / 2.0**64
        normal = math.sqrt(-2.0 * math.log(first)) * math.cos(2.0 * math.pi * second)
        return max(1, min(NATURAL_LIMIT, round(NATURAL_MEDIAN * math.exp(NATURAL_SIGMA * normal))))

    def tokens(self, first: int, last: int) -> list[int]:
        """Token ids `first` (from 0) to `last`, the last excluded."""
        right = _hash(self.key, first, last)
        wrong = (
            _hash(self.key ^ 0x5A5A, first, last) % np.uint64(self.corrupt_one_in) == 0 if self.corrupt_one_in else 0
        )
        found: list[int] = ((right % np.uint64(VOCABULARY)).astype(np.int64) ^ wrong).tolist()
        return found

    def text(self, first: int, last: int) -> str:
        """Text of those tokens."""
        return "".join([WORDS[token] for token in self.tokens(first, last)])


def _hash(key: int, first: int, last: int) -> NDArray[np.uint64]:
    """SplitMix64 of the counters first..last-1 from `key`."""
    with np.errstate(over="ignore"):
        state = np.uint64(key) + (np.arange(first, last, dtype=np.uint64) + np.uint64(1)) * _GOLDEN
        state = (state ^ (state >> np.uint64(30))) * _MIX_1
        state = (state ^ (state >> np.uint64(27))) * _MIX_2
        return np.asarray(state ^ (state >> np.uint64(31)))
