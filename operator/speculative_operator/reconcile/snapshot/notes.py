"""What the operator keeps about an object for itself: the tuner's memory and the facts of its pairs, in a ConfigMap.

No pod mounts it. Read by `take`, by the shell, which writes it, and by the command line.

Nothing of them says what pods run: pins and tables stand elsewhere. Where notes are missing, cut off, edited or another
object's, the pair is inspected again and the tuner begins with its prior.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from speculative_operator.domain.reading import is_controlled_by, items, mapping, parse_json, text
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.render import notes_config
from speculative_operator.render.metadata import canonical, digest

NOTES_SECONDS = 300.0
"""Seconds between two writes of nothing but what the tuner has learned: it learns that again within minutes."""
FIRST_SECONDS = 60.0
"""The same before the first memory is written, so that the tuning of a new object can be explained soon."""
KEY, DIGEST = "notes.json", "digest"
_TABLE = ("pair", "table", "speculatorRemoved")
"""Fields of the notes that follow the active table."""

Notes = Mapping[str, Any]
"""Keys: `memory` as `Memory.to_status` writes it; `pair`, the hash of the pair of that memory; `facts`, packed, of each
pair that the status names or named before."""


def facts_of(notes: Notes) -> list[str]:
    """The packed facts of pairs."""
    return [one for one in items(notes, "facts") if isinstance(one, str)]


def memory_of(notes: Notes, pair: str) -> Mapping[str, Any]:
    """The tuner's memory, where it is of the pair with this hash; else empty."""
    return mapping(notes, "memory") if text(notes, "pair") == pair else {}


def notes_of(memory: Mapping[str, Any], pair: str, facts: Iterable[str]) -> Notes:
    """The notes of the tuner's `memory`, which is of the pair with this hash, and of packed `facts`."""
    known = list(dict.fromkeys(filter(None, facts)))
    return ({"facts": known} if known else {}) | ({"memory": memory, "pair": pair} if memory else {})


def put_in(status: Mapping[str, Any], notes: Notes) -> Mapping[str, Any]:
    """`status` with the tuner's memory, as people read it."""
    memory = memory_of(notes, text(status, "pair", "hash"))
    return {**status, "memory": memory} if memory else status


def read(config: Mapping[str, Any] | None, uid: str) -> Notes:
    """The notes in the ConfigMap of the object `uid`; empty where it is missing, edited or another object's."""
    content = text(config, "data", KEY)
    if config is None or not is_controlled_by(config, uid) or text(config, "data", DIGEST) != _digest(content, uid):
        return {}
    return mapping(parse_json(content))


def manifest(spec: DeploymentSpec, notes: Notes) -> dict[str, Any]:
    """The ConfigMap of `notes`."""
    content = canonical(notes)
    return notes_config(spec, {KEY: content, DIGEST: _digest(content, spec.uid)})


def should_write(found: Notes, notes: Notes, last: float, now: float) -> bool:
    """True where `notes` are written: they have other facts or another table than `found`, the notes in the cluster, or
    the last write, at `last`, is long ago. Unix seconds."""
    if notes == found:
        return False
    if not set(facts_of(notes)) <= set(facts_of(found)):
        return True
    learned = bool(mapping(found, "memory"))
    pause = NOTES_SECONDS if learned else FIRST_SECONDS
    return not 0 <= now - last < pause or (learned and _of_table(found) != _of_table(notes))


def _of_table(notes: Notes) -> list[Any]:
    return [{**mapping(notes, "memory"), "pair": text(notes, "pair")}.get(key) for key in _TABLE]


def _digest(content: str, uid: str) -> str:
    return digest([uid, content], 16)
