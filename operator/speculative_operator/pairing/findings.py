"""What a judge may say of a pair: one finding at a time, with its level, its code and what the code means.

Made by `judge` and the modules of `compared`, shown by reconcile, `speculative check` and `speculative pairs`. Codes
are stable: pipelines match on them. docs/pairs.md lists them; a test holds its table to this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a finding weighs."""

    ERROR = "Error"
    """The engine would not start, or would draft what is never accepted: no pod."""
    WARNING = "Warning"
    """It runs, but less well than it could, or than was meant."""
    INFO = "Info"
    """Worth knowing."""


class Code(StrEnum):
    """What a judge found about a pair."""

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
    SPECULATOR_LARGE = "DrafterLarge"
    HEADS_NOT_DIVISIBLE = "HeadsNotDivisible"
    # K
    MODULES_ABSENT = "ModulesAbsent"
    MODULES_NOT_DIVIDING = "ModulesNotDividing"
    MODULES_REUSED = "ModulesReused"
    BLOCK_EXCEEDED = "BlockExceeded"
    HEADS_EXCEEDED = "HeadsExceeded"


MEANINGS: dict[Code, str] = {
    Code.ENGINE_REFUSES: "This version of the engine cannot serve what the spec asks, whatever the files contain.",
    Code.FACTS_MISSING: "A model has no readable `config.json`, so little or nothing was compared.",
    Code.METHOD_DIFFERS: "The speculator's files belong to another method than `spec.speculator.method`.",
    Code.FORMAT_UNSUPPORTED: "The engine does not read this kind of speculators checkpoint.",
    Code.PARALLEL_UNSET: "The speculator was trained to draft in one pass, but the spec does not set "
    "`parallelDrafting`.",
    Code.PARALLEL_UNTRAINED: "The spec sets `parallelDrafting`, but the speculator has no mask token for it.",
    Code.VERIFIER_UNSUPPORTED: "The engine cannot read hidden states inside this verifier's architecture.",
    Code.VOCABULARY_DIFFERS: "The same token ids mean other text: drafts would be accepted only by chance.",
    Code.VOCABULARY_SIZE_DIFFERS: "The vocabularies differ in size, by padding or by more.",
    Code.VOCABULARY_MAPPED: "The vocabularies differ, and vLLM maps them because of `heterogeneousVocabulary`.",
    Code.MAPPING_UNNEEDED: "`heterogeneousVocabulary` maps a vocabulary to itself, which costs time and gains nothing.",
    Code.ADDED_TOKENS_DIFFER: "Added tokens (roles, tools, thinking) differ; drafts fail around them.",
    Code.SPECIAL_TOKENS_DIFFER: "The speculator begins or ends texts with other tokens than the verifier.",
    Code.CHAT_TEMPLATE_DIFFERS: "The speculator was trained with another chat template than the verifier's, which is "
    "applied.",
    Code.DRAFT_MAP_MISSING: "The head drafts from a part of the vocabulary and lacks the map (`d2t`) to the whole.",
    Code.DRAFT_MAP_SHAPE: "A tensor that maps drafts does not have the shape that `config.json` announces.",
    Code.DRAFT_VOCABULARY_TOO_LARGE: "The head may draft token ids that the verifier does not have.",
    Code.HIDDEN_SIZE_DIFFERS: "The head reads hidden states of another width than the verifier's.",
    Code.AUXILIARY_INPUT_DIFFERS: "The head's first projection does not accept the hidden states that it would get.",
    Code.AUXILIARY_LAYERS_BEYOND: "The head needs hidden states of layers that the verifier does not have.",
    Code.LAYERS_DIFFER: "The head was made for a verifier with another number of layers.",
    Code.VERIFIER_DIFFERS: "The speculator names another verifier; few of its drafts may be accepted.",
    Code.VERIFIER_QUANTIZED: "The verifier is a quantized form of the one that the speculator names, or the reverse.",
    Code.VERIFIER_FINE_TUNED: "The verifier is a fine-tune, merge or adaptation of the one that the speculator names.",
    Code.VERIFIER_UNNAMED: "The speculator names its verifier, but the address of `spec.verifier.model` does not show "
    "which model it is.",
    Code.CONTEXT_BEYOND: "`maxModelLen` exceeds what the verifier's configuration allows.",
    Code.POSITIONS_SHORT: "The speculator supports fewer positions than requests may have.",
    Code.DTYPE_DIFFERS: "The engine converts the speculator's weights to the verifier's number format when it loads "
    "them.",
    Code.QUANTIZATION_DIFFERS: "The spec names another quantization than the checkpoint's own.",
    Code.SPECULATOR_LARGE: "The speculator is not much smaller than the verifier, so drafting costs what it saves.",
    Code.HEADS_NOT_DIVISIBLE: "The attention heads are not divisible by the tensor parallel size.",
    Code.MODULES_ABSENT: "The verifier has no modules that predict further tokens.",
    Code.MODULES_NOT_DIVIDING: "K is above the number of mtp modules and not a multiple of it.",
    Code.MODULES_REUSED: "K is above the number of mtp modules: the engine runs them again, and later drafts are "
    "worse.",
    Code.BLOCK_EXCEEDED: "K is above the block size that the speculator was trained for.",
    Code.HEADS_EXCEEDED: "K is above the number of heads, each of which drafts one token.",
}
"""Code -> one sentence."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of comparing the two models of a pair."""

    level: Level
    code: str
    """CamelCase word for the finding, stable, such as `VocabularyDiffers`: for pipelines and docs."""
    field: str
    """Where it was read: `speculator config.json hidden_size`, or the field of the spec to change."""
    verifier: str
    """The verifier's value, for people; empty where it has none."""
    speculator: str
    """The speculator's value, likewise."""
    message: str
    """What the finding means, in a sentence."""
    remedy: str = ""
    """What to do; never empty for an Error."""


def error(code: Code, field: str, values: tuple[object, object], message: str, remedy: str) -> Finding:
    """A finding of level Error; `values` are (verifier's, speculator's), None without one."""
    return Finding(Level.ERROR, code.value, field, _show(values[0]), _show(values[1]), message, remedy)


def warning(code: Code, field: str, values: tuple[object, object], message: str, remedy: str = "") -> Finding:
    """A finding of level Warning; arguments as in `error`."""
    return Finding(Level.WARNING, code.value, field, _show(values[0]), _show(values[1]), message, remedy)


def info(code: Code, field: str, values: tuple[object, object], message: str, remedy: str = "") -> Finding:
    """A finding of level Info, worth knowing; arguments as in `error`."""
    return Finding(Level.INFO, code.value, field, _show(values[0]), _show(values[1]), message, remedy)


def sort_findings(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Sorts findings: errors, warnings, the rest; within a level in the order given."""
    return tuple(sorted(findings, key=lambda one: list(Level).index(one.level)))


def table() -> str:
    """The table of docs/pairs.md."""
    rows = [f"| `{code}` | {meaning} |" for code, meaning in MEANINGS.items()]
    return "\n".join(("| Code | Meaning |", "| --- | --- |", *rows))


def _show(value: object) -> str:
    if isinstance(value, tuple):
        return " x ".join(map(str, value)) or ""
    return "" if value is None else str(value)
