"""Release numbers of vLLM, compared: those of every engine. Kept for the modules of this adapter."""

from __future__ import annotations

from speculative_operator.engines.matrix.version import Version, parse, show

__all__ = ["Version", "parse", "show"]
