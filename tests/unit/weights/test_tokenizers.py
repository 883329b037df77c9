"""Tokenizers in every form that models bring them in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.weights import made

from speculative_operator.domain.models import TokenizerFacts
from speculative_operator.domain.reasons import Reason
from speculative_operator.weights import tokenizers
from speculative_operator.weights.local import open_folder
from speculative_operator.weights.source import WeightsError
from speculative_operator.weights.tokenizers import collect, count_and_hash

PLAIN = {"a": 0, "b": 1, "Ġé": 2, '"\\': 3}
ADDED = {"<s>": 4, "</s>": 5}


def facts(folder: Path, files: Mapping[str, Any]) -> TokenizerFacts:
    """Of a folder with these files: texts and bytes as they are, the rest as JSON."""
    for name, content in files.items():
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    source = open_folder(folder)
    return tokenizers.facts_of(source, {entry.path: entry for entry in source.files})


def refused(folder: Path, files: Mapping[str, Any]) -> WeightsError:
    with pytest.raises(WeightsError) as caught:
        facts(folder, files)
    return caught.value


@pytest.mark.parametrize("first", ["version", "added_tokens", "model"])
@pytest.mark.parametrize("inner", ["type", "vocab", "merges"])
def test_the_order_of_a_tokenizers_parts_does_not_matter(tmp_path: Path, first: str, inner: str) -> None:
    text = made.tokenizer({**PLAIN, "<s>": 4}, ADDED)
    text["model"] = {inner: text["model"][inner], **text["model"]}
    found = facts(tmp_path, {"tokenizer.json": {first: text[first], **text}})
    assert found == TokenizerFacts("BPE", 6, made.hash_by_hand(PLAIN.items()), made.hash_by_hand(ADDED.items()), {}, "")


@pytest.mark.parametrize(
    ("changed", "same"),
    [({"a": 1, "b": 0}, False), ({"a": 0, "c": 1}, False), ({"b": 1, "a": 0}, True)],
)
def test_the_hash_is_of_tokens_and_numbers(tmp_path: Path, changed: dict[str, int], same: bool) -> None:
    one = facts(tmp_path, {"tokenizer.json": made.tokenizer({"a": 0, "b": 1}, {})})
    other = facts(tmp_path, {"tokenizer.json": made.tokenizer(changed, {})})
    assert (one.vocabulary_hash == other.vocabulary_hash) is same


def test_unigram_numbers_by_position(tmp_path: Path) -> None:
    pieces = [["<unk>", 0], ["▁a", -1.5], ["b", -2e-3]]
    text = {"added_tokens": [{"id": 0, "content": "<unk>"}], "model": {"type": "Unigram", "unk_id": 0, "vocab": pieces}}
    found = facts(tmp_path, {"tokenizer.json": text})
    assert (found.kind, found.tokens) == ("Unigram", 3)
    assert found.vocabulary_hash == made.hash_by_hand([("▁a", 1), ("b", 2)])


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ({"vocab": {"a": 0}, "merges": []}, "BPE"),
        ({"vocab": [["a", 0]]}, "Unigram"),
        ({"type": "WordPiece", "vocab": {"a": 0}}, "WordPiece"),
    ],
)
def test_kinds(tmp_path: Path, model: dict[str, Any], kind: str) -> None:
    assert facts(tmp_path, {"tokenizer.json": {"added_tokens": [], "model": model}}).kind == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("tokenizer.model", "sentencepiece"),
        ("tiktoken.model", "tiktoken"),
        ("qwen.tiktoken", "tiktoken"),
        ("tekken.json", "tekken"),
    ],
)
def test_of_other_files_the_hash_stands_for_that_of_the_vocabulary(tmp_path: Path, name: str, kind: str) -> None:
    config = {"added_tokens_decoder": {"2": {"content": "<|end|>"}, "x": {"content": "y"}}}
    found = facts(tmp_path, {name: b"any", "tokenizer_config.json": config})
    assert (found.kind, found.tokens) == (kind, 0)
    assert found.vocabulary_hash == hashlib.sha256(b"any").hexdigest()[:16]
    assert found.added_hash == made.hash_by_hand([("<|end|>", 2)])


def test_plain_vocabulary_with_added_tokens(tmp_path: Path) -> None:
    found = facts(tmp_path, {"vocab.json": PLAIN, "merges.txt": "a b", "added_tokens.json": ADDED})
    assert (found.kind, found.tokens) == ("BPE", 6)
    assert found.vocabulary_hash == made.hash_by_hand(PLAIN.items())
    assert found.added_hash == made.hash_by_hand(ADDED.items())


def test_no_tokenizer(tmp_path: Path) -> None:
    assert facts(tmp_path, {"config.json": {}}) == TokenizerFacts()


def test_special_tokens_and_templates(tmp_path: Path) -> None:
    files: dict[str, Any] = {
        "special_tokens_map.json": {"bos_token": "<s>", "eos_token": "<old>"},
        "tokenizer_config.json": {
            "eos_token": {"content": "<e>", "lstrip": False},
            "unk_token": None,
            "chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d\n"}],
        },
    }
    found = facts(tmp_path, files)
    assert found.special == {"bos_token": "<s>", "eos_token": "<e>"}
    files["chat_template.jinja"] = "d"
    assert facts(tmp_path, files).chat_template_hash == found.chat_template_hash != ""
    files["chat_template.jinja"] = "e"
    assert facts(tmp_path, files).chat_template_hash != found.chat_template_hash


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "{"),
        ("tokenizer.json", "[]"),
        ("tokenizer.json", '{"model": {"vocab": {"a": "b"}}}'),
        ("tokenizer.json", '{"added_tokens": [{"id": 1}]}'),
        ("tokenizer.json", '{"model": {"vocab": {"a": 99999999999999999999999}}}'),
        ("tokenizer_config.json", "not json"),
        ("tokenizer_config.json", "[1]"),
        ("vocab.json", "[]"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, content: str) -> None:
    error = refused(tmp_path, {name: content})
    assert (error.reason, error.file) == (Reason.PAIR_UNREAD, name)
    assert error.remedy


@given(st.dictionaries(st.text(max_size=5), st.integers(0, 10**6), max_size=40), st.data())
def test_a_vocabulary_is_what_it_was_made_of(tokens: dict[str, int], data: st.DataObject) -> None:
    unique = {token: number for number, token in {number: token for token, number in tokens.items()}.items()}
    left_out = data.draw(st.sets(st.sampled_from(sorted(unique)))) if unique else set()
    remaining = [(token, number) for token, number in unique.items() if token not in left_out]
    left = {token.encode("utf-8", "surrogatepass") for token in left_out}
    count, found = count_and_hash(collect(unique.items()), left)
    assert count == len(remaining)
    assert found == (made.hash_by_hand(remaining) if remaining else "")
