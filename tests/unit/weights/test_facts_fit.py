"""Facts of real large pairs fit the result of a Job, which Kubernetes cuts at 4096 bytes."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from tests.unit.pairing import known_pairs, memory_models

from speculative_operator.domain.jobs import MOST_BYTES, decode, encode
from speculative_operator.domain.models import ModelFacts, Pin, TokenizerFacts, WeightFacts
from speculative_operator.domain.spec import Scheme
from speculative_operator.weights.inspect import cut

ROOM = 1000
"""Bytes that must remain: for keys that configs of later models bring."""


def digest(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def whole(facts: ModelFacts, name: str) -> ModelFacts:
    """`facts` with everything told that an inspection can tell, as long as it gets."""
    tokens = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "pad_token": "<|finetune_right_pad_id|>"}
    shapes = {"model.embed_tokens.weight": (128256, 16384), "lm_head.weight": (128256, 16384), **facts.weights.shapes}
    more = {f"model.{one}norm.weight": (16384,) for one in ("", "hidden_", "fc_", "post_", "pre_fc_")}
    return replace(
        facts,
        pin=Pin(Scheme.HF, name or "organisation/model", digest(name + "a", 40), digest(name + "p", 40)),
        tokenizer=TokenizerFacts(
            "BPE", 128256, digest(name + "v", 16), digest(name + "a", 16), tokens, digest(name, 16)
        ),
        weights=WeightFacts(
            191,
            811_706_777_600,
            {"BF16": 405_853_388_800, "F32": 123_456_789, "F8_E4M3": 234_567_890_123, "U8": 17},
            {**shapes, **more},
            126,
        ),
        base_models=facts.base_models or ("organisation/the-model-it-was-made-from-instruct",),
        relation=facts.relation or "quantized",
    )


def taken(verifier: ModelFacts, speculator: ModelFacts | None) -> int:
    result = {"verifier": verifier.to_json()} | ({"speculator": speculator.to_json()} if speculator else {})
    message = encode(result)
    back = decode(message)
    assert back is not None
    assert ModelFacts.from_json(back["verifier"]) == verifier
    return len(message)


def test_known_pairs_fit() -> None:
    for known in known_pairs.pairs():
        verifier = whole(known_pairs.facts(known.verifier), known.verifier)
        speculator = whole(known_pairs.facts(known.speculator), known.speculator) if known.speculator else None
        assert taken(verifier, speculator) < MOST_BYTES - ROOM, known.title


@pytest.mark.parametrize("name", ["QWEN35_35B", "DEEPSEEK_V3", "DEEPSEEK_V4_PRO", "GPT_OSS_120B"])
def test_the_longest_configs_fit_beside_each_other(name: str) -> None:
    """Both sides with every setting that judging knows of, as with a verifier that drafts for a twin of itself."""
    config = {**getattr(memory_models, name), "architectures": ["SomethingForConditionalGeneration"]}
    assert cut(config) == config
    model = known_pairs.facts(known_pairs.pairs()[0].verifier)
    one, other = (whole(replace(model, config=config), side) for side in ("verifier", "speculator"))
    assert taken(one, other) < MOST_BYTES - ROOM


def test_what_nobody_judges_by_is_cut() -> None:
    config = {
        "hidden_size": 1,
        "quantization_config": {"quant_method": "fp8", "modules_to_not_convert": ["lm_head"] * 500},
        "vision_config": {"hidden_size": 2},
        "layer_types": ["full_attention"] * 10_000,
        "rope_scaling": {"type": "yarn", "long_factor": [1.0] * 64},
        "_name_or_path": "x" * 10_000,
        "id2label": {str(label): "x" for label in range(1000)},
    }
    assert cut(config) == {
        "hidden_size": 1,
        "quantization_config": {"quant_method": "fp8"},
        "rope_scaling": {"type": "yarn"},
    }
