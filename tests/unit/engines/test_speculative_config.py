"""The two ways into vLLM's `--speculative-config`: adaptive verification, and the keys that the user adds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engines.building import SMALL_QWEN, spec, valued

from speculative_operator.domain.resolved import resolve
from speculative_operator.domain.spec import DeploymentSpec, Method, Mode, OffPolicy
from speculative_operator.domain.table import KTable
from speculative_operator.domain.vllm import ADAPTIVE, FIELDS_OF_KEYS
from speculative_operator.engines.pairs import pair_facts
from speculative_operator.engines.registry import engine_for

TABLE = KTable.from_rows([[1, 16, 3], [17, 256, 1]])
WORDS = st.text(max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9**9) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


def with_options(subject: DeploymentSpec, options: dict[str, Any]) -> DeploymentSpec:
    assert subject.speculator is not None
    return replace(subject, speculator=replace(subject.speculator, options=options))


def text_of(subject: DeploymentSpec) -> str:
    return valued(engine_for(subject).container(resolve(subject), TABLE).args, "--speculative-config")


def refused(subject: DeploymentSpec) -> list[str]:
    return [one.message for one in engine_for(subject).refusals(subject)]


@given(st.dictionaries(WORDS.filter(lambda key: key not in FIELDS_OF_KEYS), JSON, max_size=4))
def test_options_arrive_as_they_are_after_ours(options: dict[str, Any]) -> None:
    plain = spec(Method.EAGLE3)
    subject, ours = with_options(plain, options), json.loads(text_of(plain))
    assert refused(subject) == []
    text = text_of(subject)
    assert json.loads(text) == {**ours, **options}
    assert list(json.loads(text)) == [*ours, *options]
    assert "$" not in text, "the kubelet would expand $(NAME)"
    assert text.isascii()
    assert "\n" not in text


@given(st.sampled_from(sorted(FIELDS_OF_KEYS)), JSON)
def test_no_option_takes_the_place_of_a_field(key: str, value: Any) -> None:
    said = refused(with_options(spec(Method.EAGLE3), {key: value}))
    assert len(said) == 1
    assert f"set {FIELDS_OF_KEYS[key]} instead" in said[0]


def test_every_key_that_is_rendered_is_the_operators() -> None:
    full = spec(Method.NGRAM, adaptive_verification=True)
    assert full.speculator is not None
    ours = replace(
        full.speculator, prompt_lookup_min=1, prompt_lookup_max=2, quantization="fp8", parallel_drafting=True
    )
    ours = replace(ours, heterogeneous_vocabulary=True, tensor_parallel_size=1)
    assert set(json.loads(text_of(replace(full, speculator=ours)))) <= set(FIELDS_OF_KEYS)


def test_a_speculator_that_the_plug_in_does_not_skip_is_not_reported_as_skipped() -> None:
    subject = spec(Method.DRAFT_MODEL, source=SMALL_QWEN, off_policy=OffPolicy.SKIP)
    assert engine_for(subject).knobs(subject).can_skip
    asked = with_options(subject, {"draft_sample_method": "probabilistic"})
    assert not engine_for(asked).knobs(asked).can_skip
    assert engine_for(asked).knobs(asked).passes_at_zero == 1.0


def test_options_that_change_nothing_leave_the_skip_alone() -> None:
    subject = spec(Method.DRAFT_MODEL, source=SMALL_QWEN, off_policy=OffPolicy.SKIP)
    usual = {"draft_sample_method": "greedy", "moe_backend": "triton"}
    asked = with_options(subject, usual)
    assert engine_for(asked).knobs(asked) == engine_for(subject).knobs(subject)


def test_the_kv_cache_of_the_speculator_has_its_own_width() -> None:
    subject = spec(Method.DRAFT_MODEL, source=SMALL_QWEN)
    plain, small = pair_facts(subject), pair_facts(with_options(subject, {"kv_cache_dtype": "fp8"}))
    assert plain.verifier == small.verifier
    assert plain.speculator is not None and small.speculator is not None  # noqa: PT018
    assert (plain.speculator.kv_bytes_per_value, small.speculator.kv_bytes_per_value) == (2.0, 1.0)
    assert (small.kv_capacity_tokens or 0) > (plain.kv_capacity_tokens or 0)
    wide = spec(Method.DRAFT_MODEL, source=SMALL_QWEN, verifier={"kv_cache_dtype": "fp8"})
    mixed = pair_facts(with_options(wide, {"kv_cache_dtype": "bfloat16"}))
    assert mixed.speculator is not None
    assert mixed.speculator.kv_bytes_per_value == 2.0


@pytest.mark.parametrize("method", list(ADAPTIVE))
def test_adaptive_verification_is_asked_for_with_every_method_that_has_it(method: Method) -> None:
    subject = spec(method, adaptive_verification=True)
    assert refused(subject) == []
    assert json.loads(text_of(subject))["enable_adaptive_verification"] is True
    assert "enable_adaptive_verification" not in text_of(spec(method))


def test_it_frees_k_of_powers_of_two() -> None:
    plain, adaptive = spec(max_speculative_tokens=6), spec(max_speculative_tokens=6, adaptive_verification=True)
    assert engine_for(plain).knobs(plain).ks == (0, 1, 3, 6)
    assert engine_for(adaptive).knobs(adaptive).ks == (0, 1, 2, 3, 4, 5, 6)
    boot = json.loads(text_of(adaptive))["num_speculative_tokens_per_batch_size"]
    assert sorted({k for _, _, k in boot}) == [0, 1, 2, 3, 4, 5, 6]


def test_the_table_stays_the_cap_on_drafting() -> None:
    fixed = spec(adaptive_verification=True, mode=Mode.STATIC, num_speculative_tokens=3)
    found = json.loads(text_of(fixed))
    assert (found["num_speculative_tokens"], found["enable_adaptive_verification"]) == (3, True)
    assert "num_speculative_tokens_per_batch_size" not in found


def test_a_pod_that_serves_without_a_speculator_is_refused_nothing() -> None:
    """`mode: Disabled` is the way out of trouble, so that no other field may stand in its way."""
    subject = with_options(spec(adaptive_verification=True, mode=Mode.DISABLED, version="0.20.0"), {"method": "x"})
    assert refused(subject) == []


@pytest.mark.parametrize("args", [("--attention-backend=TRITON_ATTN",), ("--attention_backend", "TRITON_ATTN")])
def test_the_users_choice_of_attention_counts(args: tuple[str, ...]) -> None:
    old = spec(adaptive_verification=True, args=args)
    assert refused(replace(old, accelerator=replace(old.accelerator, product="A100-80GB"))) == []
    plain = spec(adaptive_verification=True)
    assert len(refused(replace(plain, accelerator=replace(plain.accelerator, product="A100-80GB")))) == 1
    assert refused(replace(plain, accelerator=replace(plain.accelerator, product="unheard-of"))) == []
