"""Reads from a speculator's files its method, what it reads of its verifier and what it drafts. Used by `compared`.

A head is told from a whole model by what only heads have: a format of their own (`speculators_model_type`), an
architecture of their own, keys such as `draft_vocab_size`, tensors such as `fc.weight` and `d2t`. The names are those
that vLLM 0.32.0 goes by (config/speculative.py, model_executor/models/registry.py,
transformers_utils/configs/speculators/algos.py) and those of the repositories that write the checkpoints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speculative_operator.domain.models import ModelFacts
from speculative_operator.domain.reading import at, mappings
from speculative_operator.domain.spec import Method
from speculative_operator.pairing import reading

_SPECULATORS = {
    "eagle": Method.EAGLE, "eagle3": Method.EAGLE3, "peagle": Method.EAGLE3, "dflash": Method.DFLASH,
    "dflash2": Method.DFLASH, "dspark": Method.DSPARK, "mtp": Method.MTP,
}  # fmt: skip
_ARCHITECTURES: tuple[tuple[str, Method], ...] = (
    (r"dspark", Method.DSPARK),
    (r"dflash|lilicorr|museglimmerassistant", Method.DFLASH),
    (r"eagle3|peagle", Method.EAGLE3),
    (r"eagle", Method.EAGLE),
    (r"medusa", Method.MEDUSA),
    (r"mtp|nextn|gemma4.*assistant", Method.MTP),
)
"""What an architecture's name contains, in lower case -> method; the first that matches counts."""
_TYPES = {
    "eagle": Method.EAGLE, "medusa": Method.MEDUSA, "dflash": Method.DFLASH, "gemma4_assistant": Method.MTP,
    "gemma4_unified_assistant": Method.MTP,
}  # fmt: skip
_MODEL_LAYERS = 4
"""Heads have at most so many decoder layers (P-EAGLE: 4), but for block speculators, which tell themselves."""


@dataclass(frozen=True, slots=True)
class Nature:
    """The method of a checkpoint, and the sign in its files that tells it."""

    method: Method | None
    """None where the files do not tell."""
    basis: str = ""
    """The sign: key and value, or tensor and shape."""
    parallel: bool = False
    """True when it was trained to draft in one pass and the method has another form too (P-EAGLE, PARD)."""


def nature(facts: ModelFacts) -> Nature:
    """Method of a checkpoint, by its format, its architecture, its keys, its tensors, in this order."""
    config = facts.config
    return _by_format(config) or _by_architecture(config) or _by_keys(config) or _by_tensors(facts) or _whole(facts)


def mlp_heads(facts: ModelFacts) -> str:
    """Architecture or type by which a checkpoint has MLP heads, with which no engine drafts; empty for any other."""
    types = (reading.text(facts.config, key) for key in ("speculators_model_type", "model_type"))
    named = (*reading.texts(facts.config, "architectures"), *types)
    return next((one for one in named if one == "mlp" or "mlpspeculator" in one.lower().replace("_", "")), "")


def target_hidden_size(facts: ModelFacts) -> tuple[str, int] | None:
    """(key, width) of the verifier's hidden states that a head reads; None where the files do not tell.

    A head that does not name another width reads one as wide as its own hidden states (vLLM 0.32.0 llama_eagle3.py).
    """
    inner = reading.decoder(facts.config)
    keys = ("target_hidden_size", "backbone_hidden_size", "hidden_size", "emb_dim")
    return next(((key, width) for key in keys if (width := reading.whole(inner, key))), None)


def auxiliary_layers(facts: ModelFacts) -> tuple[str, tuple[int, ...]]:
    """(key, layers) whose inputs a head reads, counted so that n, the verifier's number of layers, is its output.

    `target_layer_ids` name the layer whose output is read, hence one less (vLLM 0.32.0
    v1/worker/gpu/spec_decode/eagle/eagle3_utils.py). Empty where the head does not tell.
    """
    config = facts.config
    for path in (
        ("eagle_aux_hidden_state_layer_ids",),
        ("aux_hidden_state_layer_ids",),
        ("eagle_config", "eagle_aux_hidden_state_layer_ids"),
    ):
        if found := reading.indices(config, *path):
            return ".".join(path), found
    for path in (("dflash_config", "target_layer_ids"), ("dspark_target_layer_ids",), ("target_layer_ids",)):
        if found := reading.indices(config, *path):
            return ".".join(path), tuple(one + 1 for one in found)
    return "", ()


def uses_auxiliary(facts: ModelFacts) -> bool:
    """False for an EAGLE-3 head that reads the last hidden states alone."""
    return at(facts.config, "eagle_config", "use_aux_hidden_state") is not False


def draft_vocabulary_size(facts: ModelFacts) -> int | None:
    """Tokens that a head can draft; None where it drafts from its whole vocabulary."""
    return reading.first_whole(facts.config, ("draft_vocab_size", "truncated_vocab_size"))


def block(facts: ModelFacts) -> int | None:
    """Tokens that a block speculator was trained to draft in one pass: its block less the place of the last real token,
    where that is not drafted from (`sample_from_anchor`; DSpark's own checkpoints draft from it). Of P-EAGLE as
    the library speculators writes it: the K that it learned."""
    if nature(facts).parallel:
        told = mappings(facts.config, "speculators_config", "proposal_methods")
        return next((reading.whole(one, "speculative_tokens") for one in told), None)
    inner = (facts.config, at(facts.config, "dflash_config"))
    size = next((found for place in inner if (found := reading.first_whole(place, _BLOCK))), None)
    if size is None:
        return None
    anchored = next((told for place in inner if isinstance(told := at(place, "sample_from_anchor"), bool)), None)
    if anchored is None:
        anchored = nature(facts).method is Method.DSPARK and not reading.text(facts.config, "speculators_model_type")
    return size if anchored else size - 1


_BLOCK = ("block_size", "dspark_block_size")
_FILLERS = ("mask_token_id", "dspark_noise_token_id", "pard_token", "ptd_token_id")
"""Keys for the token that stands for places to fill (vLLM 0.32.0 v1/spec_decode/llm_base_proposer.py)."""


def filler(facts: ModelFacts) -> str:
    """The key under which a speculator names its token for places to fill; empty without one."""
    inner = (facts.config, at(facts.config, "dflash_config"))
    return next((key for place in inner for key in _FILLERS if isinstance(at(place, key), int)), "")


def _by_format(config: Mapping[str, Any]) -> Nature | None:
    named = reading.text(config, "speculators_model_type")
    method = _SPECULATORS.get(named)
    return Nature(method, f"speculators_model_type {named}", named == "peagle") if method else None


def _by_architecture(config: Mapping[str, Any]) -> Nature | None:
    for named in reading.texts(config, "architectures"):
        for pattern, method in _ARCHITECTURES:
            if re.search(pattern, named.lower()):
                return Nature(method, f"architectures {named}", "peagle" in named.lower())
    kind = reading.text(config, "model_type")
    told = _TYPES.get(kind) or (Method.MTP if kind.endswith("_mtp") else None)
    return Nature(told, f"model_type {kind}") if told else None


def _by_keys(config: Mapping[str, Any]) -> Nature | None:
    if reading.whole(config, "medusa_num_heads"):
        return Nature(Method.MEDUSA, "medusa_num_heads")
    if at(config, "dflash_config"):
        return Nature(Method.DFLASH, "dflash_config")
    one_layer = reading.whole(config, "num_hidden_layers") == 1
    if one_layer and reading.first_whole(config, ("draft_vocab_size", "truncated_vocab_size")):
        return Nature(Method.EAGLE3, "a draft vocabulary and one layer")
    return None


def _by_tensors(facts: ModelFacts) -> Nature | None:
    if found := reading.shape(facts, "d2t"):
        return Nature(Method.EAGLE3, f"tensor {found[0]}")
    if name := next((name for name in facts.weights.shapes if name.startswith("medusa_head")), ""):
        return Nature(Method.MEDUSA, f"tensor {name}")
    found = reading.shape(facts, "fc.weight")
    if found is None or len(found[1]) != 2 or reading.whole(facts.config, "num_hidden_layers") not in (1, 2):
        return None
    wide, narrow = found[1][1], found[1][0]
    basis = f"tensor {found[0]} {list(found[1])}"
    return {2: Nature(Method.EAGLE, basis), 3: Nature(Method.EAGLE3, basis)}.get(wide // narrow if narrow > 0 else 0)


def _whole(facts: ModelFacts) -> Nature:
    count = reading.layers(facts)
    if count is None or not reading.vocabulary_size(facts):
        return Nature(None)
    if count > _MODEL_LAYERS or _complete(facts):
        return Nature(
            Method.DRAFT_MODEL,
            f"{count} decoder layers and a vocabulary",
            reading.whole(facts.config, "pard_token") is not None,
        )
    return Nature(None)


def _complete(facts: ModelFacts) -> bool:
    """True when all tensors were seen, an embedding among them and nothing that only heads have."""
    return (
        reading.headers_read(facts)
        and not reading.quantization(facts)
        and reading.shape(facts, "embed_tokens.weight") is not None
        and reading.shape(facts, "fc.weight", "d2t", "t2d") is None
    )
