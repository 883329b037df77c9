"""A model's facts from its small files and the headers of its tensors: what judging a pair needs, in seconds and in
little memory, whatever the model's size. Run in a Job, and by `speculative check` on a user's machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from speculative_operator.domain.models import CONFIG_KEYS, ModelFacts
from speculative_operator.domain.reasons import Reason
from speculative_operator.weights import headers, reading, tokenizers
from speculative_operator.weights.source import Entry, Source, WeightsError

_MOST_CONFIG = 16 << 20
_MOST_CARD = 64 << 10
_LONGEST_TEXT = 200
_LONGEST_LIST = 256
_WITHOUT_CONFIG = ("params.json",)


def inspect(source: Source) -> ModelFacts:
    """All facts of one model that judging needs. Raises WeightsError, with the file that could not be read."""
    files = {entry.path: entry for entry in source.files}
    weights = headers.facts_of(source, files)
    base_models, relation = _lineage(source, files)
    return ModelFacts(
        pin=source.pin,
        config=_config(source, files, weights.format),
        tokenizer=tokenizers.facts_of(source, files),
        weights=weights,
        base_models=base_models,
        relation=relation,
    )


def cut(config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` without keys that nobody judges by, and without long lists and texts, which are no settings."""
    content = {key: _cut(value) for key, value in config.items() if key in CONFIG_KEYS}
    return {key: value for key, value in content.items() if value is not None and value != {}}


def _cut(value: Any) -> Any:
    if isinstance(value, Mapping):
        return cut(value)
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else None
    if isinstance(value, list):
        return [_cut(one) for one in value] if len(value) <= _LONGEST_LIST else None
    return value


def _config(source: Source, files: Mapping[str, Entry], weights: str) -> dict[str, Any]:
    if "config.json" not in files:
        if weights == "gguf" or any(name in files for name in _WITHOUT_CONFIG):
            return {}
        raise WeightsError(
            Reason.SOURCE_NOT_FOUND,
            f"{source.pin.source.uri}: none of its {len(files)} files is config.json",
            file="config.json",
            remedy="use the folder or repository that has the model itself",
        )
    config = cut(reading.json_object(source, files["config.json"], _MOST_CONFIG))
    if "quantization_config" not in config and "hf_quant_config.json" in files:
        # NVIDIA ModelOpt's own file, where it did not write its settings into config.json as well.
        own = reading.json_object(source, files["hf_quant_config.json"], _MOST_CONFIG).get("quantization")
        if isinstance(own, Mapping):
            config["quantization_config"] = {"quant_method": "modelopt", **cut(own)}
    return config


def _lineage(source: Source, files: Mapping[str, Entry]) -> tuple[tuple[str, ...], str]:
    """`base_model` and `base_model_relation` of the model card. A card that cannot be read tells nothing: it is prose
    for people, and no reason to refuse a model."""
    if "README.md" not in files:
        return (), ""
    text = reading.part(source, files["README.md"], 0, _MOST_CARD).decode("utf-8", "replace")
    opening, _, rest = text.partition("\n")
    front, closing, _ = rest.partition("\n---")
    if opening.strip() != "---" or not closing:
        return (), ""
    try:
        card = yaml.safe_load(front)
    except (yaml.YAMLError, ValueError, RecursionError):
        return (), ""
    if not isinstance(card, Mapping):
        return (), ""
    base, relation = card.get("base_model"), card.get("base_model_relation")
    names = [base] if isinstance(base, str) else base if isinstance(base, list) else []
    bases = tuple(name[:_LONGEST_TEXT] for name in names[:8] if isinstance(name, str) and name)
    return bases, relation[:40] if isinstance(relation, str) else ""
