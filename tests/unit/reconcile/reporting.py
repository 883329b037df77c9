"""Pods that tell of their engine, as its payload does, for tests of what follows from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.reconcile.worlds import SPEC, Cluster, observed

from speculative_operator.domain.observation import Observation
from speculative_operator.domain.spec import EngineSettings, Mode, Speculation

MINE = replace(
    SPEC,
    engine=EngineSettings(version="0.32.0", image="quay.io/me/vllm:1"),
    speculation=Speculation(mode=Mode.RECOMMEND),  # so that what is done is not the tuner's doing
)
NEWER = "0.34.1"


def telling(
    cluster: Cluster, version: str = NEWER, live: bool | None = False, table: int | None = None, inert: str = ""
) -> Observation:
    """Every pod seen at work, with a payload that tells."""
    seen = observed(cluster)
    windows = {
        pod: replace(window, live=live, engine_version=version, table_version=table, inert=inert)
        for pod, window in seen.windows.items()
    }
    return replace(seen, pods=windows)


def tell(cluster: Cluster, seconds: float, **what: Any) -> list[Any]:
    """Looks every ten seconds for so long; what was done in them."""
    return [action for _ in range(int(seconds // 10)) for action in cluster.tick(telling(cluster, **what)).actions]
