"""JSON walked in pieces says what JSON read whole says, wherever the pieces are cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_operator.weights.jsonwalk import JsonWalk

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(['"', "\\", '\\"', "}{][", "é😀", "\n"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def pieces(content: bytes, size: int) -> Iterator[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))


def walk(value: Any, size: int, indent: int | None = None, ascii_only: bool = False) -> JsonWalk:
    return JsonWalk(pieces(json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode(), size))


def taken(walking: JsonWalk, most: int = 1 << 20) -> dict[str, Any]:
    return {key: walking.value(most) for key in walking.members()}


@given(
    st.dictionaries(TEXTS, VALUES, max_size=6), st.integers(1, 40), st.sampled_from([None, 2]), st.booleans(), st.data()
)
def test_members_taken_whole_or_skipped(
    whole: dict[str, Any], size: int, indent: int | None, ascii_only: bool, data: st.DataObject
) -> None:
    seen: dict[str, Any] = {}
    taking = walk(whole, size, indent, ascii_only)
    for key in taking.members():
        if data.draw(st.booleans()):
            seen[key] = taking.value()
        else:
            taking.skip()
            seen[key] = whole[key]
    assert seen == whole


@given(st.dictionaries(TEXTS, st.integers(-5, 10**9), max_size=30), st.integers(1, 64), st.booleans())
def test_numbered(vocabulary: dict[str, int], size: int, ascii_only: bool) -> None:
    taking = walk({"vocab": vocabulary, "after": 1}, size, None, ascii_only)
    members = taking.members()
    assert next(members) == "vocab"
    assert dict(taking.numbers()) == vocabulary
    assert next(members) == "after"
    assert taking.value() == 1


@given(st.lists(st.tuples(TEXTS, st.floats(-99, 99) | st.integers(-9, 9)), max_size=20), st.integers(1, 64))
def test_scored(pieces_of: list[tuple[str, float]], size: int) -> None:
    found = list(walk([list(one) for one in pieces_of], size).scores())
    assert found == [(text, at) for at, (text, _) in enumerate(pieces_of)]


@given(st.binary(max_size=60), st.integers(1, 7))
def test_what_is_no_json_is_refused_and_never_hangs(content: bytes, size: int) -> None:
    taking = JsonWalk(pieces(content, size))
    try:
        found = taken(taking)
    except ValueError:
        return
    # What was understood had the keys of an object.
    assert all(isinstance(key, str) for key in found)
    assert content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")


@pytest.mark.parametrize(
    "text", ["", "[", '{"a"', '{"a": ', '{"a": [1, ', '{"a": "b', '{"a" 1}', '{"a": 1 "b": 2}', "[" * 9999]
)
def test_cut_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no JSON|where one of|nested too deeply"):
        taken(JsonWalk([text.encode()]))


def test_a_value_beyond_its_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 1000 characters"):
        taken(walk({"a": "x" * 5000}, 100), most=1000)


def test_no_more_is_read_than_was_asked_for() -> None:
    read = 0

    def blocks() -> Iterator[bytes]:
        nonlocal read
        for block in pieces(json.dumps({"first": {"a": 1}, "rest": ["x" * 100] * 1000}).encode(), 512):
            read += 1
            yield block

    taking = JsonWalk(blocks())
    next(taking.members())
    assert list(taking.numbers()) == [("a", 1)]
    assert read == 1
