"""Pieces of a sentencepiece model, read from its message without the library. Called by `tokenizers`.

Fields after sentencepiece's `sentencepiece_model.proto`: `ModelProto.pieces = 1`; of a piece `piece = 1`, `type = 3`
with NORMAL 1 (the default), UNKNOWN 2, CONTROL 3, USER_DEFINED 4, UNUSED 5, BYTE 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_UNKNOWN, _CONTROL = 2, 3
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class Piece:
    text: bytes
    plain: bool
    """False for the unknown token and for control tokens such as `<s>`."""


def pieces(message: bytes) -> Iterator[Piece]:
    """Yield the pieces in the order of their numbers. Raises ValueError for what is no such message."""
    for number, content in _fields(message):
        if number == 1 and isinstance(content, bytes):
            inner = dict(_fields(content))
            text = inner.get(1, b"")
            if not isinstance(text, bytes):
                raise ValueError("a piece without text")
            yield Piece(text, inner.get(3, 1) not in (_UNKNOWN, _CONTROL))


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        if kind == _DELIMITED:
            size, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(message):
            raise ValueError("a field that ends beyond the message")
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
    raise ValueError("a number without end")
