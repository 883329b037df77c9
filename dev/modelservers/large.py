"""Models too large to be there: folders whose safetensors files have true headers and holes in place of tensors. Used
by `bench` and by tests.

Shapes are those of published `config.json` files: Llama 3.1 405B (hidden size 16384, 126 layers, intermediate size
53248, 8 key-value heads of 128, vocabulary 128256), which is 810 GB in bfloat16, in 191 files as it was published.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Tensor = tuple[str, tuple[int, ...]]
_BYTES = 2


@dataclass(frozen=True)
class Shape:
    """A dense llama in bfloat16."""

    hidden: int
    layers: int
    intermediate: int
    key_value: int
    """Key-value heads times their size."""
    vocabulary: int
    files: int

    def tensors(self) -> Iterator[Tensor]:
        """Names and shapes, in order of layers."""
        yield "model.embed_tokens.weight", (self.vocabulary, self.hidden)
        for layer in range(self.layers):
            root = f"model.layers.{layer}"
            for name, rows in (("q", self.hidden), ("k", self.key_value), ("v", self.key_value), ("o", self.hidden)):
                yield f"{root}.self_attn.{name}_proj.weight", (rows, self.hidden)
            for name in ("gate", "up"):
                yield f"{root}.mlp.{name}_proj.weight", (self.intermediate, self.hidden)
            yield f"{root}.mlp.down_proj.weight", (self.hidden, self.intermediate)
            for name in ("input", "post_attention"):
                yield f"{root}.{name}_layernorm.weight", (self.hidden,)
        yield "model.norm.weight", (self.hidden,)
        yield "lm_head.weight", (self.vocabulary, self.hidden)

    @property
    def parameters(self) -> int:
        return sum(_elements(shape) for _, shape in self.tensors())


LLAMA_405B = Shape(16384, 126, 53248, 1024, 128256, 191)
LLAMA_70B = Shape(8192, 80, 28672, 1024, 128256, 30)


def lay_out(folder: Path, shape: Shape, tokens: int = 262_144) -> None:
    """Config, tokenizer (33 MB), index and sparse files of `shape`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_config(shape)))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [128001, 128008, 128009]}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>", "chat_template": "{{ x }}"}))
    with (folder / "tokenizer.json").open("w") as file:
        json.dump(_tokenizer(tokens), file, ensure_ascii=False)
    tensors = list(shape.tensors())
    size = -(-len(tensors) // shape.files)
    where: dict[str, str] = {}
    for number in range(shape.files):
        name = f"model-{number + 1:05}-of-{shape.files:05}.safetensors"
        part = dict(tensors[number * size : (number + 1) * size])
        where |= dict.fromkeys(part, name)
        _sparse(folder / name, part)
    index = {"metadata": {"total_size": _BYTES * shape.parameters}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _config(shape: Shape) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "intermediate_size": shape.intermediate,
        "num_attention_heads": shape.hidden // 128,
        "num_key_value_heads": shape.key_value // 128,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
    }


def _tokenizer(tokens: int) -> dict[str, Any]:
    """As large as the largest that are published: every token eight letters, two merges for each."""
    names = [f"{number:08x}" for number in range(tokens)]
    merges = [[name[:4], name[4:]] for name in names for _ in range(2)]
    return {
        "version": "1.0",
        "added_tokens": [{"id": tokens, "content": "<end>", "special": True}],
        "model": {"type": "BPE", "vocab": {name: number for number, name in enumerate(names)}, "merges": merges},
    }


def _sparse(path: Path, tensors: Mapping[str, tuple[int, ...]]) -> None:
    at, told = 0, {}
    for name, shape in tensors.items():
        end = at + _BYTES * _elements(shape)
        told[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, end]}
        at = end
    header = json.dumps(told).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + at)


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for side in shape:
        count *= side
    return count
