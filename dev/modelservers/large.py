"""Models too large to be there: folders whose safetensors files have true headers and holes in place of tensors. Used
by tests, those of the first pages among them.

Shapes are those of published `config.json` files: Llama 3.1 405B (hidden size 16384, 126 layers, intermediate size
53248, 8 key-value heads of 128, vocabulary 128256), which is 810 GB in bfloat16, in 191 files as it was published; and
Qwen3-8B, with an EAGLE-3 head as the library `speculators` (0.5) writes one: configuration and names of tensors.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

Tensor = tuple[str, tuple[int, ...]]
_BYTES = {"BF16": 2, "I64": 8, "BOOL": 1}
_FORMATS = {"d2t": "I64", "t2d": "BOOL"}
"""Tensor -> its number format; all others are bfloat16."""
_HEAD_SIZE = 128
"""Values of an attention head."""
_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}


@dataclass(frozen=True)
class Shape:
    """A dense llama or Qwen3 in bfloat16."""

    hidden: int
    layers: int
    intermediate: int
    key_value: int
    """Key-value heads times their size."""
    vocabulary: int
    files: int
    kind: str = "llama"
    """`model_type`, llama or qwen3."""
    positions: int = 131072

    def tensors(self) -> Iterator[Tensor]:
        """Names and shapes, in order of layers."""
        yield "model.embed_tokens.weight", (self.vocabulary, self.hidden)
        for layer in range(self.layers):
            root = f"model.layers.{layer}"
            yield from self.layer(root, self.hidden)
            for name in ("q", "k") if self.kind == "qwen3" else ():
                yield f"{root}.self_attn.{name}_norm.weight", (_HEAD_SIZE,)
        yield "model.norm.weight", (self.hidden,)
        yield "lm_head.weight", (self.vocabulary, self.hidden)

    def layer(self, root: str, inputs: int) -> Iterator[Tensor]:
        """One decoder layer, whose attention reads `inputs` values a token."""
        for name, rows in (("q", self.hidden), ("k", self.key_value), ("v", self.key_value)):
            yield f"{root}.self_attn.{name}_proj.weight", (rows, inputs)
        yield f"{root}.self_attn.o_proj.weight", (self.hidden, self.hidden)
        for name in ("gate", "up"):
            yield f"{root}.mlp.{name}_proj.weight", (self.intermediate, self.hidden)
        yield f"{root}.mlp.down_proj.weight", (self.hidden, self.intermediate)
        for name in ("input", "post_attention"):
            yield f"{root}.{name}_layernorm.weight", (self.hidden,)

    @property
    def parameters(self) -> int:
        return sum(math.prod(shape) for _, shape in self.tensors())


LLAMA_405B = Shape(16384, 126, 53248, 1024, 128256, 191)
QWEN3_8B = Shape(4096, 36, 12288, 1024, 151936, 5, "qwen3", 40960)


def lay_out_head(folder: Path, verifier: str, shape: Shape, drafts: int = 32_000) -> None:
    """Config and sparse file of an EAGLE-3 head for `verifier`, a model of `shape`. It has one layer of a llama, reads
    three hidden states of the verifier, and drafts from `drafts` of its tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    layer = {**_config(replace(shape, kind="llama", layers=1)), "head_dim": _HEAD_SIZE}
    made_for = {"name_or_path": verifier, "architectures": [_ARCHITECTURES[shape.kind]]}
    config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 5}],
            "verifier": made_for,
        },
        "draft_vocab_size": drafts,
        "norm_before_residual": True,
        "target_hidden_size": None,
        "torch_dtype": "bfloat16",
        "transformer_layer_config": layer,
    }
    (folder / "config.json").write_text(json.dumps(config))
    width = shape.hidden
    tensors = {
        "d2t": (drafts,),
        "t2d": (shape.vocabulary,),
        "embed_tokens.weight": (shape.vocabulary, width),
        "fc.weight": (width, 3 * width),
        "layers.0.hidden_norm.weight": (width,),
        **dict(shape.layer("layers.0", 2 * width)),
        "norm.weight": (width,),
        "lm_head.weight": (drafts, width),
    }
    _sparse(folder / "model.safetensors", tensors)


def lay_out(folder: Path, shape: Shape, tokens: int = 262_144) -> None:
    """Config, tokenizer (33 MB for the default number of tokens), index and sparse files of `shape`."""
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
    index = {"metadata": {"total_size": _BYTES["BF16"] * shape.parameters}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _config(shape: Shape) -> dict[str, Any]:
    return {
        "architectures": [_ARCHITECTURES[shape.kind]],
        "model_type": shape.kind,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "intermediate_size": shape.intermediate,
        "num_attention_heads": shape.hidden // _HEAD_SIZE,
        "num_key_value_heads": shape.key_value // _HEAD_SIZE,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.positions,
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
        dtype = _FORMATS.get(name, "BF16")
        end = at + _BYTES[dtype] * math.prod(shape)
        told[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    header = json.dumps(told).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + at)
