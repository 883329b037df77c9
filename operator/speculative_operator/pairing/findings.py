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
    """What a judge found about a pair, and what that means, in one sentence."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Code:
        member = str.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member

    # what there is to compare
    ENGINE_REFUSES = (
        "EngineRefuses",
        "This version of the engine cannot serve what the spec asks, whatever the files contain.",
    )
    FACTS_MISSING = "FactsMissing", "A model has no readable `config.json`, so little or nothing was compared."
    METHOD_DIFFERS = "MethodDiffers", "The speculator's files belong to another method than `spec.speculator.method`."
    FORMAT_UNSUPPORTED = "FormatUnsupported", "The engine does not read this kind of speculators checkpoint."
    PARALLEL_UNSET = (
        "ParallelDraftingUnset",
        "The speculator was trained to draft in one pass, but the spec does not set `parallelDrafting`.",
    )
    PARALLEL_UNTRAINED = (
        "ParallelDraftingUntrained",
        "The spec sets `parallelDrafting`, but the speculator has no mask token for it.",
    )
    VERIFIER_UNSUPPORTED = (
        "VerifierUnsupported",
        "The engine cannot read hidden states inside this verifier's architecture, or not across stages of a pipeline.",
    )
    OUTPUTS_DOUBTFUL = (
        "OutputsDoubtful",
        "The engine's output with drafts was reported wrong for such a pair: `speculative verify` tells of yours.",
    )
    REUSE_DOUBTFUL = (
        "ReuseDoubtful",
        "With drafts the engine was reported to reuse fewer cached prompts: compare the time to the first token.",
    )
    # tokens
    VOCABULARY_DIFFERS = (
        "VocabularyDiffers",
        "The same token ids mean other text: drafts would be accepted only by chance.",
    )
    VOCABULARY_SIZE_DIFFERS = "VocabularySizeDiffers", "The vocabularies differ in size, by padding or by more."
    VOCABULARY_MAPPED = (
        "VocabularyMapped",
        "The vocabularies differ, and vLLM maps them because of `heterogeneousVocabulary`.",
    )
    MAPPING_UNNEEDED = (
        "MappingUnneeded",
        "`heterogeneousVocabulary` maps a vocabulary to itself, which costs time and gains nothing.",
    )
    ADDED_TOKENS_DIFFER = "AddedTokensDiffer", "Added tokens (roles, tools, thinking) differ; drafts fail around them."
    SPECIAL_TOKENS_DIFFER = (
        "SpecialTokensDiffer",
        "The speculator begins or ends texts with other tokens than the verifier.",
    )
    CHAT_TEMPLATE_DIFFERS = (
        "ChatTemplateDiffers",
        "The speculator was trained with another chat template than the verifier's, which is applied.",
    )
    DRAFT_MAP_MISSING = (
        "DraftMapMissing",
        "The head drafts from a part of the vocabulary and lacks the map (`d2t`) to the whole.",
    )
    DRAFT_MAP_SHAPE = "DraftMapShape", "A tensor that maps drafts does not have the shape that `config.json` announces."
    DRAFT_VOCABULARY_TOO_LARGE = (
        "DraftVocabularyTooLarge",
        "The head may draft token ids that the verifier does not have.",
    )
    # hidden states
    HIDDEN_SIZE_DIFFERS = "HiddenSizeDiffers", "The head reads hidden states of another width than the verifier's."
    AUXILIARY_INPUT_DIFFERS = (
        "AuxiliaryInputDiffers",
        "The head's first projection does not accept the hidden states that it would get.",
    )
    AUXILIARY_LAYERS_BEYOND = (
        "AuxiliaryLayersBeyond",
        "The head needs hidden states of layers that the verifier does not have.",
    )
    LAYERS_DIFFER = "LayersDiffer", "The head was made for a verifier with another number of layers."
    # the verifier that the speculator was made for
    VERIFIER_DIFFERS = "VerifierDiffers", "The speculator names another verifier; few of its drafts may be accepted."
    VERIFIER_QUANTIZED = (
        "VerifierQuantized",
        "The verifier is a quantized form of the one that the speculator names, or the reverse.",
    )
    VERIFIER_FINE_TUNED = (
        "VerifierFineTuned",
        "The verifier is a fine-tune, merge or adaptation of the one that the speculator names.",
    )
    VERIFIER_UNNAMED = (
        "VerifierUnnamed",
        "The speculator names its verifier, but the address of `spec.verifier.model` does not show which model it is.",
    )
    # lengths and numbers
    CONTEXT_BEYOND = "ContextBeyondVerifier", "`maxModelLen` exceeds what the verifier's configuration allows."
    POSITIONS_SHORT = "PositionsShort", "The speculator supports fewer positions than requests may have."
    DTYPE_DIFFERS = (
        "DtypeDiffers",
        "The engine converts the speculator's weights to the verifier's number format when it loads them.",
    )
    QUANTIZATION_DIFFERS = "QuantizationDiffers", "The spec names another quantization than the checkpoint's own."
    SPECULATOR_LARGE = (
        "DrafterLarge",
        "The speculator is not much smaller than the verifier, so drafting costs what it saves.",
    )
    HEADS_NOT_DIVISIBLE = "HeadsNotDivisible", "The attention heads are not divisible by the tensor parallel size."
    # K
    MODULES_ABSENT = "ModulesAbsent", "The verifier has no modules that predict further tokens."
    MODULES_NOT_DIVIDING = "ModulesNotDividing", "K is above the number of mtp modules and not a multiple of it."
    MODULES_REUSED = (
        "ModulesReused",
        "K is above the number of mtp modules: the engine runs them again, and later drafts are worse.",
    )
    BLOCK_EXCEEDED = "BlockExceeded", "K is above what the speculator was trained to draft in one pass."
    HEADS_EXCEEDED = "HeadsExceeded", "K is above the number of heads, each of which drafts one token."


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
    rows = [f"| `{code}` | {code.meaning} |" for code in Code]
    return "\n".join(("| Code | Meaning |", "| --- | --- |", *rows))


def _show(value: object) -> str:
    if isinstance(value, tuple):
        return " x ".join(map(str, value)) or ""
    return "" if value is None else str(value)
