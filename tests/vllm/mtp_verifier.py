"""Make a verifier with an MTP layer that knows some answers by heart. Run by the engine's interpreter.

`mtp_verifier.py VERIFIER TARGET` takes prompts as JSON on standard input, and writes a copy of the small Llama as MiMo
(which computes the same, with biases of zero) with one MTP layer. The layer is trained without the verifier's hidden
states, so that all it knows of a text it has from its own KV cache: what is missing there shows in the share of
accepted drafts. Called by `test_off_head`.
"""
# mypy: disable-error-code="import-not-found,unused-ignore,import-untyped"

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional
from trained_head import answers, attention_and_mlp, normed, train
from transformers import AutoModelForCausalLM, AutoTokenizer

LAYER = "model.mtp_layers.0."
"""Where a MiMo checkpoint has its MTP layer."""
Weights = dict[str, torch.Tensor]


def initial(verifier: Weights, hidden: int) -> Weights:
    """An MTP layer that begins as the verifier's last one, and is not given the verifier's hidden states."""
    last = max(int(name.split(".")[2]) for name in verifier if name.startswith("model.layers."))
    prefix = f"model.layers.{last}."
    found = {LAYER + name.removeprefix(prefix): w.clone() for name, w in verifier.items() if name.startswith(prefix)}
    found |= {f"{LAYER}{name}_layernorm.weight": torch.ones(hidden) for name in ("token", "hidden", "final")}
    found[LAYER + "input_proj.weight"] = torch.cat([torch.zeros(hidden, hidden), torch.eye(hidden)], 1)
    return found


def logits(of: Weights, embedded: torch.Tensor, head: torch.Tensor, size: int) -> torch.Tensor:
    """What the layer says after each token, as vLLM computes it (mimo_mtp.py): it hides the first token."""
    first_hidden = torch.cat([torch.zeros_like(embedded[:1]), embedded[1:]])
    given = normed(first_hidden, of[LAYER + "token_layernorm.weight"])
    given = given @ of[LAYER + "input_proj.weight"][:, given.shape[-1] :].T
    kept = attention_and_mlp(of, LAYER, normed(given, of[LAYER + "input_layernorm.weight"]), given, size)
    return normed(kept, of[LAYER + "final_layernorm.weight"]) @ head.T


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(source), AutoTokenizer.from_pretrained(source)
    texts = answers(model, tokenizer, json.load(sys.stdin))
    embedding = model.get_input_embeddings().weight.detach()
    config = json.loads((source / "config.json").read_text())
    weights = load_file(source / "model.safetensors")
    layer = initial(weights, config["hidden_size"])
    fixed = LAYER + "input_proj.weight"

    def loss() -> torch.Tensor:
        said = (
            (logits(layer, embedding[ids[1:-1]], embedding, config["head_dim"])[prompt - 1 :], ids[prompt + 1 :])
            for prompt, ids in texts
        )
        return torch.stack([functional.cross_entropy(*one) for one in said]).sum()

    train([weight for name, weight in layer.items() if name != fixed], loss)
    heads, shared = config["num_attention_heads"], config["num_key_value_heads"]
    wide = {"q": heads * config["head_dim"], "k": shared * config["head_dim"], "v": shared * config["head_dim"]}
    blocks = [f"model.layers.{number}." for number in range(config["num_hidden_layers"])] + [LAYER]
    biases = {f"{at}self_attn.{name}_proj.bias": torch.zeros(size) for at in blocks for name, size in wide.items()}
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors"))
    save_file(
        weights | {name: weight.detach() for name, weight in layer.items()} | biases, target / "model.safetensors"
    )
    config |= {"architectures": ["MiMoForCausalLM"], "model_type": "qwen2", "num_nextn_predict_layers": 1}
    (target / "config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    main()
