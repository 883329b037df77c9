"""What the operator keeps about an object for itself: the tuner's memory and the facts of its pairs, in a ConfigMap.

No pod mounts it. Called by `tick`, by the shell, which writes it, and by the command line.

Within a reconcile the status holds them: they are put in before and taken out after. Nothing of them says what pods
run: pins and tables stand elsewhere. Where notes are missing, cut off, edited or another object's, the pair is
inspected again and the tuner begins with its prior.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.reading import is_controlled_by, items, mapping, parse_json, text
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.reconcile.pair.records import PAIRS, pin_keys, unpack
from speculative_operator.reconcile.world import Outcome, World
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


def take_in(world: World) -> World:
    """`world` with its notes in the status, and no ConfigMap of them among the children."""
    slot = ("ConfigMap", names.notes(world.spec.name))
    notes = world.notes if world.notes is not None else read(world.children.get(slot), world.spec.uid)
    children = {key: child for key, child in world.children.items() if key != slot}
    return replace(world, status=put_in(world.status, notes), children=children)


def take_out(outcome: Outcome, world: World) -> Outcome:
    """`outcome` with the notes apart from its status. `world`: as `take_in` returned it."""
    status = {**outcome.status}
    facts = [*_facts(status), *_facts(world.status)]
    memory = mapping(status, "memory")
    status.pop("memory", None)
    for name in PAIRS:
        if name in status:
            status[name] = {key: value for key, value in mapping(status, name).items() if key != "facts"}
    notes: dict[str, Any] = {"facts": list(dict.fromkeys(facts))} if facts else {}
    if memory:
        notes |= {"memory": memory, "pair": text(status, "pair", "hash")}
    return replace(outcome, status=status, notes=notes)


def put_in(status: Mapping[str, Any], notes: Notes) -> Mapping[str, Any]:
    """`status` with the notes about its pairs."""
    whole = {**status}
    known = _known(notes)
    for name in PAIRS:
        block = mapping(status, name)
        facts = _of_pins(block, known)
        if facts:
            whole[name] = {**block, "facts": facts}
    memory = mapping(notes, "memory")
    if memory and text(notes, "pair") == text(status, "pair", "hash"):
        whole["memory"] = memory
    return whole


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
    if not set(_known(notes)) <= set(_known(found)):
        return True
    learned = bool(mapping(found, "memory"))
    pause = NOTES_SECONDS if learned else FIRST_SECONDS
    return not 0 <= now - last < pause or (learned and _of_table(found) != _of_table(notes))


def _facts(status: Mapping[str, Any]) -> list[str]:
    return [facts for name in PAIRS if unpack(facts := text(status, name, "facts")) is not None]


def _known(notes: Notes) -> list[str]:
    return [one for one in items(notes, "facts") if isinstance(one, str)]


def _of_pins(block: Mapping[str, Any], known: Iterable[str]) -> str:
    """The packed facts of the versions that a block of the status pins; empty where `known` has none."""
    keys = pin_keys(block)
    return next((one for one in known if keys and _keys_of(one) == keys), "")


def _keys_of(facts: str) -> tuple[str, ...]:
    known = unpack(facts)
    return tuple(model.pin.key for model in known.models) if known is not None else ()


def _of_table(notes: Notes) -> list[Any]:
    return [{**mapping(notes, "memory"), "pair": text(notes, "pair")}.get(key) for key in _TABLE]


def _digest(content: str, uid: str) -> str:
    return digest([uid, content], 16)
