"""Inputs of the children with one value changed, and what is rendered from them. Used by `desired`."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from speculative_operator.domain.memo import Memo, digest
from speculative_operator.domain.resolved import ResolvedSpec
from speculative_operator.domain.table import KTable
from speculative_operator.engines.base import Engine
from speculative_operator.render import RenderInput, render


def render_again(inp: RenderInput, memo: Memo) -> tuple[Mapping[str, Any], ...]:
    """What `render(inp)` returns, at a tenth of the cost where it was rendered lately. Raises RenderError like it.

    The memo holds it compressed (6 KiB for an object's children), and it is read anew each time: no caller can change
    another's."""
    packed = memo.get(("render", digest(inp)), lambda: zlib.compress(json.dumps(render(inp)).encode(), 1))
    return tuple(json.loads(zlib.decompress(packed)))


def find_deployment(manifests: tuple[Mapping[str, Any], ...]) -> Mapping[str, Any]:
    """The manifest of the Deployment among `manifests`."""
    return next(one for one in manifests if one["kind"] == "Deployment")


def container_table(spec: ResolvedSpec, table: KTable | None) -> KTable:
    """The table that the engine's container is made with; one of K = 0 where there is none."""
    return table or KTable.constant(0, spec.verifier.max_num_seqs or 1)


def with_spec(inp: RenderInput, engine: Engine, spec: ResolvedSpec) -> RenderInput:
    """`inp` for another `spec`, with the container that `engine` makes of it."""
    return replace(inp, spec=spec, container=engine.container(spec, container_table(spec, inp.waiting or inp.table)))


def with_budget(inp: RenderInput, engine: Engine, seconds: int) -> RenderInput:
    """`inp` with a startup budget of at least `seconds`."""
    if seconds <= inp.container.startup_seconds:
        return inp
    return with_spec(inp, engine, replace(inp.spec, engine=replace(inp.spec.engine, startup_seconds=seconds)))


def with_size(inp: RenderInput, engine: Engine, size: int) -> RenderInput:
    """`inp` for weights of `size` bytes."""
    if size == inp.spec.weights.bytes:
        return inp
    return with_spec(inp, engine, replace(inp.spec, weights=replace(inp.spec.weights, bytes=size)))


def with_helper(inp: RenderInput, image: str) -> RenderInput:
    """`inp` with the operator's `image` in the containers that help the engine; as it is where that is empty."""
    if image in ("", inp.capabilities.job_image):
        return inp
    return replace(inp, capabilities=replace(inp.capabilities, job_image=image))
