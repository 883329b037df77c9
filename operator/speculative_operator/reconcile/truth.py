"""Which table is in force, and its version: told by status, by the cluster where that is ahead, else by the prior.

Called by `tick`. A change is applied before status is written, so an operator that is killed between the two finds the
newer table in the cluster. It believes only what itself has rendered: a hand-edited table is put back, not adopted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.decision import Policy
from speculative_operator.domain.knobs import Actuator
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import DeploymentSpec, Mode
from speculative_operator.domain.table import KTable, TableError
from speculative_operator.reconcile.reading import items, mapping, text, whole
from speculative_operator.reconcile.world import Child, World
from speculative_operator.render import table_config
from speculative_operator.render.labels import pair_hash
from speculative_operator.tuner import initial_table
from speculative_operator.tuner.start import fit

MAX_BATCH = 65_536
"""Tables that claim to reach further are not read: no engine schedules as many requests."""


@dataclass(frozen=True, slots=True)
class InForce:
    """The table that pods run or are about to. Its version grows by one with every change, over restarts too."""

    table: KTable | None
    """None without speculation."""
    version: int
    before: KTable | None = None
    """The table that it replaces in this tick, when the spec made it do so."""
    why: Reason | None = None
    """Set when it was changed in this tick, by the spec."""
    fresh: bool = False
    """True when evidence gathered so far speaks of another pair."""


def table_in_force(world: World, policy: Policy) -> InForce:
    """The table of the last tick, made to fit the spec as it is now.

    A new pair, and a table that the engine can no longer express, start from the prior again; in mode Static the spec
    says the table. Everything else keeps it, cut or stretched to the new sizes and with each K lowered to one that may
    occur: never to more drafts than before. While paused nothing changes, whatever the spec says.
    """
    spec = world.spec
    table, version = _last(world)
    if spec.paused:
        return InForce(table, version)
    old_pair = text(world.status, "pair", "hash")
    fresh = bool(old_pair) and old_pair != pair_hash(spec)
    if not spec.speculates or policy.knobs.actuator is Actuator.NONE:
        return InForce(None, version, before=table, why=Reason.DISABLED if table is not None else None, fresh=fresh)
    wanted = _wanted(table, policy, fresh)
    if wanted == table:
        return InForce(table, version, fresh=fresh)
    why = None if table is None and version == 0 else Reason.SPEC_CHANGED
    return InForce(wanted, version + 1, before=table, why=why, fresh=fresh)


def _wanted(table: KTable | None, policy: Policy, fresh: bool) -> KTable:
    if table is None or fresh or policy.mode is Mode.STATIC:
        return initial_table(policy)
    fitted = fit(table, policy)
    if policy.knobs.actuator is Actuator.RESTART and len(fitted.ks) > 1:
        return initial_table(policy)
    return fitted


def _last(world: World) -> tuple[KTable | None, int]:
    """Table and version of the last change that reached the cluster. The table is None where none was in force."""
    table = _rows(items(world.status, "speculation", "table"))
    version = max(0, whole(world.status, "speculation", "tableVersion"))
    for claim in (_from_config, _from_deployment):
        claimed, claimed_version = claim(world, version)
        if claimed is not None:
            table, version = claimed, claimed_version
    return table, version


def _from_config(world: World, known: int) -> tuple[KTable | None, int]:
    """The table in the cluster's ConfigMap, if it is newer than version `known` and exactly as it was rendered."""
    spec = world.spec
    found = _child(world, ("ConfigMap", names.child(spec.name, "table")))
    table, version = _parsed(text(found, "data", names.TABLE_KEY), known)
    return (table, version) if table is not None and _is_rendered(spec, found, table, version) else (None, 0)


def _from_deployment(world: World, known: int) -> tuple[KTable | None, int]:
    """The table that the Deployment says its pod template was rendered with, if it is newer than version `known`."""
    found = _child(world, ("Deployment", names.child(world.spec.name)))
    return _parsed(text(found, "metadata", "annotations", names.ANNOTATION_TABLE), known)


def _child(world: World, key: Child) -> Mapping[str, Any]:
    found = world.children.get(key)
    return found if isinstance(found, Mapping) else {}


def _is_rendered(spec: DeploymentSpec, found: Mapping[str, Any], table: KTable, version: int) -> bool:
    rendered = table_config(spec, table, version)
    annotation = text(found, "metadata", "annotations", names.ANNOTATION_HASH)
    data = mapping(found, "data")
    return bool(annotation == rendered["metadata"]["annotations"][names.ANNOTATION_HASH] and data == rendered["data"])


def _parsed(content: str, known: int) -> tuple[KTable | None, int]:
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return None, 0
    version = whole(data, "version")
    return (_rows(items(data, "rows")), version) if version > known else (None, 0)


def _rows(rows: Any) -> KTable | None:
    try:
        table = KTable.from_rows(rows)
    except (TableError, TypeError):
        return None
    return table if table.max_batch <= MAX_BATCH else None
