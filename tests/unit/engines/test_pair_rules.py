"""The rules that pairs are judged by agree with the capability matrix and the adapters, release by release."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.engines.building import spec

from speculative_operator.domain.spec import EngineSettings, EngineType, Method, Mode, Speculation
from speculative_operator.engines.pairs import MTP_TYPES, NO_INNER_STATES, rules_of
from speculative_operator.engines.registry import engine_for


def at(version: str, engine: EngineType = EngineType.VLLM) -> EngineSettings:
    return EngineSettings(engine, version)


@pytest.mark.parametrize(
    ("version", "heterogeneous", "lists", "stretches"),
    [("0.24.0", False, True, False), ("0.25.1", True, True, False), ("0.32.0", True, True, True),
     ("0.33.0", True, False, True), ("0.32.0+rhai1", True, True, True)],
)  # fmt: skip
def test_what_a_release_can(version: str, heterogeneous: bool, lists: bool, stretches: bool) -> None:
    rules = rules_of(replace(spec(), engine=at(version)))
    assert (rules.engine, rules.version) == (EngineType.VLLM, version)
    assert rules.heterogeneous is heterogeneous
    assert (rules.speculators_types is not None, rules.mtp_types is not None) == (lists, lists)
    assert rules.stretches_positions is stretches


@pytest.mark.parametrize("k", [1, 3, 5])
def test_the_largest_k_is_what_the_engine_is_started_with(k: int) -> None:
    static = replace(spec(), speculation=Speculation(Mode.STATIC, num_speculative_tokens=k))
    assert rules_of(static).largest_k == k
    automatic = replace(spec(), speculation=Speculation(max_speculative_tokens=8))
    assert rules_of(automatic).largest_k == max(engine_for(automatic).knobs(automatic).ks)
    assert rules_of(replace(spec(), speculation=Speculation(Mode.DISABLED))).largest_k is None


def test_refusals_are_those_of_the_adapter_but_for_where_weights_lie() -> None:
    assert rules_of(spec()).refusals == ()
    wanted = spec()
    assert wanted.speculator is not None
    refused = replace(wanted, speculator=replace(wanted.speculator, method=Method.DRAFT_MODEL), engine=at("0.13.0"))
    assert [field for field, _ in rules_of(refused).refusals] == ["spec.speculator.method"]


@pytest.mark.parametrize("engine", [EngineType.SGLANG, EngineType.TENSORRT_LLM, EngineType.TGI])
def test_of_other_engines_nothing_is_claimed_that_was_not_read(engine: EngineType) -> None:
    rules = rules_of(replace(spec(), engine=at("1.0.0", engine)))
    assert rules.mtp_types is rules.speculators_types is None
    assert not rules.no_inner_states
    assert not any((rules.same_vocabulary_size, rules.divisible_heads, rules.checks_lengths, rules.parallel_token))


@pytest.mark.parametrize(("version", "refuses"), [("0.5.23", True), ("0.5.24", False)])
def test_a_draft_model_of_another_vocabulary_does_not_start_in_sglang(version: str, refuses: bool) -> None:
    assert rules_of(replace(spec(), engine=at(version, EngineType.SGLANG))).same_vocabulary_size is refuses


def test_a_version_that_cannot_be_read_claims_nothing() -> None:
    assert rules_of(replace(spec(), engine=at("latest"))).mtp_types is None


def test_architectures_without_inner_states() -> None:
    assert {"MixtralForCausalLM", "Gemma3ForCausalLM"} <= NO_INNER_STATES
    assert not {"LlamaForCausalLM", "Qwen3ForCausalLM", "GptOssForCausalLM", "DeepseekV3ForCausalLM"} & NO_INNER_STATES


def test_families_with_modules() -> None:
    assert {"deepseek_v3", "glm4_moe", "qwen3_next", "mimo"} <= MTP_TYPES
    assert not {"llama", "qwen3", "gpt_oss", "mixtral"} & MTP_TYPES
