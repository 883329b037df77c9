"""Write `target`, `draft` and `eagle3` with random weights into the folder given. Run by the engine's interpreter.

Shapes are those of the trained models that the project's own tests use: a Llama of 128 hidden units and 3 layers, one
of 64 and 1, an EAGLE-3 head for the first. The tokenizer is a byte-level BPE of 2048 tokens, made from the texts of
Python's own library, so that any text can be served. The same seed gives the same files.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found]  # only in the engine's environment
from safetensors.torch import save_file  # type: ignore[import-not-found]
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[import-not-found]

VOCABULARY, HEAD = 2048, 32
SPECIAL = ("<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|pad|>")
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_SPREAD = 0.3
"""Standard deviation of the weights: wide, so that the best token is clearly the best and rounding decides nothing."""


def config(hidden: int, layers: int, heads: int, inner: int, **more: Any) -> dict[str, Any]:
    """A Llama's configuration."""
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "float32", "vocab_size": VOCABULARY,
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "head_dim": HEAD,
        "num_key_value_heads": heads // 2, "intermediate_size": inner, "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "max_position_embeddings": 2048, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": 4,
        "attention_bias": False, "mlp_bias": False, **more,
    }  # fmt: skip


CONFIGS = {
    "target": config(128, 3, 4, 352),
    "draft": config(64, 1, 2, 176),
    "eagle3": config(
        128, 1, 4, 352, architectures=["LlamaForCausalLMEagle3"], tie_word_embeddings=False,
        draft_vocab_size=VOCABULARY,
        eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 1, 2], "use_aux_hidden_state": True},
    ),
}  # fmt: skip


def layer(shape: dict[str, Any], prefix: str, inputs: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of one decoder layer whose attention sees `inputs` units."""
    hidden, inner, key_width = shape["hidden_size"], shape["intermediate_size"], shape["num_key_value_heads"] * HEAD
    yield f"{prefix}.input_layernorm.weight", (hidden,)
    yield f"{prefix}.post_attention_layernorm.weight", (hidden,)
    yield f"{prefix}.mlp.gate_proj.weight", (inner, hidden)
    yield f"{prefix}.mlp.up_proj.weight", (inner, hidden)
    yield f"{prefix}.mlp.down_proj.weight", (hidden, inner)
    yield f"{prefix}.self_attn.q_proj.weight", (hidden, inputs)
    yield f"{prefix}.self_attn.k_proj.weight", (key_width, inputs)
    yield f"{prefix}.self_attn.v_proj.weight", (key_width, inputs)
    yield f"{prefix}.self_attn.o_proj.weight", (hidden, hidden)


def shapes(role: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of every weight of a model."""
    shape = CONFIGS[role]
    hidden = shape["hidden_size"]
    if role == "eagle3":
        yield "fc.weight", (hidden, 3 * hidden)
        yield "lm_head.weight", (VOCABULARY, hidden)
        yield "norm.weight", (hidden,)
        yield "midlayer.hidden_norm.weight", (hidden,)
        yield from layer(shape, "midlayer", 2 * hidden)
        return
    yield "model.embed_tokens.weight", (VOCABULARY, hidden)
    yield "model.norm.weight", (hidden,)
    for number in range(shape["num_hidden_layers"]):
        yield from layer(shape, f"model.layers.{number}", hidden)


def tokenizer() -> Any:
    """Byte-level, so that nothing is unknown to it."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    library = Path(sysconfig.get_paths()["stdlib"])
    made.train_from_iterator((path.read_text(errors="replace") for path in sorted(library.glob("*.py"))), trainer)
    return made


def write(folder: Path, role: str, words: Any) -> None:
    """One model's files."""
    place = folder / role
    place.mkdir(parents=True, exist_ok=True)
    chance = torch.Generator().manual_seed(list(CONFIGS).index(role))
    weights = {
        name: torch.ones(size) if len(size) == 1 else _SPREAD * torch.randn(size, generator=chance)
        for name, size in shapes(role)
    }
    file = place / "model.safetensors"
    save_file(weights, file, metadata={"format": "pt"})
    file.chmod(0o644)
    if role != "eagle3":
        words.save(str(place / "tokenizer.json"))
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": SPECIAL[0], "pad_token": SPECIAL[4]}
        (place / "tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": 2048}))
        (place / "chat_template.jinja").write_text(TEMPLATE)
    # last: the folder counts as a model when this is there
    (place / "config.json").write_text(json.dumps(CONFIGS[role], indent=2))


if __name__ == "__main__":
    vocabulary = tokenizer()
    for wanted in CONFIGS:
        write(Path(sys.argv[1]), wanted, vocabulary)
