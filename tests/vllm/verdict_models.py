"""Pairs made of the small models by changing what a verdict looks at: configuration, tensors, tokenizer.

Written with NumPy: safetensors is eight bytes of length, a JSON header, and the tensors one after another.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Tensors = dict[str, np.ndarray]
_FORMATS = {"F32": np.float32, "I64": np.int64, "BOOL": np.bool_, "F16": np.float16}


@dataclass
class Model:
    """One model in memory, to be changed and written."""

    config: dict[str, Any]
    tensors: Tensors
    files: dict[str, str] = field(default_factory=dict)
    """Name -> text of every other file."""

    @staticmethod
    def read(folder: Path) -> Model:
        tensors: Tensors = {}
        content = (folder / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        for name, told in json.loads(content[8 : 8 + length]).items():
            if name != "__metadata__":
                start, end = (8 + length + offset for offset in told["data_offsets"])
                flat: np.ndarray = np.frombuffer(content[start:end], _FORMATS[told["dtype"]])
                tensors[name] = flat.reshape(told["shape"]).copy()
        names = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
        files = {name: (folder / name).read_text() for name in names if (folder / name).exists()}
        return Model(json.loads((folder / "config.json").read_text()), tensors, files)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True)
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        place, body = 0, b""
        for name, tensor in self.tensors.items():
            raw = np.ascontiguousarray(tensor).tobytes()
            kind = next(kind for kind, one in _FORMATS.items() if tensor.dtype == one)
            header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [place, place + len(raw)]}
            place, body = place + len(raw), body + raw
        text = json.dumps(header).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
        for file, content in self.files.items():
            (folder / file).write_text(content)
        (folder / "config.json").write_text(json.dumps(self.config))
        return folder


def resized(tensor: np.ndarray, rows: int) -> np.ndarray:
    """With so many rows: cut off, or padded with zeros, as embeddings are."""
    made = np.zeros((rows, *tensor.shape[1:]), tensor.dtype)
    kept = min(rows, tensor.shape[0])
    made[:kept] = tensor[:kept]
    return made


def rows(model: Model, count: int) -> Model:
    """A draft model whose embedding has so many rows, with the same tokenizer."""
    model.config["vocab_size"] = count
    model.tensors["model.embed_tokens.weight"] = resized(model.tensors["model.embed_tokens.weight"], count)
    return model


def shortened(model: Model, tokens: int, *, turned: bool) -> Model:
    """A model of another tokenizer: that of the first `tokens` tokens. `turned`: their ids are other ones too, so that
    an id stands for another text."""
    words = json.loads(model.files["tokenizer.json"])
    special = {one["content"] for one in words["added_tokens"]}
    kept = {text: number for text, number in words["model"]["vocab"].items() if number < tokens}
    if turned:
        plain = sorted(number for text, number in kept.items() if text not in special)
        other = dict(zip(plain, [*plain[7:], *plain[:7]], strict=True))
        kept = {text: other.get(number, number) for text, number in kept.items()}
        embedded = model.tensors["model.embed_tokens.weight"]
        model.tensors["model.embed_tokens.weight"] = embedded.copy()
        model.tensors["model.embed_tokens.weight"][list(other.values())] = embedded[list(other)]
    pairs = [one.split(" ") if isinstance(one, str) else one for one in words["model"]["merges"]]
    words["model"]["merges"] = [one for one in pairs if one[0] in kept and one[1] in kept and "".join(one) in kept]
    words["model"]["vocab"] = kept
    model.files["tokenizer.json"] = json.dumps(words)
    return model


FOLLOWS = {",": "\u0120name", "\u0120name": ",", "import": "\u0120sys", "\u0120sys": "\u010a", "\u010a": "import"}
"""What the trained verifier, of Python's own library, says most after some tokens, as byte-level BPE spells them."""


def following(head: Model, verifier: Model) -> Model:
    """An EAGLE-3 head that knows what follows some tokens. It hands the verifier's last hidden states through; by the
    verifier's own norm and embedding they tell the token that was just said, and `lm_head` has its follower instead."""
    width, count = verifier.config["hidden_size"], verifier.config["num_hidden_layers"]
    reading(head, 0, 1, count)
    first = np.zeros((width, 3 * width), np.float32)
    first[:, 2 * width :] = np.eye(width, dtype=np.float32)
    head.tensors["fc.weight"] = first
    for name in ("midlayer.self_attn.o_proj.weight", "midlayer.mlp.down_proj.weight"):
        head.tensors[name] = np.zeros_like(head.tensors[name])
    head.tensors["norm.weight"] = verifier.tensors["model.norm.weight"].copy()
    words = json.loads(verifier.files["tokenizer.json"])["model"]["vocab"]
    embedded = verifier.tensors["model.embed_tokens.weight"]
    last = np.zeros_like(head.tensors["lm_head.weight"])
    for token, follower in FOLLOWS.items():
        if token in words and follower in words:
            last[words[follower]] += embedded[words[token]]
    head.tensors["lm_head.weight"] = last
    return head


def narrowed(head: Model) -> Model:
    """A head for a verifier of half the hidden size; its weights are none that anybody trained."""
    width = head.config["hidden_size"]
    keys = head.config["num_key_value_heads"] * head.config["head_dim"]
    for name in ("hidden_size", "num_attention_heads", "num_key_value_heads"):
        head.config[name] //= 2
    halved = {width, 2 * width, 3 * width, keys}
    for name, tensor in head.tensors.items():
        shape = [side // 2 if side in halved else side for side in tensor.shape]
        head.tensors[name] = np.zeros(shape, tensor.dtype)
    return head


def partial(head: Model, drafts: int, mapped: bool = True) -> Model:
    """A head that drafts every other token of the verifier's; `mapped` tells which, by d2t."""
    chosen = np.arange(drafts, dtype=np.int64) * 2
    head.config["draft_vocab_size"] = drafts
    head.tensors["lm_head.weight"] = head.tensors["lm_head.weight"][chosen]
    if mapped:
        head.tensors["d2t"] = chosen - np.arange(drafts, dtype=np.int64)
        used = np.zeros(head.config["vocab_size"], np.bool_)
        used[chosen] = True
        head.tensors["t2d"] = used
    return head


def padded(head: Model, count: int) -> Model:
    """A head whose vocabulary has so many rows, the last ones of no token."""
    head.tensors["lm_head.weight"] = resized(head.tensors["lm_head.weight"], count)
    return changed(head, vocab_size=count, draft_vocab_size=count)


def as_speculators(head: Model, verifier: str) -> Model:
    """The head in the format of the speculators library, which names its verifier."""
    own = ("draft_vocab_size", "eagle_config", "architectures", "transformers_version")
    layer = {key: value for key, value in head.config.items() if key not in own}
    head.config = {
        "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "speculators_version": "0.3.0",
        "draft_vocab_size": head.config["draft_vocab_size"], "norm_before_residual": False,
        "eagle_aux_hidden_state_layer_ids": head.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"],
        "tie_word_embeddings": False, "dtype": "float32", "transformer_layer_config": layer,
        "speculators_config": {
            "algorithm": "eagle3", "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"name_or_path": verifier, "architectures": ["LlamaForCausalLM"]},
        },
    }  # fmt: skip
    head.tensors = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in head.tensors.items()}
    return head


def changed(model: Model, **values: Any) -> Model:
    """With other values in its configuration; None removes a key."""
    model.config |= values
    model.config = {key: value for key, value in model.config.items() if value is not None}
    return model


def reading(head: Model, *layers: int) -> Model:
    """A head that asks for the inputs of these layers of the verifier; the number of layers is its output."""
    head.config["eagle_config"] = {**head.config["eagle_config"], "eagle_aux_hidden_state_layer_ids": list(layers)}
    return head
