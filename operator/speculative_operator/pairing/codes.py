"""Every word that a judge may say of a pair, with what it means: findings carry them, docs/pairs.md lists them.

Used by the modules of `compared`; a test holds the table of the page to it. Codes are stable: pipelines match on them.
"""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """What was found."""

    # what there is to compare
    ENGINE_REFUSES = "EngineRefuses"
    FACTS_MISSING = "FactsMissing"
    METHOD_DIFFERS = "MethodDiffers"
    FORMAT_UNSUPPORTED = "FormatUnsupported"
    PARALLEL_UNSET = "ParallelDraftingUnset"
    PARALLEL_UNTRAINED = "ParallelDraftingUntrained"
    VERIFIER_UNSUPPORTED = "VerifierUnsupported"
    # tokens
    VOCABULARY_DIFFERS = "VocabularyDiffers"
    VOCABULARY_SIZE_DIFFERS = "VocabularySizeDiffers"
    VOCABULARY_MAPPED = "VocabularyMapped"
    MAPPING_UNNEEDED = "MappingUnneeded"
    ADDED_TOKENS_DIFFER = "AddedTokensDiffer"
    SPECIAL_TOKENS_DIFFER = "SpecialTokensDiffer"
    CHAT_TEMPLATE_DIFFERS = "ChatTemplateDiffers"
    DRAFT_MAP_MISSING = "DraftMapMissing"
    DRAFT_MAP_SHAPE = "DraftMapShape"
    DRAFT_VOCABULARY_TOO_LARGE = "DraftVocabularyTooLarge"
    # hidden states
    HIDDEN_SIZE_DIFFERS = "HiddenSizeDiffers"
    AUXILIARY_INPUT_DIFFERS = "AuxiliaryInputDiffers"
    AUXILIARY_LAYERS_BEYOND = "AuxiliaryLayersBeyond"
    LAYERS_DIFFER = "LayersDiffer"
    # the verifier that the speculator was made for
    VERIFIER_DIFFERS = "VerifierDiffers"
    VERIFIER_QUANTIZED = "VerifierQuantized"
    VERIFIER_FINE_TUNED = "VerifierFineTuned"
    VERIFIER_UNNAMED = "VerifierUnnamed"
    # lengths and numbers
    CONTEXT_BEYOND = "ContextBeyondVerifier"
    POSITIONS_SHORT = "PositionsShort"
    DTYPE_DIFFERS = "DtypeDiffers"
    QUANTIZATION_DIFFERS = "QuantizationDiffers"
    DRAFTER_LARGE = "DrafterLarge"
    HEADS_NOT_DIVISIBLE = "HeadsNotDivisible"
    # K
    MODULES_ABSENT = "ModulesAbsent"
    MODULES_NOT_DIVIDING = "ModulesNotDividing"
    MODULES_REUSED = "ModulesReused"
    BLOCK_EXCEEDED = "BlockExceeded"
    HEADS_EXCEEDED = "HeadsExceeded"


MEANINGS: dict[Code, str] = {
    Code.ENGINE_REFUSES: "The engine, at this version, cannot serve what the spec asks; no file of the pair matters.",
    Code.FACTS_MISSING: "A model has no readable `config.json`, so that little or nothing was compared.",
    Code.METHOD_DIFFERS: "The speculator's files are of another method than `spec.speculator.method`.",
    Code.FORMAT_UNSUPPORTED: "The engine does not read this kind of speculators checkpoint.",
    Code.PARALLEL_UNSET: "The drafter was trained to draft in one pass, and the spec does not say so.",
    Code.PARALLEL_UNTRAINED: "The spec asks to draft in one pass, and the drafter has no token for places to fill.",
    Code.VERIFIER_UNSUPPORTED: "The engine cannot take hidden states from inside this verifier's architecture.",
    Code.VOCABULARY_DIFFERS: "The same token ids stand for other text: no draft would be accepted but by chance.",
    Code.VOCABULARY_SIZE_DIFFERS: "The vocabularies are of different size, by padding or by more.",
    Code.VOCABULARY_MAPPED: "The vocabularies differ and are mapped, as `heterogeneousVocabulary` asks.",
    Code.MAPPING_UNNEEDED: "`heterogeneousVocabulary` maps a vocabulary to itself, which costs time and gains nothing.",
    Code.ADDED_TOKENS_DIFFER: "Tokens beside the vocabulary (roles, tools, thinking) differ; drafts fail around them.",
    Code.SPECIAL_TOKENS_DIFFER: "The drafter ends or begins texts with other tokens than the verifier.",
    Code.CHAT_TEMPLATE_DIFFERS: "The drafter was used to prompts of another form; the verifier's template is applied.",
    Code.DRAFT_MAP_MISSING: "The head drafts from a part of the vocabulary and has no map (`d2t`) to the whole.",
    Code.DRAFT_MAP_SHAPE: "A tensor that translates drafts has not the shape that `config.json` promises.",
    Code.DRAFT_VOCABULARY_TOO_LARGE: "The head may draft token ids that the verifier does not have.",
    Code.HIDDEN_SIZE_DIFFERS: "The head reads hidden states of another width than the verifier's.",
    Code.AUXILIARY_INPUT_DIFFERS: "The head's first projection does not take the hidden states that it would be given.",
    Code.AUXILIARY_LAYERS_BEYOND: "The head wants hidden states of layers that the verifier does not have.",
    Code.LAYERS_DIFFER: "The head was made for a verifier with another number of layers.",
    Code.VERIFIER_DIFFERS: "The speculator names another verifier; it may draft almost in vain.",
    Code.VERIFIER_QUANTIZED: "The verifier is a quantized form of the one that the speculator names, or the reverse.",
    Code.VERIFIER_FINE_TUNED: "The verifier was tuned, merged or adapted from the one that the speculator names.",
    Code.VERIFIER_UNNAMED: "The speculator names its verifier, but where ours lies does not tell which model it is.",
    Code.CONTEXT_BEYOND: "`maxModelLen` is beyond what the verifier's configuration allows.",
    Code.POSITIONS_SHORT: "The drafter knows fewer positions than requests may have.",
    Code.DTYPE_DIFFERS: "The drafter's weights are converted to the verifier's number format when loaded.",
    Code.QUANTIZATION_DIFFERS: "The spec names another quantization than the checkpoint's own.",
    Code.DRAFTER_LARGE: "The drafter is not much smaller than the verifier, so that drafting costs what it saves.",
    Code.HEADS_NOT_DIVISIBLE: "The attention heads do not divide by the tensor parallel size.",
    Code.MODULES_ABSENT: "The verifier has no modules that predict further tokens.",
    Code.MODULES_NOT_DIVIDING: "K is above the number of mtp modules and no multiple of it.",
    Code.MODULES_REUSED: "K is above the number of mtp modules: they are run again, and later drafts are worse.",
    Code.BLOCK_EXCEEDED: "K is beyond the block that the drafter was trained for.",
    Code.HEADS_EXCEEDED: "K is above the number of heads, each of which drafts one token.",
}
"""Code -> one sentence."""


def table() -> str:
    """The table of docs/pairs.md."""
    rows = [f"| `{code}` | {meaning} |" for code, meaning in MEANINGS.items()]
    return "\n".join(("| Code | Meaning |", "| --- | --- |", *rows))
