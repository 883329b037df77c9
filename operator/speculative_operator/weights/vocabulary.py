"""Tokens and their numbers, held compactly and summed up as a hash. Used by `tokenizers`.

The hash: sha256 over `number NUL token LF` in UTF-8, ascending by number; its first sixteen hexadecimal digits. Tokens
that a model lists as added too are left out: whether they stand in the vocabulary as well is a habit of converters.
"""

from __future__ import annotations

import hashlib
import operator
from array import array
from collections.abc import Collection, Iterable, Mapping
from itertools import islice

DIGITS = 16


class Vocabulary:
    """A vocabulary of hundreds of thousands of tokens in a few megabytes."""

    def __init__(self) -> None:
        self._numbers = array("q")
        self._ends = array("q")
        self._tokens = bytearray()

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, token: bytes, number: int) -> None:
        """Add a token with its number. Raises OverflowError for a number beyond 64 bits."""
        self._numbers.append(number)
        self._tokens += token
        self._ends.append(len(self._tokens))

    def count_and_hash(self, left_out: Collection[bytes] = ()) -> tuple[int, str]:
        """Number of tokens that remain without `left_out`, and their hash; an empty hash where none remain."""
        digest, count, numbers = hashlib.sha256(), 0, self._numbers
        ends, tokens = self._ends, bytes(self._tokens)
        order: Iterable[int] = range(len(numbers))
        if any(map(operator.gt, numbers, islice(numbers, 1, None))):
            order = sorted(order, key=numbers.__getitem__)
        for at in order:
            token = tokens[ends[at - 1] if at else 0 : ends[at]]
            if token not in left_out:
                digest.update(b"%d\0%b\n" % (numbers[at], token))
                count += 1
        return count, digest.hexdigest()[:DIGITS] if count else ""


def hash_of(tokens: Mapping[str, int]) -> str:
    """Hash of a few tokens, made as that of a whole vocabulary."""
    few = Vocabulary()
    for token, number in tokens.items():
        few.add(encode(token), number)
    return few.count_and_hash()[1]


def collect(pairs: Iterable[tuple[str, int]]) -> Vocabulary:
    """The vocabulary of pairs of token and number."""
    all_of_them = Vocabulary()
    for token, number in pairs:
        all_of_them.add(encode(token), number)
    return all_of_them


def encode(token: str) -> bytes:
    """The bytes of a token that enter the hash; halves of surrogate pairs, which JSON allows, are taken too."""
    return token.encode("utf-8", "surrogatepass")
