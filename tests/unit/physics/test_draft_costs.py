"""Shapes of speculators by their kind, and the tokens of context that fit beside them."""

from __future__ import annotations

import dataclasses

import pytest

from speculative_operator.domain.models import ModelShape, PairFacts
from speculative_operator.domain.spec import Method
from speculative_operator.physics.catalog import find_accelerator, find_model
from speculative_operator.physics.draft_costs import kv_tokens, speculator_of, speculator_shape

QWEN = PairFacts(
    find_model("Qwen/Qwen3-8B"), find_model("Qwen/Qwen3-0.6B"), find_accelerator("H100-SXM"), method=Method.DRAFT_MODEL
)


def shape(name: str) -> ModelShape:
    found = find_model(name)
    assert found is not None
    return found


def test_drafters_differ_by_kind() -> None:
    verifier = shape("meta-llama/Llama-3.1-8B")
    sizes = {
        method: speculator_shape(verifier, method, 3).parameters / 1e9 for method in Method if not method.draft_free
    }
    assert sizes[Method.EAGLE3] == pytest.approx(0.35, abs=0.05)
    assert sizes[Method.EAGLE3] < sizes[Method.EAGLE] < sizes[Method.DFLASH]
    assert sizes[Method.DRAFT_MODEL] == pytest.approx(0.62, abs=0.02)
    assert (
        speculator_shape(verifier, Method.MEDUSA, 5).parameters
        > speculator_shape(verifier, Method.MEDUSA, 2).parameters
    )


def test_one_mtp_layer_of_a_mixture_reads_a_few_experts() -> None:
    verifier = shape("zai-org/GLM-4.7")
    drafter = speculator_shape(verifier, Method.MTP, 1)
    head = verifier.hidden_size * 128_000
    layer = verifier.parameters / verifier.layers
    assert 0.2 * layer < drafter.parameters - head < 0.5 * layer
    assert drafter.active_parameters - head == pytest.approx(verifier.active_parameters / verifier.layers)


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
