"""The rules that pairs are judged by hold for the release that the spec names, and agree with the matrix."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.engines.building import spec

from speculative_operator.domain.spec import EngineSettings, EngineType, Method, Mode, Speculation
from speculative_operator.engines.matrix.rows import CELLS, Variant, Version, show_version
from speculative_operator.engines.pairs import rules_of
from speculative_operator.engines.registry import engine_for
from speculative_operator.engines.vllm.facts import facts_of, last_read
from speculative_operator.engines.vllm.plan import OLDEST
from speculative_operator.pairing.pair import EngineRules, Fact


def rules(version: str, engine: EngineType = EngineType.VLLM) -> EngineRules:
    return rules_of(replace(spec(), engine=EngineSettings(engine, version)))


@pytest.mark.parametrize(
    ("fact", "name", "before", "since"),
    [
        (Fact.SAME_VOCABULARY_SIZE, "", "0.14.1", "0.15.0"),
        (Fact.PARALLEL_TOKEN, "", "0.15.0", "0.16.0"),
        (Fact.HETEROGENEOUS, "", "0.24.0", "0.25.0"),
        (Fact.STRETCHES_POSITIONS, "", "0.26.0", "0.27.0"),
        (Fact.RENAMED, "dflash", "0.19.1", "0.20.0"),
        (Fact.RENAMED, "dspark", "0.24.0", "0.25.1"),
        (Fact.FORMAT, "peagle", "0.21.0", "0.22.0"),
        (Fact.MODULES, "qwen3_5", "0.12.0", "0.17.1"),
        (Fact.RELAY, "LlamaForCausalLM", "0.29.0", "0.30.0"),
        (Fact.NO_RELAY, "GptOssForCausalLM", "0.29.0", "0.32.0+rhai1"),
    ],
)
def test_what_a_later_release_has_is_not_claimed_of_an_earlier_one(
    fact: Fact, name: str, before: str, since: str
) -> None:
    assert name not in rules(before).names(fact)
    assert name in rules(since).names(fact)


def test_of_releases_that_were_not_read_rules_hold_and_lists_are_unknown() -> None:
    newer = rules(show_version((last_read()[0], last_read()[1] + 1, 0)))
    assert newer.has(Fact.DIVISIBLE_HEADS)
    assert newer.names(Fact.RENAMED) == rules(show_version(last_read())).names(Fact.RENAMED)
    assert {fact for fact in newer.facts if fact != Fact.RENAMED and newer.names(fact) != {""}} == set()


def test_the_matrix_claims_no_form_before_the_release_that_has_it() -> None:
    first: dict[Variant, Version] = {Variant.PARALLEL: (0, 16, 0), Variant.HETEROGENEOUS: (0, 25, 0)}
    for form in CELLS[EngineType.VLLM]:
        assert form.since >= first.get(form.variant, OLDEST)
        if form.variant is Variant.HETEROGENEOUS:
            assert Fact.HETEROGENEOUS in facts_of(form.since)
        if form.method is Method.DRAFT_MODEL:
            assert Fact.SAME_VOCABULARY_SIZE in facts_of(form.since)


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
    early = EngineSettings(version="0.13.0")
    refused = replace(wanted, speculator=replace(wanted.speculator, method=Method.DRAFT_MODEL), engine=early)
    assert [field for field, _ in rules_of(refused).refusals] == ["spec.speculator.method"]


@pytest.mark.parametrize(
    ("version", "engine", "known"),
    [
        ("latest", EngineType.VLLM, set()),
        ("0.5.23", EngineType.SGLANG, {Fact.SAME_VOCABULARY_SIZE}),
        ("0.5.24", EngineType.SGLANG, set()),
        ("1.0.0", EngineType.TENSORRT_LLM, set()),
    ],
)
def test_nothing_is_claimed_that_was_not_read(version: str, engine: EngineType, known: set[Fact]) -> None:
    assert set(rules(version, engine).facts) == known


def test_models_that_are_known_to_have_or_to_lack_something() -> None:
    read = rules("0.32.0")
    assert {"MixtralForCausalLM", "Gemma3ForCausalLM"} <= read.names(Fact.NO_INNER_STATES)
    given = {"LlamaForCausalLM", "Qwen3ForCausalLM", "GptOssForCausalLM", "DeepseekV3ForCausalLM"}
    assert given.isdisjoint(read.names(Fact.NO_INNER_STATES))
    assert {"deepseek_v3", "Glm4MoeForCausalLM", "qwen3_next", "MiMoForCausalLM"} <= read.names(Fact.MODULES)
    assert read.names(Fact.MODULES).isdisjoint({"llama", "qwen3", "gpt_oss", "mixtral"})
    assert {"LlamaForCausalLM", "Qwen2ForCausalLM", "Llama4ForCausalLM"} <= read.names(Fact.RELAY)
    assert {"GptOssForCausalLM", "Qwen3MoeForCausalLM", "MiMoForCausalLM"} <= read.names(Fact.NO_RELAY)
