"""Single comparisons by value: what is found, at which field, with which values and remedy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.pairing.known_pairs import Known, facts, spec_of

from speculative_operator.domain.models import ModelFacts, WeightFacts
from speculative_operator.domain.spec import EngineSettings, EngineType, Method, Scheme
from speculative_operator.engines import pairs
from speculative_operator.engines.pairs import rules_of
from speculative_operator.pairing.findings import Code, Finding, Level
from speculative_operator.pairing.judge import judge
from speculative_operator.pairing.pair import EngineRules
from speculative_operator.pairing.speculator_files import block, nature
from speculative_operator.pairing.verdict import Kind, Verdict, findings
from speculative_operator.weights.inspect import cut

NAMING = "nm-testing/eagle3-llama3.1-8b-instruct-speculators"
LLAMA, EAGLE3 = "meta-llama/Llama-3.1-8B-Instruct", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
QWEN, DFLASH = "Qwen/Qwen3-8B", "SpecForge/qwen3-8b-dflash"


def judged(verifier: ModelFacts, drafter: ModelFacts | None, method: Method = Method.EAGLE3, **options: str) -> Verdict:
    known = Known("meta-llama/Llama-3.1-8B-Instruct", "a/b" if drafter else "", method, options, (), (), "", "")
    spec = spec_of(known)
    return judge(verifier, drafter, spec, rules_of(spec))


def found(verdict: Verdict, code: Code) -> Finding:
    """The one finding of that code."""
    (one,) = (one for one in verdict.findings if one.code == code)
    return one


def with_config(name: str, **changed: Any) -> ModelFacts:
    model = facts(name)
    return replace(model, config={**model.config, **changed})


def with_tensors(model: ModelFacts, **shapes: tuple[int, ...]) -> ModelFacts:
    named = {name.replace("__", "."): shape for name, shape in shapes.items()}
    return replace(model, weights=WeightFacts(files=1, bytes=10, shapes=named))


def test_a_head_may_be_narrower_than_what_it_reads() -> None:
    narrow = with_config(EAGLE3, hidden_size=1024, target_hidden_size=4096)
    assert judged(facts(LLAMA), narrow).errors == ()
    assert found(
        judged(facts(LLAMA), with_config(EAGLE3, target_hidden_size=5120)), Code.HIDDEN_SIZE_DIFFERS
    ).field == ("speculator config.json target_hidden_size")


@pytest.mark.parametrize(
    ("config", "projection", "wrong"),
    [
        ({}, (4096, 3 * 4096), False),
        ({}, (4096, 5 * 4096), True),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 3, 4, 5]}, (4096, 5 * 4096), False),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2]}, (4096, 3 * 4096), True),
        ({"num_aux_hidden_states": 4}, (4096, 4 * 4096), False),
        ({"eagle_config": {"use_aux_hidden_state": False}}, (4096, 4096), False),
        ({"quantization_config": {"quant_method": "awq"}}, (4096, 77), False),
    ],
)
def test_the_projection_takes_the_layers_it_names(
    config: dict[str, Any], projection: tuple[int, int], wrong: bool
) -> None:
    head = with_tensors(with_config(EAGLE3, **config), fc__weight=projection, d2t=(32000,))
    codes = {one.code for one in judged(facts(LLAMA), head).errors}
    assert codes == ({Code.AUXILIARY_INPUT_DIFFERS} if wrong else set())


@pytest.mark.parametrize(
    ("key", "layers", "beyond"),
    [
        ("eagle_aux_hidden_state_layer_ids", [2, 16, 32], ""),
        ("eagle_aux_hidden_state_layer_ids", [2, 16, 33], "33"),
        ("target_layer_ids", [1, 15, 31], ""),
        ("target_layer_ids", [1, 15, 32], "32"),
    ],
)
def test_layers_are_counted_as_each_key_counts_them(key: str, layers: list[int], beyond: str) -> None:
    verdict = judged(facts(LLAMA), with_config(EAGLE3, **{key: layers}))
    told = [one.speculator for one in verdict.errors if one.code == Code.AUXILIARY_LAYERS_BEYOND]
    assert told == ([beyond] if beyond else [])


def test_maps_of_the_draft_vocabulary() -> None:
    whole = {"fc__weight": (4096, 12288), "lm_head__weight": (32000, 4096)}
    right = with_tensors(facts(EAGLE3), d2t=(32000,), t2d=(128256,), **whole)
    assert judged(facts(LLAMA), right).errors == ()
    missing = judged(facts(LLAMA), with_tensors(facts(EAGLE3), **whole))
    assert found(missing, Code.DRAFT_MAP_MISSING).level is Level.ERROR
    short = judged(facts(LLAMA), with_tensors(facts(EAGLE3), d2t=(16000,), **whole))
    assert found(short, Code.DRAFT_MAP_SHAPE).field == "speculator tensor d2t"
    other = judged(facts(LLAMA), with_tensors(facts(EAGLE3), d2t=(32000,), t2d=(151936,), **whole))
    assert found(other, Code.VOCABULARY_SIZE_DIFFERS).field == "speculator tensor t2d"
    head = {**whole, "lm_head__weight": (64000, 4096)}
    assert found(judged(facts(LLAMA), with_tensors(facts(EAGLE3), d2t=(32000,), **head)), Code.DRAFT_MAP_SHAPE)
    large = judged(facts(LLAMA), with_config(EAGLE3, draft_vocab_size=200000))
    assert found(large, Code.DRAFT_VOCABULARY_TOO_LARGE).speculator == "200000"


@pytest.mark.parametrize(
    ("own", "drafts", "refused"), [(128320, 128256, True), (128320, 128320, False), (128256, 128256, False)]
)
def test_a_head_that_drafts_all_of_the_verifier_s_tokens_has_no_others(own: int, drafts: int, refused: bool) -> None:
    """vLLM 0.32.0 reads a map where `draft_vocab_size` is not the verifier's, else wants logits as wide as the head's
    own `vocab_size`: tests/vllm/test_verdicts.py holds that to the engine."""
    head = replace(with_config(EAGLE3, vocab_size=own, draft_vocab_size=drafts), weights=WeightFacts())
    told = [one.field for one in judged(facts(LLAMA), head).errors]
    assert told == ["speculator config.json vocab_size"] * refused
    spec = spec_of(Known(LLAMA, EAGLE3, Method.EAGLE3, {}, (), (), "", ""))
    assert judge(facts(LLAMA), head, spec, EngineRules(EngineType.SGLANG)).compatible, "other engines are not spoken of"


def test_a_map_whose_headers_were_not_read_is_not_missing() -> None:
    unread = replace(facts(EAGLE3), weights=WeightFacts(files=1, bytes=10, format="bin"))
    assert judged(facts(LLAMA), unread).errors == ()


def test_tokenizers_of_one_family_that_differ_in_a_few_tokens_are_doubted_only() -> None:
    small = facts("meta-llama/Llama-3.2-1B-Instruct")
    edited = replace(small, tokenizer=replace(small.tokenizer, vocabulary_hash="edited"))
    one = found(judged(facts(LLAMA), edited, Method.DRAFT_MODEL), Code.VOCABULARY_DIFFERS)
    assert one.level is Level.WARNING
    more = replace(edited, tokenizer=replace(edited.tokenizer, tokens=edited.tokenizer.tokens + 1000))
    assert found(judged(facts(LLAMA), more, Method.DRAFT_MODEL), Code.VOCABULARY_DIFFERS).level is Level.ERROR


def test_the_hash_of_a_tokenizers_file_is_compared_with_its_like_alone() -> None:
    def hashed(name: str, kind: str, digest: str) -> ModelFacts:
        model = facts(name)
        return replace(model, tokenizer=replace(model.tokenizer, kind=kind, vocabulary_hash=digest, tokens=0))

    small = "meta-llama/Llama-3.2-1B-Instruct"
    mixed = judged(facts(LLAMA), hashed(small, "tekken", "other"), Method.DRAFT_MODEL)
    assert Code.VOCABULARY_DIFFERS not in {one.code for one in mixed.findings}
    like = judged(hashed(LLAMA, "tekken", "one"), hashed(small, "tekken", "other"), Method.DRAFT_MODEL)
    assert found(like, Code.VOCABULARY_DIFFERS).verifier == "tekken"


def test_mapping_a_vocabulary_to_itself_is_told() -> None:
    verdict = judged(facts(LLAMA), facts("meta-llama/Llama-3.2-1B-Instruct"), Method.DRAFT_MODEL, heterogeneous="")
    assert found(verdict, Code.MAPPING_UNNEEDED).remedy == "set it to false"


def test_templates_and_ends_of_texts_are_worth_knowing() -> None:
    def talking(name: str, end: str, template: str) -> ModelFacts:
        model = facts(name)
        told = replace(model.tokenizer, special={"eos_token": end}, chat_template_hash=template)
        return replace(model, tokenizer=told)

    verdict = judged(
        talking(LLAMA, "<|eot_id|>", "a"),
        talking("meta-llama/Llama-3.2-1B-Instruct", "<|end_of_text|>", "b"),
        Method.DRAFT_MODEL,
    )
    assert verdict.errors == verdict.warnings == ()
    assert found(verdict, Code.SPECIAL_TOKENS_DIFFER).speculator == "<|end_of_text|>"
    assert found(verdict, Code.CHAT_TEMPLATE_DIFFERS).level is Level.INFO


@pytest.mark.parametrize(
    ("ours", "bases", "relation", "code"),
    [
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", (), "", None),
        ("unsloth/Llama-3.1-8B-Instruct", (), "", None),
        ("someone/Llama-3.1-8B-Instruct-AWQ-INT4", (), "", Code.VERIFIER_QUANTIZED),
        ("RedHatAI/Llama-3.1-8B-Instruct-quantized.w4a16", (), "", Code.VERIFIER_QUANTIZED),
        ("someone/mine", ("meta-llama/Llama-3.1-8B-Instruct",), "quantized", Code.VERIFIER_QUANTIZED),
        ("someone/mine", ("meta-llama/Llama-3.1-8B-Instruct",), "finetune", Code.VERIFIER_FINE_TUNED),
        ("someone/mine", ("meta-llama/Llama-3.1-8B-Instruct",), "", Code.VERIFIER_FINE_TUNED),
        ("someone/mine", ("meta-llama/Llama-3.1-8B",), "finetune", Code.VERIFIER_DIFFERS),
        ("meta-llama/Llama-3.1-8B", (), "", Code.VERIFIER_DIFFERS),
    ],
)
def test_the_verifier_that_a_speculator_names(
    ours: str, bases: tuple[str, ...], relation: str, code: Code | None
) -> None:
    model = facts(LLAMA)
    verifier = replace(model, pin=replace(model.pin, location=ours), base_models=bases, relation=relation)
    verdict = judged(verifier, facts(NAMING))
    assert verdict.errors == ()
    told = [one for one in verdict.findings if one.code.startswith("Verifier")]
    assert [one.code for one in told] == ([code] if code else [])
    assert all(one.level is Level.WARNING and "acceptance" in one.message for one in told)


def test_a_folder_tells_no_name_and_is_not_suspected() -> None:
    model = replace(facts(LLAMA, Scheme.PVC), base_models=())
    verdict = judged(model, facts(NAMING))
    assert found(verdict, Code.VERIFIER_UNNAMED).level is Level.INFO


def test_positions() -> None:
    old, new = judged(facts(LLAMA), facts(EAGLE3), version="0.26.0"), judged(facts(LLAMA), facts(EAGLE3))
    assert found(old, Code.POSITIONS_SHORT).level is Level.WARNING
    assert found(new, Code.POSITIONS_SHORT).level is Level.INFO
    assert Code.POSITIONS_SHORT not in {one.code for one in judged(facts(LLAMA), facts(EAGLE3), len="2048").findings}


def test_a_context_beyond_the_verifier_is_an_error_unless_the_user_overrides_it() -> None:
    known = Known(QWEN, "", Method.NGRAM, {"len": "131072"}, (), (), "", "")
    spec = spec_of(known)
    assert found(judge(facts(QWEN), None, spec, rules_of(spec)), Code.CONTEXT_BEYOND).verifier == "40960"
    for engine in (
        replace(spec.engine, env=({"name": "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "value": "1"},)),
        replace(spec.engine, args=("--hf-overrides", "{}")),
    ):
        freed = replace(spec, engine=engine)
        assert judge(facts(QWEN), None, freed, rules_of(spec)).errors == ()


def test_two_block_drafters_of_one_format() -> None:
    assert block(facts(DFLASH)) == 15
    assert block(facts("SpecForge/qwen3-8b-dspark")) == 7
    anchored = with_config(DFLASH, sample_from_anchor=True)
    assert block(anchored) == 16
    assert judged(facts(QWEN), facts(DFLASH), Method.DFLASH, k="15").warnings == ()
    assert found(judged(facts(QWEN), facts(DFLASH), Method.DFLASH, k="16"), Code.BLOCK_EXCEEDED).level is Level.WARNING


def test_a_head_that_drafts_in_one_pass_is_doubted_beyond_the_k_that_it_learned() -> None:
    told = {"proposal_methods": [{"speculative_tokens": 8, "proposal_type": "greedy"}]}
    head = with_config(NAMING, **cut({"speculators_model_type": "peagle", "speculators_config": told}))
    assert block(head) == 8
    assert found(judged(facts(LLAMA), head, k="9"), Code.BLOCK_EXCEEDED).level is Level.WARNING
    assert Code.BLOCK_EXCEEDED not in {one.code for one in judged(facts(LLAMA), head, k="8").findings}
    assert block(facts(NAMING)) is None, "one that drafts token after token goes on"


def test_a_drafter_for_another_depth_is_doubted() -> None:
    shallow = with_config(QWEN, num_hidden_layers=48)
    assert found(judged(shallow, facts(DFLASH), Method.DFLASH), Code.LAYERS_DIFFER).verifier == "48"


def test_a_large_drafter_is_told() -> None:
    def weighing(name: str, count: int) -> ModelFacts:
        return replace(facts(name), weights=WeightFacts(files=1, bytes=count))

    ours, theirs = "Qwen/Qwen3-32B", "Qwen/Qwen3-32B-FP8"
    twin = judged(weighing(ours, 65_500_000_000), weighing(theirs, 34_000_000_000), Method.DRAFT_MODEL)
    assert found(twin, Code.SPECULATOR_LARGE).message.startswith("the speculator's weights are 52%")
    small = judged(weighing(ours, 65_500_000_000), weighing("Qwen/Qwen3-0.6B", 1_500_000_000), Method.DRAFT_MODEL)
    assert small.warnings == ()


@pytest.mark.parametrize(
    ("asked", "own", "refused"),
    [("awq", "awq", False), ("awq_marlin", "awq", False), ("gptq", "awq", True), ("fp8", "modelopt", True),
     ("fp8", "", False), ("humming", "awq", False), ("something-new", "awq", False)],
)  # fmt: skip
def test_quantization_of_the_spec_and_of_the_checkpoint(asked: str, own: str, refused: bool) -> None:
    config = {"quantization_config": {"quant_method": own}} if own else {}
    verdict = judged(
        facts("Qwen/Qwen3-32B"), with_config("Qwen/Qwen3-0.6B", **config), Method.DRAFT_MODEL, quantization=asked
    )
    assert (Code.QUANTIZATION_DIFFERS in {one.code for one in verdict.errors}) is refused


def test_modules_by_headers() -> None:
    """A converted copy whose configuration still names the modules that it dropped."""
    model = facts("deepseek-ai/DeepSeek-R1")
    dropped = with_tensors(model, model__embed_tokens__weight=(129280, 7168))
    assert found(judged(dropped, None, Method.MTP, k="1"), Code.MODULES_ABSENT).level is Level.WARNING
    kept = with_tensors(model, model__layers__61__eh_proj__weight=(7168, 14336))
    assert judged(kept, None, Method.MTP, k="1").warnings == ()
    first_only = with_config("deepseek-ai/DeepSeek-R1", model_type="mimo_v2_flash", num_nextn_predict_layers=3)
    assert judged(first_only, None, Method.MTP, k="4").errors == ()


def test_a_verifier_named_twice_drafts_with_its_own_modules() -> None:
    model = facts("deepseek-ai/DeepSeek-R1")
    verdict = judged(model, facts("deepseek-ai/DeepSeek-R1"), Method.MTP, k="1")
    assert verdict.kind is Kind.IN_VERIFIER
    assert verdict.errors == ()


@pytest.mark.parametrize("asked", ["", "main"])
def test_a_speculator_served_by_its_own_name_is_compared_with_nothing(asked: str) -> None:
    """It names its verifier, and the engine loads both; its own file was read twice, by whatever revision."""
    layers = {"num_hidden_layers": 1, "eagle_aux_hidden_state_layer_ids": [2, 18, 33]}
    once = with_config("RedHatAI/Qwen3-8B-speculator.eagle3", **layers)
    twice = replace(once, pin=replace(once.pin, asked=asked))
    assert judged(once, twice, Method.EAGLE3).errors == ()
    foreign = with_config("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", **layers)
    assert judged(foreign, replace(foreign), Method.EAGLE3).errors, "it names no verifier that could be loaded"


def test_modules_may_lie_in_another_copy_of_the_verifier() -> None:
    model = facts("deepseek-ai/DeepSeek-R1")
    copy = replace(model, pin=replace(model.pin, location="deepseek-ai/DeepSeek-R1-FP8"))
    assert judged(model, copy, Method.MTP, k="1").errors == ()


@pytest.mark.parametrize(
    ("config", "shapes", "method"),
    [
        ({"speculators_model_type": "peagle"}, {}, Method.EAGLE3),
        ({"speculators_model_type": "dflash2"}, {}, Method.DFLASH),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, {}, Method.EAGLE3),
        ({"architectures": ["EagleDeepSeekMTPModel"]}, {}, Method.EAGLE),
        ({"architectures": ["Gemma4DSparkModel"]}, {}, Method.DSPARK),
        ({"architectures": ["Gemma4AssistantForCausalLM"]}, {}, Method.MTP),
        ({"architectures": ["DeepSeekMTPModel"]}, {}, Method.MTP),
        ({"model_type": "mlp_speculator"}, {}, None),
        ({"medusa_num_heads": 5}, {}, Method.MEDUSA),
        ({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "draft_vocab_size": 8}, {}, Method.EAGLE3),
        ({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}, {"fc.weight": (8, 16)}, Method.EAGLE),
        ({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}, {"fc.weight": (8, 24)}, Method.EAGLE3),
        ({"num_hidden_layers": 1, "vocab_size": 9}, {"model.embed_tokens.weight": (9, 8)}, Method.DRAFT_MODEL),
        ({"num_hidden_layers": 1, "vocab_size": 9}, {}, None),
        ({"num_hidden_layers": 16, "vocab_size": 9}, {}, Method.DRAFT_MODEL),
        ({}, {}, None),
    ],
)  # fmt: skip
def test_what_a_checkpoint_is(
    config: dict[str, Any], shapes: dict[str, tuple[int, ...]], method: Method | None
) -> None:
    model = replace(facts(QWEN), config=config, weights=WeightFacts(files=1, bytes=1, shapes=shapes))
    assert nature(model).method is method


def test_a_verifier_that_yields_no_inner_states() -> None:
    mixtral = facts("mistralai/Mixtral-8x7B-Instruct-v0.1")
    head = with_config(EAGLE3, vocab_size=32000)
    assert found(judged(mixtral, head), Code.VERIFIER_UNSUPPORTED).level is Level.WARNING
    plain = judged(mixtral, facts("yuhuili/EAGLE-mixtral-instruct-8x7B"), Method.EAGLE)
    assert Code.VERIFIER_UNSUPPORTED not in {one.code for one in plain.findings}
    later = judged(mixtral, head, version="0.40.0")
    assert Code.VERIFIER_UNSUPPORTED not in {one.code for one in later.findings}


def test_formats_of_speculators_by_release() -> None:
    old = with_config("RedHatAI/Qwen3-8B-speculator.eagle3", speculators_model_type="eagle")
    one = found(judged(facts(QWEN), old, Method.EAGLE), Code.FORMAT_UNSUPPORTED)
    assert "dflash2, dspark, eagle3, peagle" in one.message
    later = judged(facts(QWEN), old, Method.EAGLE, version="0.40.0")
    assert Code.FORMAT_UNSUPPORTED not in {one.code for one in later.findings}


def test_without_facts_of_the_speculator_nothing_is_held_against_it() -> None:
    spec = spec_of(Known(LLAMA, EAGLE3, Method.DRAFT_MODEL, {}, (), (), "", ""))
    verdict = judge(facts(LLAMA), None, spec, rules_of(spec))
    assert verdict.kind is Kind.UNKNOWN
    assert verdict.errors == ()


@pytest.mark.parametrize(
    ("architecture", "version", "level"),
    [
        ("GptOssForCausalLM", "0.32.0", Level.ERROR),
        ("LlamaForCausalLM", "0.32.0", None),
        ("KimiK3ForConditionalGeneration", "0.32.0", Level.WARNING),
        ("GptOssForCausalLM", "9.0.0", None),
    ],
)
def test_a_pipeline_needs_a_verifier_that_passes_states_on(
    architecture: str, version: str, level: Level | None
) -> None:
    spec = spec_of(Known(LLAMA, EAGLE3, Method.EAGLE3, {"version": version}, (), (), "", ""))
    spec = replace(spec, verifier=replace(spec.verifier, pipeline_parallel_size=2))
    model = with_config(LLAMA, architectures=[architecture])
    for asked, told in (
        (spec, level),
        (replace(spec, verifier=replace(spec.verifier, pipeline_parallel_size=1)), None),
    ):
        said = judge(model, facts(EAGLE3), asked, rules_of(asked)).findings
        stages = [one for one in said if one.field == "spec.verifier.pipelineParallelSize"]
        assert [one.level for one in stages if one.code == Code.VERIFIER_UNSUPPORTED] == [told] * (told is not None)
        assert told is None or "tensorParallelSize: 2" in stages[0].remedy


def test_other_engines_are_judged_by_files() -> None:
    known = Known(LLAMA, EAGLE3, Method.EAGLE3, {}, (), (), "", "")
    for engine in (EngineType.SGLANG, EngineType.TENSORRT_LLM):
        spec = replace(spec_of(known), engine=EngineSettings(engine, pairs.rules_of(spec_of(known)).version))
        rules = replace(rules_of(spec), refusals=())
        assert not rules.facts
        wrong = judge(facts("meta-llama/Llama-3.1-70B-Instruct"), facts(EAGLE3), spec, rules)
        assert {one.code for one in wrong.errors} == {Code.HIDDEN_SIZE_DIFFERS}


def test_findings_for_people_have_both_values() -> None:
    wrong = judged(facts("meta-llama/Llama-3.1-70B-Instruct"), facts(EAGLE3))
    assert findings(wrong)[0] == {
        "level": "Error",
        "code": "HiddenSizeDiffers",
        "field": "speculator config.json hidden_size",
        "verifier": "8192",
        "speculator": "4096",
        "message": "the head reads hidden states of width 4096, but the verifier's width is 8192: the engine would "
        "fail",
        "remedy": "use a speculator that was trained for this verifier",
    }
