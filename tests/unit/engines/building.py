"""Specs for the tests of the adapters: a complete one, changed by parts."""

from __future__ import annotations

from dataclasses import replace
from types import EllipsisType
from typing import Any

from speculative_operator.domain.spec import (
    AcceleratorRequest,
    DeploymentSpec,
    EngineSettings,
    Method,
    ModelSource,
    Scheme,
    Speculation,
    Speculator,
    Verifier,
)

QWEN = ModelSource(Scheme.HF, "Qwen/Qwen3-8B")
SMALL_QWEN = ModelSource(Scheme.HF, "Qwen/Qwen3-0.6B")
HEAD = ModelSource(Scheme.HF, "someone/head")


def spec(
    method: Method | None = Method.EAGLE3,
    *,
    source: ModelSource | EllipsisType | None = ...,
    draft_tp: int | None = None,
    version: str = "0.32.0",
    args: tuple[str, ...] = (),
    env: tuple[dict[str, Any], ...] = (),
    verifier: dict[str, Any] | None = None,
    per_replica: int = 8,
    **speculation: Any,
) -> DeploymentSpec:
    """A spec of Qwen3-8B with a speculator of `method`; `speculation` holds fields of spec.speculation.

    Left out, `source` is a head for the methods that draft with weights.
    """
    if source is ...:
        source = None if method is None or method.draft_free else HEAD
    base = Verifier(QWEN, "qwen", max_num_seqs=256)
    return DeploymentSpec(
        name="qwen",
        namespace="models",
        uid="u",
        generation=1,
        verifier=replace(base, **(verifier or {})),
        speculator=Speculator(method, source, draft_tp) if method is not None else None,
        speculation=Speculation(**speculation),
        engine=EngineSettings(version=version, args=args, env=env),
        accelerator=AcceleratorRequest(product="H100-SXM", per_replica=per_replica),
    )


def valued(args: tuple[str, ...], flag: str) -> str:
    """The value after `flag`."""
    return args[args.index(flag) + 1]
