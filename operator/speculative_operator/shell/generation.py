"""Whether a Deployment's controller has seen what is asked of it, where only annotations changed. Used by `cache`.

The API server raises a Deployment's generation with each change of its annotations, whoever makes it. Until the
controller has looked again, its status would count for one of other pods, and an object whose pods all serve would be
told as rolling out, with every such write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speculative_operator.shell.resources import DEPLOYMENT

Body = Mapping[str, Any]


def of_same_spec(body: Body, held: Body | None) -> Body:
    """`body`; a Deployment counts as seen by its controller where `held`, the version before, was seen and has the same
    spec."""
    if body["kind"] != DEPLOYMENT.kind or held is None or held["metadata"]["uid"] != body["metadata"]["uid"]:
        return body
    if not _is_seen(held) or _is_seen(body) or held.get("spec") != body.get("spec"):
        return body
    return {**body, "status": {**(body.get("status") or {}), "observedGeneration": _generation(body)}}


def _is_seen(body: Body) -> bool:
    return int((body.get("status") or {}).get("observedGeneration") or 0) >= _generation(body)


def _generation(body: Body) -> int:
    return int(body["metadata"].get("generation") or 0)
