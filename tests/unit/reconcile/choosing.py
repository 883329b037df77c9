"""A cluster of one object whose speculator is left to the operator, and rows for it to pick from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tests.unit.reconcile.paired import COMMITS, DRAFT, EAGLE, FOREIGN, PAIRED, VERIFIER, Paired, hub
from tests.unit.reconcile.worlds import Cluster

from speculative_operator.domain.models import ModelFacts
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.pairing.catalogue import Catalogue
from speculative_operator.pairing.catalogue_rows import parse
from speculative_operator.reconcile.world import World

HEADER = "verifier,speculator,method,k,one_pass,source,date"
LEFT = replace(PAIRED, speculator=None, auto_speculator=True)
"""`speculator: {auto: true}`"""


def row(
    speculator: str, method: str = "eagle3", *, verifier: str = VERIFIER, k: int = 3, one_pass: bool = False
) -> str:
    return f"{verifier},{speculator},{method},{k},{str(one_pass).lower()},https://example.org/{speculator},2026-08"


def rows(*lines: str) -> Catalogue:
    """In the order given, as a user's rows go: the first is picked."""
    return Catalogue(tuple(replace(one, added=True) for one in parse("\n".join((HEADER, *lines)), "rows")))


GOOD, WRONG, SMALL = row(EAGLE), row(FOREIGN), row(DRAFT, "draft_model", k=2)


@dataclass
class Choosing(Paired):
    spec: DeploymentSpec = LEFT
    catalogue: Catalogue = field(default_factory=lambda: rows(GOOD, SMALL))
    cards: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Base models by the model cards."""

    def world(self, **change: Any) -> World:
        return super().world(**({"catalogue": self.catalogue} | change))

    def facts(self, name: str) -> ModelFacts:
        """Of a model that is only in `cards`: those of VERIFIER under its name."""
        found = super().facts(name if name in COMMITS else VERIFIER)
        pin = replace(found.pin, location=name, resolved=self.commits.get(name, "9" * 40))
        return replace(found, pin=pin, base_models=self.cards.get(name, ()))

    @property
    def picked(self) -> dict[str, Any]:
        found: dict[str, Any] = self.status.get("picked", {})
        return found

    def told_of(self) -> tuple[str | None, str | None]:
        """(speculator, method) of the pick."""
        return self.picked.get("speculator"), self.picked.get("method")


def verifier(name: str) -> Any:
    return replace(LEFT.verifier, source=hub(name))


def condition(cluster: Cluster, kind: str) -> tuple[str, str]:
    found = cluster.condition(kind)
    return found["status"], found["reason"]
