"""What the data sets of published results ask of an engine: class of text, mean lengths, and what drafts earn on it.

Called by `rows`. Lengths are assumptions, since publications rarely give them; those of the four data sets of
arXiv 2601.11580 are means over its requests (SpecDecode-Bench/simulator @2fdccbd, Llama-3.1-8B). A prefix-repetition
benchmark shares half of its prompts (vLLM's defaults, 256 of 512 random tokens). Acceptance comes from
`physics/data/acceptance.csv` by family of drafters and class of text, carried to another K by run lengths.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speculative_operator.domain.spec import Workload
from speculative_operator.physics.acceptance import fit_run_lengths
from speculative_operator.physics.catalog import rows

RANDOM_SHORT, RANDOM_LONG = 0.54, 0.9
REPEATING_OUTPUT = 512.0
"""Conditional acceptance on prompts of random tokens. Short answers are unlike any text: 15-18 % of seven drafts
accepted (Qwen3.8-27B with DFlash2 on synthetic random tokens, Tanguille/cluster#4651) are 0.54. In answers of some
hundred tokens and more a model repeats itself: 3.93 of at most 4 tokens a step at K = 3 (Kimi-K2.5 with EAGLE-3 on
eight MI325X, rocm.blogs.amd.com kimi-k2.5-speculative), "unusually high" in vllm#35301; 0.9 leaves room for less."""
PROFILE_POSITIONS = 8


@dataclass(frozen=True, slots=True)
class Text:
    """Mean lengths in tokens and the class of what is generated; None as class: random tokens."""

    workload: Workload | None
    prompt: float
    output: float
    lookup: Workload | None = None
    """The class for drafts looked up in the text, where it differs: calculations repeat as little as stories (the
    n-gram row of creative text is GSM8K's)."""
    shared: float = 0.0
    """Share of the prompt that requests have in common: computed and kept once."""


_TEXTS = (
    # pattern of the data set's name, class, prompt, output
    (r"gsm8k", Text(Workload.STRUCTURED, 94, 166, lookup=Workload.CREATIVE)),
    (r"cnn|dailymail|summar|arxiv|gov", Text(Workload.SUMMARIZATION, 838, 323)),
    (r"sharegpt", Text(Workload.CHAT, 355, 728)),
    (r"instruct-?coder|code.?edit", Text(Workload.CODE, 171, 262)),
    (r"swe", Text(Workload.CODE, 4000, 400)),
    (r"humaneval|mbpp|cod(e|ing)|livecode", Text(Workload.CODE, 150, 300)),
    (r"math|aime|stem|reason|gpqa", Text(Workload.STRUCTURED, 150, 800, lookup=Workload.CREATIVE)),
    (r"tool|json|structured|extract|sql", Text(Workload.STRUCTURED, 400, 100)),
    (r"mt-?bench|alpaca|chat|question|\bqa\b|humanit|vicuna|multilingual|translat", Text(Workload.CHAT, 100, 300)),
    (r"rag|document", Text(Workload.SUMMARIZATION, 2000, 200)),
    (r"prose|narrat|writ|role|creativ|story", Text(Workload.CREATIVE, 100, 500)),
    (r"prefix.?rep", Text(None, 512, 128, shared=0.5)),
    (r"random|synthetic", Text(None, 1024, 1024)),
)
UNKNOWN_TEXT = Text(Workload.MIXED, 300, 300)


def text_of(dataset: str, context: str) -> tuple[Text, tuple[str, ...]]:
    """(text, what was assumed) for the columns `dataset` and `ctx_or_io`: "400/100", "1024/1024", "16K", "180 out"."""
    found = next((text for pattern, text in _TEXTS if re.search(pattern, dataset.lower())), None)
    assumed: tuple[str, ...] = ()
    if found is None:
        found = UNKNOWN_TEXT
        assumed = (f"data set {dataset or 'not stated'!r} taken for mixed text",)
    prompt, output = _lengths(context)
    if prompt is None and output is None:
        assumed = (*assumed, "lengths")
    return replace(found, prompt=prompt or found.prompt, output=output or found.output), assumed


def survival_of(family: str, text: Text, k: int) -> NDArray[np.float64]:
    """`S_1..S_k` of a family of drafters on a text, at K = k."""
    if k < 1:
        return np.zeros(0)
    if text.workload is None:
        chance = RANDOM_LONG if text.output >= REPEATING_OUTPUT else RANDOM_SHORT
        return np.asarray(chance ** np.arange(1, k + 1))
    looked_up = text.lookup if family in ("ngram", "suffix") else None
    return _survival(family, looked_up or text.workload, k)


@cache
def _survival(family: str, workload: Workload, k: int) -> NDArray[np.float64]:
    profiles = _profiles()
    return across(profiles.get((family, workload), profiles["eagle", workload]), k)


def across(survival: ArrayLike, k: int) -> NDArray[np.float64]:
    """`S_1..S_k` expected at K = k from survival measured at K = len(survival).

    Where measured survival departs from the two geometrics (a hazard that rises with position, as of block
    speculators), the departure is kept as a ratio; positions beyond those seen continue with the last ratio.
    """
    seen = np.asarray(survival, dtype=float)
    runs = fit_run_lengths(seen)
    model, wanted = runs.survival(seen.size), runs.survival(k)
    ratio = np.divide(seen, model, out=np.ones_like(seen), where=model > 1e-9)
    if k > seen.size:
        ratio = np.concatenate([ratio, np.full(k - seen.size, ratio[-1])])
    return np.minimum.accumulate(np.clip(wanted * ratio[: max(k, 0)], 0.0, 1.0))


@cache
def _profiles() -> dict[tuple[str, Workload], NDArray[np.float64]]:
    return {
        (row["family"], Workload(row["workload"])): np.array(
            [float(row[f"s{j}"]) for j in range(1, PROFILE_POSITIONS + 1)]
        )
        for row in rows("acceptance")
    }


def _lengths(context: str) -> tuple[float | None, float | None]:
    """(prompt, output) as far as the text tells them."""
    pair = re.search(r"(\d+(?:\.\d+)?)\s*(k?)\s*/\s*(\d+(?:\.\d+)?)\s*(k?)", context, re.IGNORECASE)
    if pair:
        return _number(pair.group(1), pair.group(2)), _number(pair.group(3), pair.group(4))
    out = re.search(r"(\d+(?:\.\d+)?)\s*(k?)\s*(?:tokens? )?out", context, re.IGNORECASE)
    held = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)\s*(k?)(?:\s*(?:in|tokens?|ctx|context))?\s*$", context, re.IGNORECASE)
    if out:
        return None, _number(out.group(1), out.group(2))
    if held and "table" not in context.lower():
        return _number(held.group(1), held.group(2)), None
    return None, None


def _number(digits: str, thousand: str) -> float | None:
    value = float(digits) * (1024.0 if thousand else 1.0)
    return value if value > 0 else None
