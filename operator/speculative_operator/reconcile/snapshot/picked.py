"""The pick for `speculator: {auto: true}`, as `status.picked` keeps it. Written by `picking`; anything else in that
field counts as nothing picked yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from speculative_operator.domain.formats import LONGEST_MESSAGE, timestamp
from speculative_operator.domain.reading import at, mappings, seconds_of, text, whole
from speculative_operator.domain.resolved import ResolvedSpec, resolve
from speculative_operator.domain.spec import SOURCES, DeploymentSpec, Method
from speculative_operator.engines.pairs import speculator, with_speculator
from speculative_operator.pairing.catalogue import Choice
from speculative_operator.pairing.catalogue_rows import Entry

MOST_PASSED_OVER = 16
LONGEST_WHY = 400
"""Most characters that are kept of the reason why an entry was passed over."""


class Basis(StrEnum):
    """How the catalogue found the verifier."""

    NAME = "Name"
    CARD = "Card"
    """By its model card, too: the models that it is derived from count."""


@dataclass(frozen=True, slots=True)
class Row:
    """A speculator of the catalogue, as status keeps it."""

    method: Method
    uri: str = ""
    """Empty where its weights are part of the verifier."""
    one_pass: bool = False
    k: int | None = None

    @classmethod
    def from_entry(cls, entry: Entry) -> Row:
        """The row that an entry of the catalogue stands in."""
        return cls(entry.method, entry.uri, entry.one_pass, entry.k)

    @property
    def key(self) -> tuple[str, Method]:
        return (self.uri.lower(), self.method)

    @property
    def title(self) -> str:
        """Speculator and method, for messages."""
        return f"{self.uri.removeprefix('hf://') or 'the drafting layers of the verifier'} ({self.method})"

    def fill(self, spec: DeploymentSpec) -> DeploymentSpec:
        """`spec` with this speculator in place of its own, starting at its K."""
        return with_speculator(spec, speculator(self.method, self.uri, one_pass=self.one_pass), self.k)

    def to_status(self) -> dict[str, Any]:
        """Its fields of a block, without empty ones."""
        block = {"speculator": self.uri, "method": self.method.value, "parallelDrafting": self.one_pass, "k": self.k}
        return {key: value for key, value in block.items() if value}


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A row of the catalogue that does not work for this verifier."""

    row: Row
    why: str


@dataclass(frozen=True, slots=True)
class Pick:
    """The pick for one verifier, or the result that there is nothing to pick."""

    verifier: str
    """URI of the verifier that it was picked for."""
    reason: str
    row: Row | None = None
    """None: nothing was picked, the verifier is served alone."""
    source: str = ""
    basis: Basis = Basis.NAME
    repin: str = ""
    at: float | None = None
    """Time of the pick in unix seconds."""
    generation: int = 0
    """Generation of the spec for which pods were last made with the pick; 0 where none were yet."""
    passed_over: tuple[PassedOver, ...] = ()

    @property
    def key(self) -> tuple[str, Method] | None:
        return self.row.key if self.row is not None else None

    @property
    def title(self) -> str:
        """Speculator and method of the pick, or `no speculator`, for messages."""
        return self.row.title if self.row is not None else "no speculator"

    def fill(self, spec: DeploymentSpec) -> ResolvedSpec:
        """`spec` with the picked speculator in place of `auto`."""
        return resolve(self.row.fill(spec) if self.row is not None else replace(spec, speculator=None))


def pick_of(
    choice: Choice, spec: DeploymentSpec, basis: Basis, now: float, passed_over: tuple[PassedOver, ...] = ()
) -> Pick:
    """The pick for `spec` that follows from `choice` of the catalogue."""
    row, source = (Row.from_entry(choice.entry), choice.entry.source) if choice.entry is not None else (None, "")
    of_spec = spec.verifier.source.uri, choice.reason, row, source
    return Pick(*of_spec, basis, spec.weights.repin, now, passed_over=passed_over)


def row_of(block: Mapping[str, Any]) -> Row | None:
    """The row in a block; None where there is none, or it is garbled."""
    named, uri = text(block, "method"), text(block, "speculator")
    method = next((one for one in Method if one.value == named and not one.draft_free), None)
    if method is None or not (_is_uri(uri) if uri else method.may_sit_in_verifier):
        return None
    return Row(method, uri, at(block, "parallelDrafting") is True, max(whole(block, "k"), 0) or None)


def read(block: Mapping[str, Any]) -> Pick | None:
    """The pick in the block `status.picked`; None where the block is empty or invalid."""
    verifier, row = text(block, "verifier"), row_of(block)
    if not verifier or (row is None and (text(block, "method") or text(block, "speculator"))):
        return None
    over = ((row_of(one), text(one, "why")) for one in mappings(block, "passedOver"))
    return Pick(
        verifier,
        text(block, "reason"),
        row,
        source=text(block, "source"),
        basis=Basis.CARD if text(block, "basis") == Basis.CARD.value else Basis.NAME,
        repin=text(block, "repin"),
        at=seconds_of(text(block, "time")),
        generation=whole(block, "generation"),
        passed_over=tuple(PassedOver(found, why) for found, why in over if found is not None)[:MOST_PASSED_OVER],
    )


def to_status(pick: Pick) -> dict[str, Any]:
    """The block `status.picked` of `pick`, without empty fields."""
    block: dict[str, Any] = {
        "verifier": pick.verifier,
        **(pick.row.to_status() if pick.row is not None else {}),
        "source": pick.source,
        "reason": pick.reason[:LONGEST_MESSAGE],
        "basis": pick.basis.value,
        "repin": pick.repin,
        "time": timestamp(pick.at) if pick.at is not None else "",
        "generation": pick.generation,
        "passedOver": [{**one.row.to_status(), "why": one.why} for one in pick.passed_over],
    }
    return {name: value for name, value in block.items() if value}


def _is_uri(uri: str) -> bool:
    """True where a user could name the address."""
    scheme, mark, location = uri.partition("://")
    return bool(mark and location) and scheme in SOURCES
