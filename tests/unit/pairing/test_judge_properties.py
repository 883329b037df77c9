"""What holds of every verdict, whatever the files hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.pairing.known_pairs import Known, facts, models, pairs, spec_of

from speculative_operator.domain.models import CONFIG_KEYS, ModelFacts, TokenizerFacts, WeightFacts
from speculative_operator.domain.spec import Method, ModelSource, Scheme, Speculator, Workload
from speculative_operator.engines.pairs import rules_of
from speculative_operator.pairing.findings import Code, Level
from speculative_operator.pairing.judge import judge
from speculative_operator.pairing.pair import EngineRules
from speculative_operator.pairing.speculator_files import nature
from speculative_operator.pairing.verdict import Kind, Verdict

PAIRS = pairs()
KEYS = sorted(CONFIG_KEYS)
RULES = {method: rules_of(spec_of(Known("a/b", "c/d", method, {}, (), (), "", ""))) for method in Method}

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=8),
    st.sampled_from(["llama", "eagle3", "yarn", "fp8", "LlamaForCausalLMEagle3", "DFlashDraftModel", 0, 4096, 1e300]),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner),
    max_leaves=5,
)
configs = st.dictionaries(st.sampled_from(KEYS), values, max_size=8)
names = st.sampled_from(
    ["fc.weight", "d2t", "t2d", "lm_head.weight", "model.embed_tokens.weight", "medusa_head.0.weight", "mtp.fc.weight"]
)  # fmt: skip
shapes = st.dictionaries(names, st.lists(st.integers(0, 300_000), max_size=3).map(tuple))
labels = st.sampled_from(["", "one", "two"])
tokenizers = st.builds(
    TokenizerFacts, st.sampled_from(["", "BPE", "Unigram"]), st.integers(0, 3), labels, labels,
    st.dictionaries(st.sampled_from(["bos_token", "eos_token"]), st.text(max_size=3)), labels,
)  # fmt: skip


@st.composite
def garbled(draw: st.DrawFn) -> ModelFacts:
    told = draw(st.sampled_from(sorted(models())))
    base = facts(told)
    return replace(
        base,
        pin=replace(
            base.pin, scheme=draw(st.sampled_from(Scheme)), location=draw(st.sampled_from([told, "", "/", "a"]))
        ),
        config=draw(st.one_of(configs, configs.map(lambda more: {**base.config, **more}))),
        tokenizer=draw(tokenizers),
        weights=WeightFacts(draw(st.integers(0, 3)), draw(st.integers(-1, 10**12)), {}, draw(shapes), 0),
        base_models=draw(st.lists(st.sampled_from([told, "", "x/y"]), max_size=2).map(tuple)),
        relation=draw(st.sampled_from(["", "quantized", "finetune", "nonsense"])),
    )


def verdict(known: Known, rules: EngineRules | None = None) -> Verdict:
    spec = spec_of(known)
    speculator = facts(known.speculator) if known.speculator else None
    return judge(facts(known.verifier), speculator, spec, rules or rules_of(spec))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(garbled(), st.none() | garbled(), st.sampled_from(Method), st.booleans(), st.booleans())
def test_garbled_facts_never_raise_and_findings_are_whole_and_in_order(
    verifier: ModelFacts, speculator: ModelFacts | None, method: Method, parallel: bool, mapped: bool
) -> None:
    source = ModelSource(Scheme.HF, "c/d") if speculator is not None else None
    spec = spec_of(Known("a/b", "c/d", method, {}, (), (), "", ""))
    asked = Speculator(method, source, parallel_drafting=parallel, heterogeneous_vocabulary=mapped)
    said = judge(verifier, speculator, replace(spec, speculator=asked), RULES[method])
    levels = [list(Level).index(one.level) for one in said.findings]
    assert levels == sorted(levels)
    for one in said.findings:
        assert one.code in set(Code)
        assert one.field
        assert one.message
        assert one.remedy or one.level is not Level.ERROR
    assert said.kind in set(Kind)


@given(st.sampled_from([name for name in sorted(models()) if nature(facts(name)).method is Method.DRAFT_MODEL]))
def test_a_model_is_compatible_with_itself_as_draft_model(name: str) -> None:
    whole = facts(name)
    spec = spec_of(Known(name, name, Method.DRAFT_MODEL, {}, (), (), "", ""))
    rules = replace(rules_of(spec), refusals=())
    said = judge(whole, facts(name), spec, rules)
    assert said.errors == ()
    assert said.kind is Kind.QUANTIZED_TWIN


@given(st.sampled_from(PAIRS))
def test_what_is_not_known_is_no_error(known: Known) -> None:
    """Any key of the files may be missing: an Error rests on what is there."""
    spec = spec_of(known)
    rules = replace(rules_of(spec), refusals=())
    nothing = [replace(facts(name), config={}, tokenizer=TokenizerFacts(), weights=WeightFacts()) for name in
               (known.verifier, known.speculator) if name]  # fmt: skip
    drafter: list[Any] = [*nothing[1:], None]
    assert judge(nothing[0], drafter[0], spec, rules).errors == ()


@pytest.mark.parametrize("key", ["hidden_size", "vocab_size", "num_hidden_layers", "architectures", "model_type"])
def test_an_error_goes_with_the_fact_that_it_rests_on_and_none_comes(key: str) -> None:
    """Taking one key from the verifier leaves at most the Errors there were."""
    for known in PAIRS:
        spec = spec_of(known)
        whole = facts(known.verifier)
        speculator = facts(known.speculator) if known.speculator else None
        inner = {name: without(value, key) for name, value in whole.config.items() if name != key}
        before = {one.code for one in judge(whole, speculator, spec, rules_of(spec)).errors}
        after = {one.code for one in judge(replace(whole, config=inner), speculator, spec, rules_of(spec)).errors}
        assert after <= before, known.title


def without(value: Any, key: str) -> Any:
    return {name: one for name, one in value.items() if name != key} if isinstance(value, dict) else value


def test_an_engine_of_which_nothing_is_known_leads_to_errors_by_files_alone() -> None:
    by_engine = {
        Code.ENGINE_REFUSES, Code.CONTEXT_BEYOND, Code.HEADS_NOT_DIVISIBLE, Code.MODULES_NOT_DIVIDING,
        Code.QUANTIZATION_DIFFERS, Code.PARALLEL_UNTRAINED, Code.FORMAT_UNSUPPORTED, Code.VOCABULARY_SIZE_DIFFERS,
        Code.MODULES_ABSENT, Code.METHOD_DIFFERS,
    }  # fmt: skip
    for known in PAIRS:
        plain = {one.code for one in verdict(known, EngineRules()).errors}
        assert plain - {Code.METHOD_DIFFERS} <= set(known.errors), known.title
        assert set(known.errors) - plain <= by_engine, known.title


@given(st.sampled_from(PAIRS), st.sampled_from(Workload))
def test_expectations_are_possible(known: Known, workload: Workload) -> None:
    spec = spec_of(known)
    spec = replace(spec, speculation=replace(spec.speculation, workload=workload))
    speculator = facts(known.speculator) if known.speculator else None
    expected = judge(facts(known.verifier), speculator, spec, rules_of(spec)).expected
    if expected is not None:
        assert 1.0 <= expected.low <= expected.length <= expected.high <= 1.0 + expected.k
        assert expected.profiles >= 1
        assert expected.source
