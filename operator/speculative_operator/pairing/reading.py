"""Values out of a model's `config.json`, whatever is in it: a wrong type is read as absence, never as an exception.

Used by the judge and by the arithmetic of memory: `config.json` is written by anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from speculative_operator.domain.models import NAMES, ModelFacts
from speculative_operator.domain.reading import at

_NESTED = ("text_config", "language_config", "llm_config", "thinker_config", "transformer_layer_config", "model")
"""Where multimodal models and speculators checkpoints keep the decoder's own configuration."""
_LARGEST = 1 << 32
"""A number beyond is no size of a model."""


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
    """One flat mapping of a config: the keys of its nested decoder win over the keys of the whole."""
    for name in _NESTED:
        inner = config.get(name)
        if isinstance(inner, Mapping) and inner:
            return decoder({**{key: value for key, value in config.items() if key != name}, **inner})
    return config


def number(config: Mapping[str, Any], what: str) -> int | None:
    """The first whole number above 0 under one of the names of `what`, a key of NAMES or of the config; None without
    one."""
    return first_whole(config, NAMES.get(what, (what,)))


def numbers(config: Mapping[str, Any], *what: str) -> tuple[int, ...] | None:
    """Whole numbers for all of `what`, in order; None where one is missing."""
    found = [number(config, one) for one in what]
    return tuple(one for one in found if one is not None) if None not in found else None


def sequence(config: Mapping[str, Any], name: str) -> Sequence[Any] | None:
    """The list under `name`; None where it is empty or missing."""
    value = config.get(name)
    return value if isinstance(value, list | tuple) and value else None


def hidden_size(facts: ModelFacts) -> int | None:
    """Width of the model's hidden states."""
    return whole(decoder(facts.config), "hidden_size")


def vocabulary_size(facts: ModelFacts) -> int | None:
    """`vocab_size`: rows of the embedding, padding included."""
    return whole(decoder(facts.config), "vocab_size")


def layers(facts: ModelFacts) -> int | None:
    return whole(decoder(facts.config), "num_hidden_layers")


def model_type(facts: ModelFacts) -> str:
    """`model_type` of the decoder, else of the whole."""
    return text(decoder(facts.config), "model_type")


def dtype(facts: ModelFacts) -> str:
    """Number format of unquantized weights, such as `bfloat16`."""
    inner = decoder(facts.config)
    return (text(inner, "dtype") or text(inner, "torch_dtype")).removeprefix("torch.")


def quantization(facts: ModelFacts) -> str:
    """`quant_method` of the checkpoint; empty for plain weights."""
    return text(decoder(facts.config), "quantization_config", "quant_method").lower()


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
