"""The pick for `speculator: {auto: true}`, as `status.picked` keeps it. Written by `picking`; anything else in that
field counts as nothing picked yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from speculative_operator.domain.formats import LONGEST_MESSAGE, timestamp
from speculative_operator.domain.reading import at, mappings, seconds_of, text, whole
from speculative_operator.domain.resolved import ResolvedSpec, resolve
from speculative_operator.domain.spec import SOURCES, DeploymentSpec, Method, Speculator
from speculative_operator.engines.pairs import speculator, with_speculator
from speculative_operator.pairing.catalogue import Choice

MOST_PASSED_OVER = 16
LONGEST_WHY = 400
"""Most characters that are kept of the reason why an entry was passed over."""


class Basis(StrEnum):
    """How the catalogue found the verifier."""

    NAME = "Name"
    CARD = "Card"
    """By its model card, too: the models that it is derived from count."""


@dataclass(frozen=True, slots=True)
class PassedOver:
    """An entry of the catalogue that does not work for this verifier."""

    uri: str
    method: Method
    why: str

    @property
    def key(self) -> tuple[str, Method]:
        return (self.uri.lower(), self.method)

    @property
    def title(self) -> str:
        """Speculator and method of the entry, for messages."""
        return title_of(self.uri, self.method)


@dataclass(frozen=True, slots=True)
class Pick:
    """The pick for one verifier, or the result that there is nothing to pick."""

    verifier: str
    """URI of the verifier that it was picked for."""
    reason: str
    method: Method | None = None
    """None: nothing was picked, the verifier is served alone."""
    uri: str = ""
    """URI of the speculator; empty where its weights are part of the verifier."""
    one_pass: bool = False
    k: int | None = None
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
        return (self.uri.lower(), self.method) if self.method is not None else None

    @property
    def title(self) -> str:
        """Speculator and method of the pick, or `no speculator`, for messages."""
        return title_of(self.uri, self.method) if self.method is not None else "no speculator"

    @property
    def drafter(self) -> Speculator | None:
        """The picked speculator as a spec would name it; None where nothing was picked."""
        return speculator(self.method, self.uri, one_pass=self.one_pass) if self.method is not None else None

    def fill(self, spec: DeploymentSpec) -> ResolvedSpec:
        """`spec` with the picked speculator in place of `auto`."""
        return resolve(with_speculator(spec, self.drafter, self.k))


def pick_of(
    choice: Choice, spec: DeploymentSpec, basis: Basis, now: float, passed_over: tuple[PassedOver, ...] = ()
) -> Pick:
    """The pick for `spec` that follows from `choice` of the catalogue."""
    entry, reason, repin = choice.entry, choice.reason, spec.weights.repin
    verifier = spec.verifier.source.uri
    if entry is None:
        return Pick(verifier, reason, basis=basis, repin=repin, at=now, passed_over=passed_over)
    of_entry = entry.method, entry.uri, entry.one_pass, entry.k, entry.source
    return Pick(verifier, reason, *of_entry, basis, repin, now, passed_over=passed_over)


def read(block: Mapping[str, Any]) -> Pick | None:
    """The pick in the block `status.picked`; None where the block is empty or invalid."""
    verifier, named = text(block, "verifier"), text(block, "method")
    method, uri = known_method(named), text(block, "speculator")
    fits = method is None or bool(uri) or method.may_sit_in_verifier
    if not verifier or (named and method is None) or not fits or (uri and not is_uri(uri)):
        return None
    over = (PassedOver(text(one, "speculator"), found, text(one, "why")) for one in mappings(block, "passedOver")
            if (found := known_method(text(one, "method"))) is not None)  # fmt: skip
    return Pick(
        verifier=verifier,
        reason=text(block, "reason"),
        method=method,
        uri=uri,
        one_pass=at(block, "parallelDrafting") is True,
        k=whole(block, "k") or None,
        source=text(block, "source"),
        basis=Basis.CARD if text(block, "basis") == Basis.CARD.value else Basis.NAME,
        repin=text(block, "repin"),
        at=seconds_of(text(block, "time")),
        generation=whole(block, "generation"),
        passed_over=tuple(over)[:MOST_PASSED_OVER],
    )


def to_status(pick: Pick) -> dict[str, Any]:
    """The block `status.picked` of `pick`, without empty fields."""
    over = [{"speculator": one.uri, "method": one.method.value, "why": one.why} for one in pick.passed_over]
    block: dict[str, Any] = {
        "verifier": pick.verifier,
        "speculator": pick.uri,
        "method": pick.method.value if pick.method is not None else "",
        "parallelDrafting": pick.one_pass or None,
        "k": pick.k,
        "source": pick.source,
        "reason": pick.reason[:LONGEST_MESSAGE],
        "basis": pick.basis.value,
        "repin": pick.repin,
        "time": timestamp(pick.at) if pick.at is not None else "",
        "generation": pick.generation or None,
        "passedOver": [{name: value for name, value in one.items() if value} for one in over],
    }
    return {name: value for name, value in block.items() if value not in ("", [], None)}


def title_of(uri: str, method: Method) -> str:
    """Speculator and method, for messages; `uri` is empty where the weights are part of the verifier."""
    return f"{uri.removeprefix('hf://') or 'the drafting layers of the verifier'} ({method})"


def known_method(word: str) -> Method | None:
    """The method that is written so; None for any other word, and for methods without weights."""
    return next((one for one in Method if one.value == word and not one.draft_free), None)


def is_uri(uri: str) -> bool:
    """True where a user could name the address."""
    scheme, mark, location = uri.partition("://")
    return bool(mark and location) and scheme in SOURCES
