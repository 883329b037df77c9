"""JSON texts of many megabytes, walked piece by piece: a vocabulary of 30 MB in the memory of one block. Used for
tokenizers and for headers of safetensors files.

The caller walks: for every key that `members` gives, it takes the value by exactly one of `value`, `skip`, `keys`,
`numbers` or `scores`, or walks no further. Everything raises ValueError for what is no JSON.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

_STRING = r'"([^"\\]*(?:\\.[^"\\]*)*)"'
_SPACE = re.compile(r"[ \t\r\n]*")
_KEY = re.compile(rf"\s*{_STRING}\s*:", re.DOTALL)
_NUMBERED = re.compile(rf"\s*{_STRING}\s*:\s*(-?\d+)\s*([,}}])", re.DOTALL)
_SCORED = re.compile(rf"\s*\[\s*{_STRING}\s*,\s*[-+.\deE]+\s*\]\s*([,\]])", re.DOTALL)
_NESTING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]|[^"\[\]{}]+', re.DOTALL)
_DECODER = json.JSONDecoder()
_LARGEST = 64 << 20
"""Most characters of a single value that is taken whole."""


class JsonWalk:
    """One JSON text, read forward from blocks of UTF-8."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self._decode = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at = 0
        self._ended = False

    def members(self) -> Iterator[str]:
        """The keys of the object that begins here; the caller takes each value before it asks for the next key."""
        self._expect("{")
        if self._next() == "}":
            self._at += 1
            return
        while True:
            yield _unescape(self._match(_KEY)[1])
            if self._expect(",}") == "}":
                return

    def value(self, most: int = _LARGEST) -> Any:
        """The value that begins here, whole; of at most `most` characters."""
        self._next()
        wanted = 256
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
                if end < len(self._text) or self._ended:
                    self._at = end
                    return value
            except json.JSONDecodeError as error:
                if self._ended:
                    raise ValueError(f"no JSON value: {error.msg}") from error
            except RecursionError as error:
                raise ValueError("nested too deeply") from error
            wanted = 2 * max(wanted, len(self._text) - self._at)
            if wanted > 2 * most:
                raise ValueError(f"a value of more than {most} characters")
            self._fill(wanted)

    def skip(self) -> None:
        """Pass over the value that begins here, whatever its size."""
        if self._next() not in "[{":
            self.value()
            return
        depth = 0
        while True:
            part = self._match(_NESTING)[0]
            if part in ("[", "{"):
                depth += 1
            elif part in ("]", "}"):
                depth -= 1
                if depth == 0:
                    return

    def numbers(self) -> Iterator[tuple[str, int]]:
        """Yield names and numbers of the object of whole numbers that begins here: `{"token": 17, ...}`."""
        self._expect("{")
        if self._next() == "}":
            self._at += 1
            return
        while True:
            # The common case without a call: this loop runs for every token of a vocabulary.
            match = _NUMBERED.match(self._text, self._at)
            if match is None:
                match = self._match(_NUMBERED)
            self._at = match.end()
            name, number, end = match.groups()
            yield _unescape(name) if "\\" in name else name, int(number)
            if end == "}":
                return

    def scores(self) -> Iterator[tuple[str, int]]:
        """Yield tokens with their positions from the array of pairs that begins here: `[["token", -3.5], ...]`."""
        self._expect("[")
        if self._next() == "]":
            self._at += 1
            return
        position = 0
        while True:
            match = self._match(_SCORED)
            yield _unescape(match[1]), position
            if match[2] == "]":
                return
            position += 1

    def next_is(self, character: str) -> bool:
        """Whether the value that begins here begins with `character`."""
        return self._next() == character

    def _expect(self, characters: str) -> str:
        character = self._next()
        if not character or character not in characters:
            raise ValueError(f"{character!r} where one of {characters!r} belongs")
        self._at += 1
        return character

    def _next(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._fill(1)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        wanted = 1
        while True:
            match = pattern.match(self._text, self._at)
            if match:
                self._at = match.end()
                return match
            if self._ended or len(self._text) - self._at > _LARGEST:
                raise ValueError(f"no JSON at {self._text[self._at : self._at + 40]!r}")
            # Twice as much as there is: a long string is not scanned from its start with every block.
            wanted = 2 * max(wanted, len(self._text) - self._at)
            self._fill(wanted)

    def _fill(self, wanted: int) -> None:
        """Read until `wanted` characters are ahead, or all that remain."""
        parts = [self._text[self._at :]]
        ahead = len(parts[0])
        while ahead < wanted and not self._ended:
            block = next(self._blocks, None)
            text = self._decode.decode(block or b"", final=block is None)
            self._ended = block is None
            parts.append(text)
            ahead += len(text)
        self._text, self._at = "".join(parts), 0


def _unescape(text: str) -> str:
    return json.loads(f'"{text}"', strict=False) if "\\" in text else text
