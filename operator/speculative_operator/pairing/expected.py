"""Acceptance that published measurements promise for a method and a workload, with its interval. Called by `judge`.

data/acceptance_profiles.csv holds one measurement a row: `S_j` is the share of drafts whose position j was accepted, at
the K of the row; the source of each is named there. Where only the acceptance length was published, every draft gets
one chance, once those before it were accepted (arXiv 2211.17192, section 3.1), such that the length at that K comes
out. A measurement that was taken at several K counts once, with the K nearest above the one asked for.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from speculative_operator.domain.spec import Method, Speculator, Workload
from speculative_operator.pairing.verdict import Expected
from speculative_operator.physics.acceptance import expected_tokens, extend

_PUBLISHED: Mapping[Method, str] = {
    Method.EAGLE: "eagle3", Method.EAGLE3: "eagle3", Method.MTP: "mtp", Method.DFLASH: "dflash",
    Method.DSPARK: "dspark", Method.NGRAM: "ngram", Method.NGRAM_GPU: "ngram",
}  # fmt: skip
"""Method -> how the rows name it. EAGLE has no rows of its own and accepts less than EAGLE-3 (arXiv 2503.01840)."""
_CLASSES: Mapping[Workload, frozenset[str]] = {
    Workload.CODE: frozenset({"code", "code_edit"}),
    Workload.STRUCTURED: frozenset({"json", "math"}),
    Workload.CHAT: frozenset({"chat"}),
    Workload.SUMMARIZATION: frozenset({"summarize", "rag"}),
    Workload.CREATIVE: frozenset({"creative"}),
    Workload.MIXED: frozenset(),
}
"""Workload -> classes of the rows; none: every one. Mathematics stands in for structured text beside JSON."""
_PERCENTILES = (0.1, 0.9)
_FEW = 5
POSITIONS = 10


@dataclass(frozen=True, slots=True)
class Profile:
    """One published measurement."""

    target: str
    method: str
    dataset: str
    workload: str
    k: int
    survival: tuple[float, ...]
    source: str


def expect(speculator: Speculator, workload: Workload, k: int) -> Expected | None:
    """Acceptance length at `k` drafts for the speculator's method; None where nothing was published for it."""
    method = _PUBLISHED.get(speculator.method, "")
    if speculator.parallel_drafting and method == "eagle3":
        method = "p-eagle"
    of_method = [one for one in profiles() if one.method == method]
    classes = _CLASSES[workload]
    chosen = [one for one in of_method if not classes or one.workload in classes] or of_method
    if not chosen or k < 1:
        return None
    lengths = sorted(expected_tokens(extend(np.array(one.survival), k), k) for one in _once(chosen, k))
    low, high = (lengths[0], lengths[-1]) if len(lengths) < _FEW else np.quantile(lengths, _PERCENTILES)
    sources = sorted({one.source for one in chosen})
    return Expected(float(np.median(lengths)), float(low), float(high), k, len(lengths), "; ".join(sources))


def _once(chosen: Iterable[Profile], k: int) -> list[Profile]:
    """One profile of each measurement: the smallest K that is not below `k`, else the largest."""
    best: dict[tuple[str, str, str], Profile] = {}
    for one in chosen:
        key = (one.target, one.dataset, one.source)
        if key not in best or _distance(one.k, k) < _distance(best[key].k, k):
            best[key] = one
    return list(best.values())


def _distance(k: int, asked: int) -> tuple[bool, int]:
    return (k < asked, abs(k - asked))


@cache
def profiles() -> tuple[Profile, ...]:
    """All rows of data/acceptance_profiles.csv."""
    text = (
        resources.files("speculative_operator.pairing").joinpath("data", "acceptance_profiles.csv").read_text("utf-8")
    )
    return tuple(_profile(row) for row in csv.DictReader(text.splitlines()))


def _profile(row: Mapping[str, str]) -> Profile:
    k = int(row["K"])
    survival = tuple(float(row[f"S{j}"]) for j in range(1, POSITIONS + 1) if row[f"S{j}"])
    return Profile(
        row["target"],
        row["method"],
        row["dataset"],
        row["workload_class"],
        k,
        survival or even(float(row["accept_len"]), k),
        row["source"],
    )


def even(length: float, k: int) -> tuple[float, ...]:
    """Survival of `k` positions with one chance for all, such that the acceptance length is `length` (1 to k + 1)."""
    low, high = 0.0, 1.0
    for _ in range(60):
        chance = (low + high) / 2.0
        short = 1.0 + sum(chance**j for j in range(1, k + 1)) < length
        low, high = (chance, high) if short else (low, chance)
    return tuple(low**j for j in range(1, k + 1))
