"""A row of published results (columns of `cases.csv`) in the terms of physics.

Called by `prediction`. Nothing here looks at the published speed-up. What a row does not say is assumed by a rule and
told in `Case.assumed`; no row is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from speculative_lab.cases.shapes import accelerators_needed, place_accelerator, place_model, precision
from speculative_lab.cases.workloads import Text, text_of
from speculative_operator.domain.models import Accelerator, ModelShape
from speculative_operator.domain.spec import Method
from speculative_operator.physics.catalog import find_model

LARGEST_K = 64
"""More drafts than any engine makes; a larger number in a row is taken for this one."""
DEFAULT_K = 3
"""K where none is stated: the most frequent one."""
LOW_LOAD = 4.0
"""Requests at once where a row says "low"."""
LARGEST_TREE = 1024
TREE_TOKENS = 60
TREE_DEPTH = 5
"""Draft tokens and depth of a tree where none are stated (SGLang's EAGLE example: 5 steps, 64 tokens)."""
ORACLE_K = 10
"""Drafts at most of an oracle; runs beyond are rare."""
ADAPTIVE_K = 7
"""Largest K of an adaptive policy where none is stated (sglang#23336 tries 1, 3 and 7)."""
LOOKUP_K = 5
SUFFIX_K = 16
"""Drafts of a lookup where K is not stated: 3-5 in examples; a suffix tree drafts as far as it matches."""


class Kind(StrEnum):
    """What decides K in a row."""

    STATIC = "static"
    BEST = "best"
    """The best K of a range, chosen by a policy."""
    ORACLE = "oracle"
    """Verifies exactly what will be accepted."""
    OFF = "off"
    """K = 0 with the drafter loaded."""


@dataclass(frozen=True, slots=True)
class Drafting:
    """One arm of a comparison: how it drafts."""

    kind: Kind
    k: int
    least: int = 1
    tree_tokens: int = 0
    """Tokens of a draft tree that is verified; 0: a chain of k."""
    dynamic: bool = False
    """K follows a schedule, which some engines pay for with their CUDA graphs."""


@dataclass(frozen=True, slots=True)
class Case:
    """A published comparison. Lengths in tokens, load in requests at once (or requests/s, see `rate`)."""

    name: str
    source: str
    evidence: str
    verifier: ModelShape
    plain: ModelShape
    """The model of the arm without speculation: the same but for precision in confounded comparisons."""
    speculator: ModelShape | None
    accelerator: Accelerator
    accelerators: int
    method: Method
    family: str
    drafting: Drafting
    baseline: Drafting | None
    """What the row compares with; None: no speculation."""
    text: Text
    load: float
    rate: tuple[float, float] | None
    """Requests/s of the arm without and with speculation, where the load is open."""
    acceptance_percent: float | None
    accept_length: float | None
    accept_rate: float | None
    """Chance that a draft is accepted, where a note tells it."""
    decode_only: bool
    """The metric is a time between tokens: prompts do not count."""
    simulated: bool
    speedup: float | None
    tolerance: float
    assumed: tuple[str, ...]


def read_case(row: Mapping[str, str]) -> Case:
    """The row's case; columns that are missing or empty are unknown."""
    told = {key: (value or "").strip() for key, value in row.items() if key is not None}
    cell = told.get
    method_name = cell("method", "")
    method, family, assumed = _method(method_name)
    verifier, no_model = place_model(cell("model", ""), cell("moe", "") == "1")
    accelerator, count, no_device = place_accelerator(cell("gpu", ""), cell("n_gpu", ""))
    text, no_text = text_of(cell("dataset", ""), cell("ctx_or_io", ""))
    drafting, no_k = _drafting(cell("K", ""), method_name, method)
    length = _float(cell("accept_len", ""))
    if no_k and length and length >= 1.0 and drafting.kind is Kind.STATIC:
        drafting = replace(drafting, k=min(max(drafting.k, math.ceil(length)), LARGEST_K))
    load, rate, no_load = _load(cell("load_kind", ""), cell("load", ""))
    return Case(
        name=cell("case_id", ""),
        source=cell("source", ""),
        evidence=cell("evidence", ""),
        verifier=verifier,
        plain=_plain_arm(cell("model", ""), verifier),
        speculator=_speculator(method_name, verifier, method),
        accelerator=accelerator,
        accelerators=count or accelerators_needed(verifier, accelerator),
        method=method,
        family=family,
        drafting=_at_load(drafting, f"{method_name} {cell('K', '')}", load),
        baseline=_baseline(cell("K", ""), cell("note", ""), drafting),
        text=text,
        load=load,
        rate=rate,
        acceptance_percent=_float(cell("load", "")) if cell("load_kind", "").startswith("acceptance") else None,
        accept_length=length if length and length >= 1.0 else None,
        accept_rate=_rate(cell("note", "")),
        decode_only=re.search(r"decode|itl|tpot|inter.?token", cell("metric", "").lower()) is not None,
        simulated="simulation" in cell("evidence", ""),
        speedup=_float(cell("speedup", "")) or None,
        tolerance=max(_float(cell("tol_rel", "")) or 0.1, 0.0),
        assumed=(*assumed, *no_model, *no_device, *no_text, *no_k, *no_load),
    )


_METHODS = (
    # pattern, method that prices it, family of its acceptance
    (r"arctic|hybrid.*suffix|suffix.*hybrid", Method.EAGLE3, "arctic"),
    (r"suffix", Method.SUFFIX, "suffix"),
    (r"n-?gram|lookup|prompt.?lookup|lookahead", Method.NGRAM, "ngram"),
    (r"p-?eagle|parallel.?eagle", Method.DFLASH, "p_eagle"),
    (r"dflash", Method.DFLASH, "block"),
    (r"dspark|block", Method.DSPARK, "block"),
    (r"medusa|mlp", Method.MEDUSA, "medusa"),
    (r"eagle-?3", Method.EAGLE3, "eagle"),
    (r"eagle", Method.EAGLE, "eagle"),
    (r"mtp|nextn|assist", Method.MTP, "mtp"),
    (r"draft|spec", Method.DRAFT_MODEL, "draft_model"),
)


def _method(name: str) -> tuple[Method, str, tuple[str, ...]]:
    for pattern, method, family in _METHODS:
        if re.search(pattern, name.lower()):
            return method, family, ()
    return Method.EAGLE3, "eagle", (f"method {name or 'not stated'!r} taken for EAGLE-3",)


def _speculator(name: str, verifier: ModelShape, method: Method) -> ModelShape | None:
    """The drafter where the row tells its shape: a copy of the verifier, a Gemma assistant, the calibrated pair's."""
    lower = name.lower()
    if "copy" in lower:
        return replace(verifier, bytes_per_parameter=precision(name) if precision(name) < 2.0 else 0.5)
    if "assist" in lower:
        own = find_model(f"{verifier.name}-assistant")
        return own if own is not None else None
    if method is Method.DRAFT_MODEL and verifier.name.startswith("Qwen/Qwen3-"):
        return find_model("Qwen/Qwen3-0.6B")
    return None


def _plain_arm(name: str, verifier: ModelShape) -> ModelShape:
    """ "FP8 vs BF16": the arm without speculation runs at the second precision."""
    parts = re.split(r"\svs\.?\s", name)
    return replace(verifier, bytes_per_parameter=precision(parts[1])) if len(parts) == 2 else verifier


def _drafting(k: str, method_name: str, method: Method) -> tuple[Drafting, tuple[str, ...]]:
    lower = k.lower()
    dynamic = re.search(r"dsd|dynamic|schedule|piecewise|prime", f"{method_name} {k}".lower()) is not None
    tree, depth = _tree(method_name, lower)
    if "oracle" in lower:
        return Drafting(Kind.ORACLE, ORACLE_K), ()
    if re.search(r"\boff\b", lower) or lower == "0":
        return Drafting(Kind.OFF, 0, dynamic=dynamic), ()
    span, assumed = _span(lower)
    if span is not None:
        least, most = sorted(min(max(k, 1), LARGEST_K) for k in span)
        return Drafting(Kind.BEST, most, least, tree, dynamic), assumed
    told = _number(lower)
    if told is None:
        usual = {Method.NGRAM: LOOKUP_K, Method.SUFFIX: SUFFIX_K}.get(method, depth or DEFAULT_K)
        return Drafting(Kind.STATIC, usual, tree_tokens=tree, dynamic=dynamic), (f"K {k or 'not stated'!r}",)
    if told == 0:
        return Drafting(Kind.OFF, 0, dynamic=dynamic), ()
    return Drafting(Kind.STATIC, min(told, LARGEST_K), tree_tokens=tree, dynamic=dynamic), ()


def _span(k: str) -> tuple[tuple[int, int] | None, tuple[str, ...]]:
    """The range that a policy chooses K from: "adaptive[3..12]", "best of 1..5", "max10"; None: one K."""
    told = re.search(r"(\d+)\s*(?:\.\.|-|to)\s*(\d+)", k)
    if told and "goodput" not in k:
        return (int(told.group(1)), int(told.group(2))), ()
    most = re.search(r"max\s*(\d+)", k)
    if most:
        return (1, int(most.group(1))), ()
    return ((1, ADAPTIVE_K), ("range of K",)) if re.search(r"adaptive|auto|best", k) else (None, ())


def _number(k: str) -> int | None:
    """K in "3", "3?", "SD k=5", "steps=8", "static-n2", "acc-target0.80(k1)"; None where there is none."""
    if k.startswith("tree"):
        return None
    plain = re.sub(r"vs\.?\s*static\s*\d+|target\s*0?\.\d+", "", k)
    told = re.search(r"k\s*=?\s*(\d+)|steps?\s*=?\s*(\d+)|(?<![\d.])(\d+)(?![\d.]*\d)", plain)
    return int(next(filter(None, told.groups()))) if told else None


def _tree(method_name: str, k: str) -> tuple[int, int]:
    """(tokens, levels) of the draft tree that the row speaks of, "4/4/16" = levels/width/tokens; zeros: a chain."""
    if "tree" not in f"{method_name} {k}".lower():
        return 0, 0
    shape = re.search(r"(\d+)/\d+/(\d+)", f"{method_name} {k}")
    told = re.search(r"tree\s*(\d+)", k)
    tokens = int(told.group(1)) if told else int(shape.group(2)) if shape else TREE_TOKENS
    depth = int(shape.group(1)) if shape else TREE_DEPTH
    return min(max(tokens, 1), LARGEST_TREE), min(max(depth, 1), LARGEST_K)


def _at_load(drafting: Drafting, text: str, load: float) -> Drafting:
    """A table "[[1,32,3],[33,64,2]]" decides K by load, in whichever column it stands."""
    bands = [tuple(map(int, band)) for band in re.findall(r"\[(\d+),\s*(\d+),\s*(\d+)\]", text)]
    for first, last, k in bands:
        if first <= load <= last and drafting.kind is not Kind.OFF:
            return replace(drafting, kind=Kind.STATIC if k else Kind.OFF, k=min(k, LARGEST_K), dynamic=True)
    return drafting


def _baseline(k: str, note: str, drafting: Drafting) -> Drafting | None:
    """ "baseline = fixed n=4" in the note, or "schedule vs static 3" as policy."""
    fixed = re.search(r"baseline\s*=\s*(?:fixed|static)\s*(?:n|k)?\s*=?\s*(\d+)", note.lower())
    fixed = fixed or re.search(r"vs\.?\s*static\s*(\d+)", k.lower())
    if fixed is None:
        return None
    drafts = min(int(fixed.group(1)), LARGEST_K)
    return Drafting(Kind.STATIC if drafts else Kind.OFF, drafts, tree_tokens=drafting.tree_tokens)


def _rate(note: str) -> float | None:
    """ "acceptance flat 0.86-0.91", "acceptance rate of 0.8": the middle."""
    told = re.search(r"acceptance(?: rate)?(?: flat| about| of| around)? (0?\.\d+)(?:\s*-\s*(0?\.\d+))?", note.lower())
    if told is None:
        return None
    numbers = [float(number) for number in told.groups() if number]
    return sum(numbers) / len(numbers)


def _load(kind: str, load: str) -> tuple[float, tuple[float, float] | None, tuple[str, ...]]:
    numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", load)]
    if kind.startswith("acceptance"):
        return 1.0, None, ()
    if "req/s" in kind or "qps" in kind or "rps" in kind:
        if not numbers:
            return 1.0, None, ("load",)
        return numbers[0], (numbers[0], numbers[-1]), ()
    if numbers:
        return max(numbers[0], 1.0), None, ()
    if "low" in load.lower():
        return LOW_LOAD, None, ("load",)
    return 1.0, None, ("load taken for one request",)


def _float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
