"""The record of a pair in the status: its pins, its facts, and why reading or fetching it failed.

`status.pair` is the pair that pods run or are made of first, `status.nextPair` the one that the spec asks for while
they run another. Written by `pairing`; anything else in these fields counts as nothing known. The facts stand in the
notes.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import takewhile
from typing import Any

from speculative_operator.domain.formats import LONGEST_MESSAGE, timestamp
from speculative_operator.domain.models import ModelFacts, Pin
from speculative_operator.domain.reading import items, mapping, seconds_of, text
from speculative_operator.domain.reasons import Reason, reason_of
from speculative_operator.domain.spec import DeploymentSpec, Method, ModelSource, Scheme, Speculator

SIDES = ("verifier", "speculator")
PAIRS = ("pair", "nextPair")
"""Parts of a status that have a record."""
_MARK = "z:"
_LARGEST = 1_000_000
"""Bytes that packed facts may have when unpacked."""
_PREVIOUS = 2
"""Number of models of former pairs whose folders a cache keeps for a way back."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The models that a spec asks for."""

    verifier: ModelSource
    speculator: ModelSource | None
    """None where the speculator has no weights, or where they are the verifier's own."""
    repin: str = ""

    @property
    def sources(self) -> tuple[ModelSource, ...]:
        return (self.verifier, self.speculator) if self.speculator is not None else (self.verifier,)


def wanted_of(spec: DeploymentSpec) -> Wanted:
    """The models that pods of `spec` are made of; in mode Disabled the verifier alone."""
    source = spec.speculator.source if spec.speculator is not None and spec.speculates else None
    apart = source if source is not None and source.uri != spec.verifier.source.uri else None
    return Wanted(spec.verifier.source, apart, spec.weights.repin)


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a Job."""

    reason: Reason
    message: str
    at: float
    """Time in unix seconds."""
    job: str
    """uid of the Job; empty where none could be made."""
    side: str = ""
    """Which model it is about, `verifier` or `speculator`; empty: both, or neither."""

    @property
    def final(self) -> bool:
        """True where an engine would fail in the same way."""
        return self.reason in (Reason.SOURCE_UNAUTHORIZED, Reason.SOURCE_NOT_FOUND)


@dataclass(frozen=True, slots=True)
class Known:
    """The facts that were read of a pair."""

    verifier: ModelFacts
    speculator: ModelFacts | None
    drafter: Speculator | None = None
    """The speculator by which pods of this pair draft, once there may be any; also one that is part of the verifier."""
    adopted: bool = False
    """True once pods may be made of the pair: then `drafter` holds."""

    @property
    def models(self) -> tuple[ModelFacts, ...]:
        return (self.verifier, self.speculator) if self.speculator is not None else (self.verifier,)


@dataclass(frozen=True, slots=True)
class Record:
    """One pair as status has it. Times in unix seconds."""

    verifier: str = ""
    """URI and version of the verifier, for people."""
    speculator: str = ""
    hash: str = ""
    """Hash of the pair that pods were last made of; empty while none were."""
    verdict: str = ""
    checked_at: float | None = None
    repin: str = ""
    cache: str = ""
    """`Cache.home` of the cache in which both models lie."""
    cached_at: float | None = None
    """When a Job last found both there, or brought them."""
    previous: tuple[str, ...] = ()
    facts: str = ""
    """`Known`, packed."""
    asked: tuple[tuple[str, str], ...] = ()
    """(URI, revision) of verifier and speculator as the spec had them."""
    failure: Failure | None = None
    resolved: bool = field(default=False, compare=False)
    """True where the status names the version of the verifier."""

    @property
    def trusted(self) -> Record:
        """The record; without its hash where it names a version but its facts can no longer be read: then nobody knows
        what pods were made of."""
        return replace(self, hash="") if self.known is None and self.resolved else self

    @property
    def known(self) -> Known | None:
        """The facts, unpacked; None where nothing was read yet."""
        return unpack(self.facts) if self.facts else None

    @property
    def keys(self) -> tuple[str, ...]:
        """Folders of the models in a cache."""
        return _keys_of(self.facts)

    def covers(self, wanted: Wanted) -> bool:
        """True where the record speaks of all models that are wanted, read or not. Taking the annotation `repin` away
        asks for no other versions."""
        if wanted.repin not in ("", self.repin):
            return False
        asks = tuple((one.uri, one.revision) for one in wanted.sources)
        return self.asked[: len(asks)] == asks

    def with_facts(self, verifier: ModelFacts, speculator: ModelFacts | None, now: float) -> Record:
        """The record with what a Job has just read."""
        facts = pack(Known(verifier, speculator))
        return replace(self, facts=facts, checked_at=now, failure=None, cache="", cached_at=None, verdict="")


def blank(wanted: Wanted, spec: DeploymentSpec) -> Record:
    """The record of a pair of which nothing was read."""
    speculator = spec.speculator if spec.speculates else None
    own = wanted.speculator or (speculator.source if speculator is not None else None)
    method = speculator.method.value if speculator is not None else ""
    asked = tuple((one.uri, one.revision) for one in wanted.sources)
    return Record(
        verifier=source_text(wanted.verifier),
        speculator=source_text(own) if own is not None else method,
        repin=wanted.repin,
        asked=asked,
    )


def source_text(source: ModelSource) -> str:
    """A source with its revision, for people."""
    return f"{source.uri}@{source.revision}" if source.revision else source.uri


def pack(known: Known) -> str:
    """Packs what was read of a pair into one short text."""
    content: dict[str, Any] = {"verifier": known.verifier.to_json()}
    if known.speculator is not None:
        content["speculator"] = known.speculator.to_json()
    if known.adopted:
        content["drafter"] = asdict(known.drafter) if known.drafter is not None else None
    raw = json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
    return _MARK + base64.b64encode(zlib.compress(raw, 9)).decode()


@lru_cache(maxsize=4096)
def unpack(facts: str) -> Known | None:
    """The facts that `pack` has packed; None for any other text."""
    try:
        content = json.loads(
            zlib.decompressobj().decompress(base64.b64decode(facts.removeprefix(_MARK), validate=True), _LARGEST)
        )
        speculator, drafter = content.get("speculator"), content.get("drafter")
        return Known(
            verifier=ModelFacts.from_json(content["verifier"]),
            speculator=ModelFacts.from_json(speculator) if speculator is not None else None,
            drafter=_drafter(drafter) if drafter is not None else None,
            adopted="drafter" in content,
        )
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error, RecursionError):
        return None


def read(block: Mapping[str, Any], notes: Iterable[str] = ()) -> Record:
    """The record in the block `status.pair` or `status.nextPair`, with the packed facts in the `notes` that are of the
    versions it pins."""
    pins = list(takewhile(lambda pin: text(pin, "uri"), (mapping(block, f"{side}Pin") for side in SIDES)))
    keys = _pin_keys(block)
    return Record(
        verifier=text(block, "verifier"),
        speculator=text(block, "speculator"),
        hash=text(block, "hash"),
        verdict=text(block, "verdict"),
        checked_at=seconds_of(text(block, "checkedAt")),
        repin=text(block, "repin"),
        cache=text(block, "cache"),
        cached_at=seconds_of(text(block, "cachedAt")),
        previous=_previous(block),
        facts=next((one for one in notes if keys and _keys_of(one) == keys), ""),
        asked=tuple((text(pin, "uri"), text(pin, "asked")) for pin in pins),
        failure=_failure(mapping(block, "failure")),
        resolved=bool(text(block, "verifierPin", "resolved")),
    )


def to_status(record: Record) -> dict[str, Any]:
    """The block of `record` in the status, without empty fields; empty where the record names no verifier."""
    if not record.verifier:
        return {}
    known = record.known
    pins: list[Pin | None] = [facts.pin for facts in known.models] if known is not None else []
    pins += [None] * (len(record.asked) - len(pins))
    block: dict[str, Any] = {
        "verifier": record.verifier,
        "speculator": record.speculator,
        "hash": record.hash,
        "verdict": record.verdict,
        "checkedAt": timestamp(record.checked_at) if record.checked_at is not None else "",
        "repin": record.repin,
        "cache": record.cache,
        "cachedAt": timestamp(record.cached_at) if record.cached_at is not None else "",
        "previous": list(record.previous),
    }
    for name, asked, pin in zip(SIDES, record.asked, pins, strict=False):
        block[f"{name}Pin"] = _pin(asked, pin)
    if record.failure is not None:
        block["failure"] = _failure_to_status(record.failure)
    return {key: value for key, value in block.items() if value not in ("", [], None)}


def keys(status: Mapping[str, Any]) -> frozenset[str]:
    """Folders of caches that the object with this status uses, or may want back soon."""
    blocks = [mapping(status, name) for name in PAIRS]
    return frozenset(key for block in blocks for key in (*_pin_keys(block), *_previous(block)))


def _pin_keys(block: Mapping[str, Any]) -> tuple[str, ...]:
    """Folders in a cache of the models that `status.pair` or `status.nextPair` pins."""
    return tuple(key for side in SIDES if (key := text(block, f"{side}Pin", "key")))


def _previous(block: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(key for key in items(block, "previous") if isinstance(key, str))


def _keys_of(facts: str) -> tuple[str, ...]:
    known = unpack(facts)
    return tuple(model.pin.key for model in known.models) if known is not None else ()


def following(record: Record, before: Record | None) -> Record:
    """`record` with the folders of the pair `before` it that a cache keeps."""
    if before is None or before.facts == record.facts:
        return record
    gone = [key for key in (*before.keys, *before.previous) if key not in record.keys]
    return replace(record, previous=tuple(dict.fromkeys(gone))[:_PREVIOUS])


def _pin(asked: tuple[str, str], pin: Pin | None) -> dict[str, str]:
    resolved, key = (pin.resolved, pin.key) if pin is not None else ("", "")
    block = {"uri": asked[0], "asked": asked[1], "resolved": resolved, "key": key}
    return {name: value for name, value in block.items() if value}


def _failure(block: Mapping[str, Any]) -> Failure | None:
    at = seconds_of(text(block, "time"))
    if at is None:
        return None
    return Failure(
        reason_of(text(block, "reason")) or Reason.SOURCE_UNREACHABLE,
        text(block, "message"),
        at,
        text(block, "job"),
        text(block, "side"),
    )


def _failure_to_status(failure: Failure) -> dict[str, str]:
    block = {
        "reason": failure.reason.value,
        "message": failure.message[:LONGEST_MESSAGE],
        "time": timestamp(failure.at),
        "job": failure.job,
        "side": failure.side,
    }
    return {key: value for key, value in block.items() if value}


def _drafter(data: Mapping[str, Any]) -> Speculator:
    source = data.get("source")
    rest = {name: value for name, value in data.items() if name not in ("method", "source")}
    return Speculator(
        method=Method(data["method"]),
        source=ModelSource(**{**source, "scheme": Scheme(source["scheme"])}) if source is not None else None,
        **rest,
    )
