"""Facts of models in folders, by values worked out another way."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from tests.unit.weights import made

from speculative_operator.domain.models import ModelFacts
from speculative_operator.domain.reasons import Reason
from speculative_operator.weights.inspect import cut, inspect
from speculative_operator.weights.local import open_folder
from speculative_operator.weights.source import WeightsError

TINY = Path(__file__).resolve().parents[3] / "dev" / "data" / "models"


def test_facts_of_a_model(tmp_path: Path) -> None:
    facts = inspect(open_folder(made.model(tmp_path / "m", layers=11)))
    assert facts.config == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 8,
        "vocab_size": 6,
        "num_hidden_layers": 11,
    }
    assert facts.base_models == ("org/base",)
    assert facts.relation == "quantized"
    weights = facts.weights
    assert (weights.files, weights.layers, weights.format) == (2, 11, "safetensors")
    assert weights.parameters == {"BF16": 6 * 8 + 8 + 11 * 16 * 8}
    assert weights.shapes == {"model.embed_tokens.weight": (6, 8), "model.norm.weight": (8,)}
    assert weights.bytes == sum(path.stat().st_size for path in (tmp_path / "m").glob("*.safetensors"))
    tokenizer = facts.tokenizer
    assert (tokenizer.kind, tokenizer.tokens) == ("BPE", 6)
    assert tokenizer.vocabulary_hash == made.hash_by_hand([("a", 0), ("b", 1), ("Ġ\\", 2), ('q"', 3)])
    assert tokenizer.added_hash == made.hash_by_hand([("<pad>", 4), ("<end>", 5)])
    assert tokenizer.special == {"eos_token": "<end>", "pad_token": "<pad>"}
    assert tokenizer.chat_template_hash == hashlib.sha256(b"{{ x }}").hexdigest()[:16]
    assert ModelFacts.from_json(json.loads(json.dumps(facts.to_json()))).weights == weights


@pytest.mark.parametrize("name", ["target", "draft", "eagle3"])
def test_facts_of_real_small_models(name: str) -> None:
    folder = TINY / name
    facts = inspect(open_folder(folder))
    config = json.loads((folder / "config.json").read_text())
    assert facts.config == cut(config)
    assert facts.config["hidden_size"] == config["hidden_size"]
    # The tensors of these files are all 4 bytes wide, behind one header.
    file = folder / "model.safetensors"
    head = 8 + int.from_bytes(file.read_bytes()[:8], "little")
    assert facts.weights.parameters == {"F32": (file.stat().st_size - head) // 4}
    if name == "eagle3":
        assert facts.weights.shapes["fc.weight"] == (128, 384)
        assert facts.tokenizer.kind == ""
        return
    assert facts.weights.layers == config["num_hidden_layers"]
    text = json.loads((folder / "tokenizer.json").read_text())
    added = {one["content"]: one["id"] for one in text["added_tokens"]}
    plain = [(token, number) for token, number in text["model"]["vocab"].items() if token not in added]
    assert facts.tokenizer.tokens == 2048
    assert facts.tokenizer.vocabulary_hash == made.hash_by_hand(plain)
    assert facts.tokenizer.added_hash == made.hash_by_hand(added.items())


def test_a_file_that_the_index_names_is_missing(tmp_path: Path) -> None:
    folder = made.model(tmp_path / "m")
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(WeightsError) as caught:
        inspect(open_folder(folder))
    assert caught.value.reason is Reason.SOURCE_NOT_FOUND
    assert caught.value.file == "model-00002-of-00002.safetensors"


def test_cut_keeps_nested_keys() -> None:
    config = {
        "text_config": {"hidden_size": 5, "initializer_range": 0.1},
        "quantization_config": {"quant_method": "awq", "ignore": ["lm_head"]},
        "vision_config": {"hidden_size": 7},
        "layer_types": ["full_attention"] * 3,
        "draft_vocab_size": None,
    }
    assert cut(config) == {
        "text_config": {"hidden_size": 5},
        "quantization_config": {"quant_method": "awq"},
        "layer_types": ["full_attention"] * 3,
    }
