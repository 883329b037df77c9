"""Privileges that `spec.template` asks for: refused, unless whoever installed the operator allows them. Used by `tick`.

Who may create a SpeculativeDeployment has the operator make pods. Without this check that right would be the right to
any pod: as root of a node, or with the token of any ServiceAccount of the namespace. Secrets that pods may name are not
bounded here, for engines need them.

What the pods of an object already have when the check comes into force they keep, with a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speculative_operator.domain.actions import Condition, Truth
from speculative_operator.domain.platform import EVERY, Privilege
from speculative_operator.domain.reasons import ConditionType, Reason
from speculative_operator.engines.base import Notice
from speculative_operator.reconcile.snapshot.privileges import Asked, privileges_of
from speculative_operator.reconcile.snapshot.take import Snapshot
from speculative_operator.render import RenderError
from speculative_operator.render.environment import plain
from speculative_operator.render.merge import merge

_RENDERED: Mapping[str, Any] = {"spec": {"automountServiceAccountToken": False}}
"""Fields that the operator renders and a template may override to gain a privilege."""


def refusals(world: Snapshot) -> tuple[Condition, ...]:
    """Why pods may not be made of the template; empty where they may."""
    return tuple(
        Condition(ConditionType.READY, Truth.FALSE, Reason.SPEC_INVALID, _sentence(one))
        for one in _beyond(world)
        if one not in world.workload.privileges
    ) + _folder(world)


def notices(world: Snapshot) -> tuple[Notice, ...]:
    """One notice for each privilege that running pods keep though new pods would not get it."""
    return tuple(
        Notice(Reason.PRIVILEGES_KEPT, f"{_sentence(one)}. Running pods keep it")
        for one in _beyond(world)
        if one in world.workload.privileges
    )


def _beyond(world: Snapshot) -> tuple[Asked, ...]:
    allowed = world.capabilities.template_privileges
    if EVERY in allowed or not world.spec.template:
        return ()
    try:
        merged = merge(_RENDERED, plain(world.spec.template), "spec.template", field="template")
    except RenderError:
        return ()  # it is refused as a whole when it is rendered
    cache = world.spec.weights.cache
    asked = privileges_of(merged, of_node=cache is not None and bool(cache.node_path))
    return tuple(one for one in asked if one.privilege.value not in allowed)


def _sentence(one: Asked) -> str:
    ours = one.privilege is Privilege.OPERATOR_VOLUMES
    why = "could write to a volume of the operator" if ours else "exceeds the Pod Security level baseline"
    mount = ", mount it with readOnly: true" if ours and ".volumeMounts" in one.field else ""
    return (
        f"spec.template.{one.field} is {one.value[:120]}, which {why}; remove it{mount}, or ask the "
        f"operator's administrator to add {one.privilege} to the setting SPECULATIVE_TEMPLATE_PRIVILEGES "
        "(templatePrivileges of the chart)"
    )


def _folder(world: Snapshot) -> tuple[Condition, ...]:
    """The refusal of a cache in a folder of the node that is none of those allowed; empty where it is, or where pods
    have it already."""
    cache, allowed = world.spec.weights.cache, world.capabilities.node_folders
    path = cache.node_path if cache is not None else ""
    if not path or any(f"{path}/".startswith(f"{one}/") for one in allowed):
        return ()
    if any(one.privilege is Privilege.HOST_PATH and one.value == path for one in world.workload.privileges):
        return ()
    message = (
        f"spec.weights.cache.nodePath is {path}, which is in none of the folders allowed ({', '.join(allowed)}); set "
        "it to one of these or a folder below, use a claim or emptyDir, or ask the operator's administrator to add it "
        "to the setting SPECULATIVE_NODE_FOLDERS (nodeFolders of the chart)"
    )
    return (Condition(ConditionType.READY, Truth.FALSE, Reason.SPEC_INVALID, message),)
