"""Small models made for a test, and facts of them told by other means than the code under test."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_WIDTHS = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "U8": 1, "I32": 4, "I64": 8, "BOOL": 1}


def header(tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> tuple[bytes, int]:
    """Length and header of a safetensors file, and the bytes of tensors that follow."""
    at, told = 0, {"__metadata__": {"format": "pt", "note": 'a "quoted" [bracket] {brace}'}}
    for name, (dtype, shape) in tensors.items():
        size = _WIDTHS[dtype]
        for side in shape:
            size *= side
        told[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}  # type: ignore[dict-item]
        at += size
    text = json.dumps(told).encode()
    return struct.pack("<Q", len(text)) + text, at


def safetensors(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
    """Sparse: tensors are holes, whatever their size."""
    head, size = header(tensors)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + size)


def tokenizer(tokens: Mapping[str, int], added: Mapping[str, int], **model: Any) -> dict[str, Any]:
    """A `tokenizer.json`."""
    return {
        "version": "1.0",
        "truncation": None,
        "added_tokens": [{"id": number, "content": token, "special": True} for token, number in added.items()],
        "pre_tokenizer": {"type": "ByteLevel"},
        "model": {"type": "BPE", "byte_fallback": False, "vocab": dict(tokens), "merges": ["a b"], **model},
    }


def hash_by_hand(tokens: Iterable[tuple[str, int]]) -> str:
    """The documented recipe, spelt out once more."""
    lines = [f"{number}\0{token}\n" for token, number in sorted(tokens, key=lambda pair: pair[1])]
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def model(folder: Path, *, layers: int = 2, hidden: int = 8, card: str = "") -> Path:
    """A llama-like model in two files with an index, a tokenizer, and what servers do not need."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "vocab_size": 6}
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": layers, "initializer_range": 0.02}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [4, 5], "transformers_version": "5"}))
    names = {"a": 0, "b": 1, "Ġ\\": 2, 'q"': 3, "<end>": 5}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(names, {"<end>": 5, "<pad>": 4})))
    settings = {
        "eos_token": {"content": "<end>"},
        "pad_token": "<pad>",
        "bos_token": None,
        "chat_template": "{{ x }}\n",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    first = {"model.embed_tokens.weight": ("BF16", (6, hidden)), "model.norm.weight": ("BF16", (hidden,))}
    rest = {f"model.layers.{at}.mlp.up_proj.weight": ("BF16", (2 * hidden, hidden)) for at in range(layers)}
    safetensors(folder / "model-00001-of-00002.safetensors", first)
    safetensors(folder / "model-00002-of-00002.safetensors", rest)
    where = dict.fromkeys(first, "model-00001-of-00002.safetensors")
    where |= dict.fromkeys(rest, "model-00002-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    (folder / "README.md").write_text(
        card or "---\nbase_model:\n- org/base\nbase_model_relation: quantized\n---\n# x\n"
    )
    (folder / ".gitattributes").write_text("x")
    (folder / "pytorch_model.bin").write_bytes(b"\0" * 100)
    return folder
