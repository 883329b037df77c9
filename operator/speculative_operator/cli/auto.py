"""Picks a speculator for `speculative check` where the spec leaves it to the operator, as the operator would.

Used by `check`. The operator keeps to what it has picked; here nothing was picked before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from speculative_operator.domain.artifact import ModelFacts
from speculative_operator.domain.spec import DeploymentSpec, ModelSource
from speculative_operator.engines.picking import choose, key_of, with_entry
from speculative_operator.pairing.catalogue import REMEDY, Catalogue, Entry
from speculative_operator.pairing.findings import Verdict
from speculative_operator.weights.errors import WeightsError

Read = Callable[[ModelSource, str], ModelFacts]
"""(source, side) -> facts. Raises WeightsError."""
Judge = Callable[[DeploymentSpec, Mapping[str, ModelFacts]], Verdict]


@dataclass(frozen=True, slots=True)
class Auto:
    """The pick for a spec, and the entries of the catalogue that were passed over."""

    spec: DeploymentSpec
    """The spec with the picked speculator; without a speculator where none was picked."""
    sides: dict[str, ModelFacts]
    entry: Entry | None
    reason: str
    passed_over: tuple[tuple[Entry, str], ...] = ()
    """Entries of the catalogue that do not fit or cannot be read, each with the reason."""

    @property
    def lines(self) -> list[str]:
        """The message for people: each entry that was passed over, with why, and the reason of the pick."""
        over = [f"{'passed over':<12}{entry.title} ({entry.method}): {why}" for entry, why in self.passed_over]
        return [*over, f"{'auto':<12}{self.reason}"]

    def to_json(self) -> dict[str, Any]:
        """The pick under the key `picked`, for the JSON object that `check` prints."""
        over = [
            {"speculator": one.uri or None, "method": one.method.value, "why": why} for one, why in self.passed_over
        ]
        known = self.entry
        picked = {
            "speculator": (known.uri or None) if known is not None else None,
            "method": known.method.value if known is not None else None,
            "k": known.k if known is not None else None,
            "source": known.source if known is not None else None,
            "reason": self.reason,
            "passedOver": over,
        }
        return {"picked": picked}


def pick_and_read(spec: DeploymentSpec, rows: Catalogue, read: Read, judge: Judge) -> Auto:
    """The pick: the first entry that fits, with the facts of both models. Raises WeightsError where the verifier cannot
    be read."""
    verifier = read(spec.verifier.source, "verifier")
    alone = {"verifier": verifier}
    blame = judge(spec, alone).compatible
    over: list[tuple[Entry, str]] = []
    while True:
        choice = choose(spec, rows, verifier.base_models, without=frozenset(key_of(one) for one, _ in over))
        if choice.entry is None:
            reason = f"no known speculator works: {REMEDY}" if over else choice.reason
            return Auto(spec, alone, None, f"{reason}. The verifier is served alone", tuple(over))
        told, sides, why = with_entry(spec, choice.entry), dict(alone), ""
        source = told.speculator.source if told.speculator is not None else None
        try:
            if source is not None:
                sides["speculator"] = read(source, "speculator")
        except WeightsError as problem:
            why = str(problem)
        if not why and (not blame or judge(told, sides).compatible):
            return Auto(told, sides, choice.entry, choice.reason, tuple(over))
        over.append((choice.entry, why or "; ".join(one.message for one in judge(told, sides).errors)))
