"""Values out of a model's `config.json`, whatever is in it: a wrong type is read as absence, never as an exception.

Used by every module of the judge. `config.json` is written by anybody; names of keys are those of Hugging Face
Transformers 5, of the speculators library 0.5 and of the EAGLE, Medusa and DFlash repositories.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from speculative_operator.domain.models import ModelFacts
from speculative_operator.domain.reading import at

_NESTED = ("text_config", "llm_config", "language_config", "transformer_layer_config")
"""Where multimodal models and speculators checkpoints keep the decoder's own configuration."""
_LARGEST = 1 << 62

KEYS = frozenset(
    {
        "architectures", "aux_hidden_state_layer_ids", "backbone_hidden_size", "base_model_name_or_path",
        "block_size", "dflash_config", "draft_vocab_size", "dspark_block_size", "dspark_noise_token_id",
        "dspark_target_layer_ids", "dtype", "eagle_aux_hidden_state_layer_ids", "eagle_config", "emb_dim", "hc_count",
        "hc_mult", "hidden_size", "language_config", "llm_config", "mask_token_id", "max_position_embeddings",
        "medusa_num_heads", "model_type", "mtp_config", "mtp_num_hidden_layers", "n_predict", "num_attention_heads",
        "num_aux_hidden_states", "num_heads", "num_hidden_layers", "num_mtp_modules", "num_nextn_predict_layers",
        "num_target_layers", "pard_token", "ptd_token_id", "quantization_config", "rope_parameters", "rope_scaling",
        "sample_from_anchor", "speculators_config", "speculators_model_type", "target_hidden_size",
        "target_layer_ids", "text_config", "thinker_config", "torch_dtype", "transformer_layer_config",
        "truncated_vocab_size", "vocab_size",
    }
)  # fmt: skip
"""Keys that the judge reads, at the top or nested: the inspector must keep them."""


def whole(value: Any, *path: str) -> int | None:
    """A whole number above 0 at `path`; None for anything else."""
    found = at(value, *path)
    if isinstance(found, float) and found.is_integer() and found < _LARGEST:
        found = int(found)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 < found < _LARGEST else None


def first_whole(value: Any, keys: Iterable[str]) -> int | None:
    """The first of `keys` that holds a whole number above 0."""
    return next((found for found in (whole(value, key) for key in keys) if found is not None), None)


def text(value: Any, *path: str) -> str:
    """Text at `path`, without surrounding blanks; empty for anything else."""
    found = at(value, *path)
    return found.strip() if isinstance(found, str) else ""


def texts(value: Any, *path: str) -> tuple[str, ...]:
    """The texts in a list at `path`."""
    found = at(value, *path)
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, (list, tuple)) else ()


def indices(value: Any, *path: str) -> tuple[int, ...]:
    """A list of whole numbers at `path`, negative ones included; empty where one of them is none."""
    found = at(value, *path)
    if not isinstance(found, (list, tuple)):
        return ()
    every = tuple(one for one in found if isinstance(one, int) and not isinstance(one, bool))
    return every if len(every) == len(found) else ()


def decoder(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part that describes the decoder of text: nested in multimodal models and in speculators checkpoints."""
    thinker = at(config, "thinker_config")
    for place in (config, thinker):
        for key in _NESTED:
            nested = at(place, key)
            if isinstance(nested, Mapping) and nested:
                return {**nested}
    return config


def hidden_size(facts: ModelFacts) -> int | None:
    """Width of the model's hidden states."""
    return whole(decoder(facts.config), "hidden_size")


def vocabulary_size(facts: ModelFacts) -> int | None:
    """`vocab_size`: rows of the embedding, padding included."""
    return whole(decoder(facts.config), "vocab_size") or whole(facts.config, "vocab_size")


def layers(facts: ModelFacts) -> int | None:
    return whole(decoder(facts.config), "num_hidden_layers")


def model_type(facts: ModelFacts) -> str:
    """`model_type` of the decoder, else of the whole."""
    return text(decoder(facts.config), "model_type") or text(facts.config, "model_type")


def dtype(facts: ModelFacts) -> str:
    """Number format of unquantized weights, such as `bfloat16`."""
    inner = decoder(facts.config)
    named = (text(place, key) for place in (facts.config, inner) for key in ("dtype", "torch_dtype"))
    return next((name.removeprefix("torch.") for name in named if name), "")


def quantization(facts: ModelFacts) -> str:
    """`quant_method` of the checkpoint; empty for plain weights."""
    inner = decoder(facts.config)
    named = (text(place, "quantization_config", "quant_method") for place in (facts.config, inner))
    return next((name.lower() for name in named if name), "")


def shape(facts: ModelFacts, *ends: str) -> tuple[str, tuple[int, ...]] | None:
    """(name, shape) of the first tensor, by name, whose name ends in one of `ends`; None where none is known."""
    found = (name for name in sorted(facts.weights.shapes) if any(_ends(name, end) for end in ends))
    name = next(found, None)
    return None if name is None else (name, facts.weights.shapes[name])


def headers_read(facts: ModelFacts) -> bool:
    """True when the names of all tensors were seen, so that one that is not there is absent."""
    return facts.weights.format == "safetensors" and facts.weights.files > 0 and bool(facts.weights.shapes)


def _ends(name: str, end: str) -> bool:
    return name == end or name.endswith(f".{end}")
