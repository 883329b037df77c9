"""Tokens of context that fit: by value, by order, and what stays unknown."""

from __future__ import annotations

import dataclasses

import pytest

from speculative_operator.domain.models import PairFacts
from speculative_operator.domain.spec import Method
from speculative_operator.physics.catalog import find_accelerator, find_model
from speculative_operator.physics.memory import kv_tokens, speculator_of

QWEN = PairFacts(
    find_model("Qwen/Qwen3-8B"), find_model("Qwen/Qwen3-0.6B"), find_accelerator("H100-SXM"), method=Method.DRAFT_MODEL
)


def test_capacity_is_what_the_weights_leave() -> None:
    room = 80e9 * 0.9 - 3e9 - 2 * 8190735360
    assert kv_tokens(QWEN, with_speculator=False) == int(room / 147456)
    with_speculator = room - 2 * 596049920
    assert kv_tokens(QWEN, with_speculator=True) == int(with_speculator / (147456 + 114688))


def test_a_head_holds_little_and_a_lookup_nothing() -> None:
    bare = kv_tokens(QWEN, with_speculator=False)
    head = dataclasses.replace(QWEN, speculator=None, method=Method.EAGLE3)
    lookup = dataclasses.replace(QWEN, speculator=None, method=Method.NGRAM)
    with_head = kv_tokens(head, with_speculator=True)
    assert bare is not None
    assert with_head is not None
    assert 0.93 * bare < with_head < bare
    assert kv_tokens(lookup, with_speculator=True) == bare


def test_more_memory_more_tokens() -> None:
    half, most = (kv_tokens(QWEN, with_speculator=True, memory_share=share) for share in (0.5, 0.9))
    two = kv_tokens(dataclasses.replace(QWEN, accelerators=2), with_speculator=True)
    assert half is not None
    assert most is not None
    assert two is not None
    assert half < most < two / 2


def test_weights_that_do_not_fit_leave_nothing() -> None:
    large = dataclasses.replace(QWEN, verifier=find_model("meta-llama/Llama-3.1-70B-Instruct"))
    assert kv_tokens(large, with_speculator=True) == 0


def test_what_is_stated_comes_first_and_what_is_unknown_stays_unknown() -> None:
    stated = dataclasses.replace(QWEN, kv_capacity_tokens=1160000, kv_capacity_tokens_without_speculator=1560000)
    assert kv_tokens(stated, with_speculator=True) == 1160000
    assert kv_tokens(stated, with_speculator=False) == 1560000
    assert kv_tokens(dataclasses.replace(QWEN, verifier=None), with_speculator=True) is None
    assert kv_tokens(dataclasses.replace(QWEN, accelerator=None), with_speculator=False) is None


@pytest.mark.parametrize("method", [method for method in Method if not method.draft_free])
def test_drafters_of_unknown_shape_are_smaller_than_the_verifier(method: Method) -> None:
    drafter = speculator_of(dataclasses.replace(QWEN, speculator=None, method=method))
    assert drafter is not None
    assert QWEN.verifier is not None
    assert 0 < drafter.parameters < QWEN.verifier.parameters / 2
    assert drafter.kv_bytes_per_token < QWEN.verifier.kv_bytes_per_token


def test_no_drafter_where_none_is_loaded() -> None:
    assert speculator_of(dataclasses.replace(QWEN, speculator=None, method=Method.SUFFIX)) is None
    assert speculator_of(dataclasses.replace(QWEN, speculator=None, method=None)) is None
