"""Train an EAGLE-3 head on what the small verifier says to some prompts. Run by the engine's interpreter.

`trained_head.py VERIFIER HEAD TARGET` takes prompts as JSON on standard input, and writes a copy of HEAD that knows the
answers by heart. It is trained without the verifier's hidden states, so that all it knows of a text it has from its own
KV cache: what is missing there shows in the share of accepted drafts. Called by `test_off_head`; `mtp_verifier` trains
with the same functions.
"""
# mypy: disable-error-code="import-not-found,unused-ignore,import-untyped"

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer

TOKENS, ROUNDS, RATE = 80, 300, 3e-3
BASE = 10000.0
"""Of rotary positions, in the small models."""
LAYER = "midlayer."
Weights = dict[str, torch.Tensor]


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


def turned(x: torch.Tensor, base: float) -> torch.Tensor:
    """Rotary positions, halves apart. `x` is [heads, tokens, size]."""
    size = x.shape[-1]
    angles = torch.outer(torch.arange(x.shape[-2]), base ** (-torch.arange(0, size, 2) / size))
    first, second = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def attention_and_mlp(
    of: Weights, layer: str, given: torch.Tensor, residual: torch.Tensor | None, size: int
) -> torch.Tensor:
    """What a decoder layer makes of its normalized input, heads of `size`."""
    q, k, v = (
        (given @ of[f"{layer}self_attn.{name}_proj.weight"].T).unflatten(-1, (-1, size)).transpose(0, 1)
        for name in "qkv"
    )
    shared = q.shape[0] // k.shape[0]
    mixed = functional.scaled_dot_product_attention(
        turned(q, BASE), turned(k, BASE).repeat_interleave(shared, 0), v.repeat_interleave(shared, 0), is_causal=True
    )
    kept = mixed.transpose(0, 1).flatten(1) @ of[layer + "self_attn.o_proj.weight"].T
    kept = kept if residual is None else kept + residual
    wide = normed(kept, of[layer + "post_attention_layernorm.weight"])
    gate, up = (wide @ of[f"{layer}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
    return kept + (functional.silu(gate) * up) @ of[layer + "mlp.down_proj.weight"].T


def logits(of: Weights, embedded: torch.Tensor, size: int) -> torch.Tensor:
    """What the head says after each token, as vLLM computes it where the hidden states it is given are zero."""
    given = normed(embedded, of[LAYER + "input_layernorm.weight"])
    given = torch.cat([given, torch.zeros_like(given)], -1)
    kept = attention_and_mlp(of, LAYER, given, None, size)
    return normed(kept, of["norm.weight"]) @ of["lm_head.weight"].T


def answers(model: Any, tokenizer: Any, prompts: list[str]) -> list[tuple[int, torch.Tensor]]:
    """For each prompt its length, and the ids of it and of what the verifier says to it, beyond an end of text too."""
    model.generation_config.eos_token_id = None
    texts = []
    for prompt in prompts:
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        made = model.generate(ids, max_new_tokens=TOKENS, do_sample=False)
        texts.append((ids.shape[1], made[0]))
    return texts


def train(learned: list[torch.Tensor], loss: Callable[[], torch.Tensor]) -> None:
    """Change the weights until they say it by heart."""
    steps = torch.optim.Adam([weight.requires_grad_() for weight in learned], lr=RATE)
    for _ in range(ROUNDS):
        steps.zero_grad()
        now = loss()
        now.backward()
        steps.step()
    print(f"loss {now.item():.3f}", file=sys.stderr)


def main() -> None:
    verifier, head, target = map(Path, sys.argv[1:])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(verifier), AutoTokenizer.from_pretrained(verifier)
    texts = answers(model, tokenizer, json.load(sys.stdin))
    embedding = model.get_input_embeddings().weight.detach()
    size = json.loads((head / "config.json").read_text())["head_dim"]
    weights = load_file(head / "model.safetensors")
    weights["fc.weight"].zero_()

    def loss() -> torch.Tensor:
        said = ((logits(weights, embedding[ids[1:-1]], size)[prompt - 1 :], ids[prompt + 1 :]) for prompt, ids in texts)
        return torch.stack([functional.cross_entropy(*one) for one in said]).sum()

    train([weight for name, weight in weights.items() if name != "fc.weight"], loss)
    shutil.copytree(head, target, ignore=shutil.ignore_patterns("*.safetensors"))
    save_file({name: weight.detach() for name, weight in weights.items()}, target / "model.safetensors")


if __name__ == "__main__":
    main()
