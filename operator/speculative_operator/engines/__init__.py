"""Adapters: one `Engine` for each inference engine. Pure; used by render, reconcile and shell."""

from __future__ import annotations

from speculative_operator.engines.base import (
    Engine,
    EngineContainer,
    ImageMount,
    Notice,
    PvcMount,
    Refusal,
)
from speculative_operator.engines.facts import pair_facts
from speculative_operator.engines.registry import engine_for, query

__all__ = [
    "Engine",
    "EngineContainer",
    "ImageMount",
    "Notice",
    "PvcMount",
    "Refusal",
    "engine_for",
    "pair_facts",
    "query",
]
