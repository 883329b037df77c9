"""Every constraint across fields, as CEL for the API server. `convert` evaluates them for objects that no API server
has checked with them.

Each rule has an accepted and a refused object in tests/contract. Bounds in the schema (`max_length`, `max_items`) keep
the rules within the API server's cost budget.
"""

from __future__ import annotations

from speculative_operator.api.pod import ENV_RULES, KEY_RULES, LABEL_RULES, SOURCE_RULES
from speculative_operator.api.targets import (
    ANALYSIS_RULES,
    CANARY_RULES,
    GROUP_ROOT_RULES,
    GROUP_RULES,
    ROUTE_ROOT_RULES,
    ROUTE_RULES,
    TARGET_RULES,
    TARGET_STAYS,
)
from speculative_operator.api.weights import CACHE_RULES
from speculative_operator.api.wire import Rule, phrase
from speculative_operator.domain import names
from speculative_operator.domain.spec import EngineType, Method, RolloutStrategy, Target
from speculative_operator.domain.vllm import ADAPTIVE, IN_ONE_PASS

_AUTO = "has(self.auto) && self.auto"


def _not_beside_auto(field: str, shown: str) -> Rule:
    return Rule(
        f"auto-without-{field.lower()}",
        f"!({_AUTO}) || has(self.method) || !has(self.{field})",
        f"{field} is {shown} but auto is true: remove {field}, which the catalogue sets; or remove auto and set method",
        field,
        "FieldValueForbidden",
    )


AUTO_RULES = (
    Rule(
        "method-or-auto",
        f"has(self.method) || ({_AUTO})",
        "method is not set and auto is not true: set auto: true to let the operator pick a speculator, or set method "
        "(and model, if the method needs weights of its own)",
        "method",
        "FieldValueRequired",
    ),
    Rule(
        "method-without-auto",
        f"!has(self.method) || !({_AUTO})",
        "method is {self.method} but auto is true: remove one of the two",
        "method",
        "FieldValueForbidden",
    ),
    Rule(
        "measure-needs-auto",
        f"!has(self.measure) || ({_AUTO})",
        "measure is set but auto is not true: set auto: true, because rows of the catalogue are measured; or remove "
        "measure",
        "measure",
        "FieldValueForbidden",
    ),
    _not_beside_auto("model", '"{self.model}"'),
    _not_beside_auto("revision", '"{self.revision}"'),
    _not_beside_auto("tensorParallelSize", "{#self.tensorParallelSize}"),
    _not_beside_auto("quantization", '"{self.quantization}"'),
    _not_beside_auto("parallelDrafting", "set"),
    _not_beside_auto("heterogeneousVocabulary", "set"),
    _not_beside_auto("promptLookup", "set"),
    _not_beside_auto("options", "set"),
)


NAME_LIMIT = 53
"""Characters of metadata.name: children add up to ten more, and names of Services end at 63."""
OWN_WEIGHTS = tuple(m for m in Method if not m.draft_free and not m.may_sit_in_verifier)
DRAFT_FREE = tuple(m for m in Method if m.draft_free)
LOOKS_UP = (Method.NGRAM, Method.NGRAM_GPU)
"""Methods that look up runs of tokens whose length can be chosen."""


def _cel_list(methods: tuple[Method, ...]) -> str:
    return "[" + ", ".join(f"'{method}'" for method in methods) + "]"


_MEASURED = "has(self.speculator) && has(self.speculator.measure)"
MEASURED_NAME_LIMIT = NAME_LIMIT - len(names.candidate(""))

ROOT_RULES = (
    Rule(
        "measured-name",
        "!has(self.spec.speculator) || !has(self.spec.speculator.measure) || "
        f"size(self.metadata.name) <= {MEASURED_NAME_LIMIT}",
        'metadata.name is "{self.metadata.name}" and spec.speculator.measure is set: use at most '
        f"{MEASURED_NAME_LIMIT} characters, because the candidate is named NAME-candidate; or remove measure",
        "metadata.name",
    ),
    Rule(
        "name-form",
        f"size(self.metadata.name) <= {NAME_LIMIT} && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        'metadata.name is "{self.metadata.name}": use at most '
        f"{NAME_LIMIT} lower-case letters, digits and -, beginning with a letter, because Services carry the name",
        "metadata.name",
    ),
    *GROUP_ROOT_RULES,
    *ROUTE_ROOT_RULES,
)


LOOKUP_RULES = (
    Rule(
        "prompt-lookup-order",
        "!has(self.min) || !has(self.max) || self.min <= self.max",
        "min is {#self.min}: write at most max ({#self.max}), or raise max",
        "min",
    ),
)

MODEL_RULES = (
    Rule(
        "revision-of-hf",
        "!has(self.revision) || !has(self.model) || self.model.startsWith('hf://')",
        'revision is "{self.revision}" but model is "{self.model}": remove revision, which applies to hf:// only; '
        "other addresses include the version",
        "revision",
        "FieldValueForbidden",
    ),
)


def _draft_free_without(rule: str, field: str, shown: str) -> Rule:
    return Rule(
        f"draft-free-no-{rule}",
        f"!has(self.method) || !(self.method in {_cel_list(DRAFT_FREE)}) || !has(self.{field})",
        f"{field} is {shown} but method is {{self.method}}, which drafts without weights: remove {field}",
        field,
        "FieldValueForbidden",
    )


def _only_for(rule: str, field: str, shown: str, methods: tuple[Method, ...]) -> Rule:
    """`shown` is "true" for a boolean, of which false is allowed with every method."""
    allowed = f"self.method == '{methods[0]}'" if len(methods) == 1 else f"self.method in {_cel_list(methods)}"
    unset = f"!has(self.{field})" + (f" || !self.{field}" if shown == "true" else "")
    return Rule(
        f"{rule}-method",
        f"!has(self.method) || {unset} || {allowed}",
        f"{field} is {shown} but method is {{self.method}}: remove it, because it applies to {phrase(methods)} only",
        field,
        "FieldValueForbidden",
    )


SPECULATOR_RULES = (
    *MODEL_RULES,
    *AUTO_RULES,
    Rule(
        "method-needs-model",
        f"!has(self.method) || !(self.method in {_cel_list(OWN_WEIGHTS)}) || has(self.model)",
        "model is not set but method is {self.method}, which needs weights of its own: set model, such as "
        "hf://ORGANISATION/MODEL",
        "model",
        "FieldValueRequired",
    ),
    _draft_free_without("model", "model", '"{self.model}"'),
    _draft_free_without("tp", "tensorParallelSize", "{#self.tensorParallelSize}"),
    _draft_free_without("quantization", "quantization", '"{self.quantization}"'),
    _only_for("parallel-drafting", "parallelDrafting", "true", IN_ONE_PASS),
    _only_for("heterogeneous-vocabulary", "heterogeneousVocabulary", "true", (Method.DRAFT_MODEL,)),
    _only_for("prompt-lookup", "promptLookup", "set", LOOKS_UP),
    Rule(
        "revision-needs-model",
        "!has(self.method) || !has(self.revision) || has(self.model)",
        'revision is "{self.revision}" but model is not set: set model, or remove revision',
        "revision",
        "FieldValueForbidden",
    ),
)

_ROWS = "has(self.schedule) && size(self.schedule) > 0 && self.schedule.all(r, size(r) == 3)"


_BAND = "[{#r[0]}, {#r[1]}, {#r[2]}]"


def _bands(bad: str) -> str:
    return f"self.schedule.filter(r, {bad})"


_BACKWARD = "r[1] < r[0]"
_UNJOINED = "r[0] != self.schedule[0][0] && !self.schedule.exists(q, q[1] + 1 == r[0])"
_DEEP = "r[2] > self.maxSpeculativeTokens"

SPECULATION_RULES = (
    Rule(
        "k-not-zero",
        "!has(self.numSpeculativeTokens) || self.numSpeculativeTokens != 0",
        "numSpeculativeTokens is 0: write 1 or more, or set mode: Disabled to serve without drafts",
        "numSpeculativeTokens",
    ),
    Rule(
        "k-within-max",
        "!has(self.numSpeculativeTokens) || self.numSpeculativeTokens <= self.maxSpeculativeTokens",
        "numSpeculativeTokens is {#self.numSpeculativeTokens}: write at most maxSpeculativeTokens "
        "({#self.maxSpeculativeTokens}), or raise maxSpeculativeTokens",
        "numSpeculativeTokens",
    ),
    Rule(
        "schedule-static",
        f"!({_ROWS}) || self.mode == 'Static'",
        "schedule has {#size(self.schedule)} row(s) but mode is {self.mode}: set mode: Static, or remove schedule",
        "schedule",
        "FieldValueForbidden",
    ),
    Rule(
        "schedule-starts-at-1",
        f"!({_ROWS}) || self.schedule[0][0] == 1",
        "schedule starts at {#self.schedule[0][0]}: start the first row at 1, so that every load has a K",
        "schedule",
    ),
    Rule(
        "schedule-forward",
        f"!({_ROWS}) || self.schedule.all(r, r[0] <= r[1])",
        f"schedule holds {_BAND}, which ends before it starts: write [first, last, K]",
        "schedule",
        among=_bands(_BACKWARD),
    ),
    Rule(
        "schedule-ascending",
        f"!({_ROWS}) || (self.schedule.map(r, r[0]).isSorted() && "
        "self.schedule.all(r, self.schedule.exists_one(q, q[0] == r[0])))",
        "schedule is not in order or names a start twice, it has {#size(self.schedule)} row(s): "
        "sort the rows by their first number, each row once",
        "schedule",
    ),
    Rule(
        "schedule-contiguous",
        f"!({_ROWS}) || self.schedule.all(r, !({_UNJOINED}))",
        f"schedule holds {_BAND}, before which there is a gap or an overlap: "
        "start each row one above the end of the previous row",
        "schedule",
        among=_bands(_UNJOINED),
    ),
    Rule(
        "schedule-within-max",
        f"!({_ROWS}) || self.schedule.all(r, r[2] <= self.maxSpeculativeTokens)",
        f"schedule holds {_BAND}: write a K of at most maxSpeculativeTokens "
        "({#self.maxSpeculativeTokens}), or raise maxSpeculativeTokens",
        "schedule",
        among=_bands(_DEEP),
    ),
    Rule(
        "schedule-drafts",
        f"!({_ROWS}) || self.schedule.exists(r, r[2] > 0)",
        "schedule has K 0 in all of its {#size(self.schedule)} row(s): set one K to 1 or more, or set mode: Disabled",
        "schedule",
    ),
    Rule(
        "schedule-never-off",
        f"!({_ROWS}) || self.offPolicy != 'Never' || self.schedule.all(r, r[2] > 0)",
        f"schedule holds {_BAND} but offPolicy is Never: set its K to 1 or more, or set offPolicy: Skip",
        "schedule",
        among=_bands("r[2] == 0"),
    ),
)

ROLLOUT_RULES = (
    Rule(
        "window-of-interrupt",
        "!has(self.window) || (has(self.tuning) && self.tuning == 'Interrupt')",
        'window is "{self.window}" but tuning is not Interrupt: set tuning: Interrupt, or remove window, which '
        "has no effect without it",
        "window",
        "FieldValueForbidden",
    ),
)

_UNSCHEDULED = "!has(self.speculation.schedule) || size(self.speculation.schedule) == 0"
_OTHER_ENGINE = f"self.engine.type != '{EngineType.VLLM}'"
_VERIFIERS_TP = "self.verifier.tensorParallelSize"
_DRAFT_TP = "self.speculator.tensorParallelSize"
_NO_DRAFT_TP = "!has(self.speculator) || !has(self.speculator.tensorParallelSize)"
_ADAPTIVE = "has(self.speculation.adaptiveVerification) && self.speculation.adaptiveVerification"
_PRODUCT = f"{_VERIFIERS_TP} * self.verifier.pipelineParallelSize * self.verifier.dataParallelSize"

MEASURE_RULES = (
    Rule(
        "measure-target",
        f"!({_MEASURED}) || self.target == '{Target.DEPLOYMENT}'",
        f"speculator.measure is set but target is {{self.target}}: remove measure, or set target: {Target.DEPLOYMENT}, "
        "because only there one Service leads requests to the pods of two objects",
        "speculator.measure",
        "FieldValueForbidden",
    ),
    Rule(
        "measure-or-canary",
        f"!({_MEASURED}) || !has(self.route) || !has(self.route.canary)",
        "speculator.measure is set but route.canary is set, too: remove one of the two, because requests are compared "
        "with one other object at a time",
        "speculator.measure",
        "FieldValueForbidden",
    ),
    Rule(
        "measure-keeps-serving",
        f"!({_MEASURED}) || self.rollout.strategy != '{RolloutStrategy.RECREATE}'",
        "speculator.measure is set but rollout.strategy is {self.rollout.strategy}, by which a better speculator would "
        "interrupt serving: remove measure, or set rollout.strategy: Auto",
        "speculator.measure",
        "FieldValueForbidden",
    ),
)

SPEC_RULES = (
    *MEASURE_RULES,
    *ROUTE_RULES,
    *TARGET_RULES,
    TARGET_STAYS,
    *GROUP_RULES,
    Rule(
        "static-needs-k",
        "self.speculation.mode != 'Static' || !has(self.speculator) || has(self.speculation.numSpeculativeTokens) || "
        f"!({_UNSCHEDULED})",
        "speculation.numSpeculativeTokens is not set but speculation.mode is Static: set it, or set a schedule",
        "speculation.numSpeculativeTokens",
        "FieldValueRequired",
    ),
    Rule(
        "adaptive-verification-engine",
        f"!({_ADAPTIVE}) || !({_OTHER_ENGINE})",
        "speculation.adaptiveVerification is true but engine.type is {self.engine.type}: remove it, because it applies "
        f"to {EngineType.VLLM} only",
        "speculation.adaptiveVerification",
        "FieldValueForbidden",
    ),
    Rule(
        "adaptive-verification-method",
        f"!({_ADAPTIVE}) || {_OTHER_ENGINE} || !has(self.speculator) || !has(self.speculator.method) || "
        f"self.speculator.method in {_cel_list(ADAPTIVE)}",
        "speculation.adaptiveVerification is true but speculator.method is {self.speculator.method}: remove it, "
        f"because it applies to {phrase(ADAPTIVE)} only",
        "speculation.adaptiveVerification",
        "FieldValueForbidden",
    ),
    Rule(
        "aliases-engine",
        f"!({_OTHER_ENGINE}) || !has(self.verifier.aliases)",
        "verifier.aliases is set but engine.type is {self.engine.type}: remove it, because the flag of "
        f"{EngineType.VLLM} alone takes several names",
        "verifier.aliases",
        "FieldValueForbidden",
    ),
    Rule(
        "options-engine",
        f"!({_OTHER_ENGINE}) || !has(self.speculator) || !has(self.speculator.options)",
        "speculator.options is set but engine.type is {self.engine.type}: remove it, because it applies to "
        f"{EngineType.VLLM} only; use engine.args for further arguments of this engine",
        "speculator.options",
        "FieldValueForbidden",
    ),
    Rule(
        "draft-tp",
        f"{_NO_DRAFT_TP} || {_DRAFT_TP} in [1, {_VERIFIERS_TP}]",
        f"speculator.tensorParallelSize is {{#{_DRAFT_TP}}}: "
        f"write 1 or verifier.tensorParallelSize ({{#{_VERIFIERS_TP}}})",
        "speculator.tensorParallelSize",
    ),
    Rule(
        "draft-model-tp",
        f"{_NO_DRAFT_TP} || !has(self.speculator.method) || self.speculator.method != 'draft_model' || "
        f"{_DRAFT_TP} != 1 || {_VERIFIERS_TP} == 1",
        "speculator.tensorParallelSize is 1 but method draft_model needs the verifier's: "
        f"write {{#{_VERIFIERS_TP}}}, or remove it",
        "speculator.tensorParallelSize",
    ),
    Rule(
        "one-checkpoint-one-revision",
        "!has(self.speculator) || !has(self.speculator.model) || self.speculator.model != self.verifier.model || "
        "!has(self.speculator.revision) || "
        "(has(self.verifier.revision) && self.speculator.revision == self.verifier.revision)",
        'speculator.revision is "{self.speculator.revision}" but speculator and verifier are one checkpoint: '
        "set verifier.revision instead, and remove speculator.revision",
        "speculator.revision",
    ),
    Rule(
        "accelerators-add-up",
        "!has(self.accelerator.perReplica) || self.accelerator.perReplica == 0 || "
        f"self.accelerator.perReplica == {_PRODUCT}",
        f"accelerator.perReplica is {{#self.accelerator.perReplica}}: write {{#({_PRODUCT})}}, "
        "the product of the verifier's tensorParallelSize, pipelineParallelSize and dataParallelSize, or remove it",
        "accelerator.perReplica",
    ),
)

ALL_RULES = (
    *ROOT_RULES, *SPECULATOR_RULES, *LOOKUP_RULES, *SPECULATION_RULES, *CACHE_RULES, *SPEC_RULES,
    *ROLLOUT_RULES, *ENV_RULES, *SOURCE_RULES, *KEY_RULES, *LABEL_RULES, *CANARY_RULES, *ANALYSIS_RULES,
)  # fmt: skip
