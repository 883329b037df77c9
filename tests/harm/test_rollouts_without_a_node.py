"""An edit that asks for a node which does not exist ended the only pod of an object: one more was known not to fit,
so the old one went first, though that made no room for the new one either."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

from tests.unit.reconcile.worlds import SPEC

from speculative_operator.domain.spec import RolloutStrategy
from speculative_operator.reconcile.desired import NEW_FIRST, choose_strategy
from speculative_operator.shell.kube import Kube
from speculative_operator.shell.room import Room

ACCELERATOR = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
TEMPLATE: dict[str, Any] = {"spec": {"containers": [ACCELERATOR], "nodeSelector": {"example.com/none": "yes"}}}


class NoNode:
    """An API server that knows no node with these labels."""

    async def list(self, *_: Any, **__: Any) -> AsyncIterator[dict[str, Any]]:
        nodes: list[dict[str, Any]] = []
        for one in nodes:
            yield one


async def test_no_pod_ends_for_a_pod_that_no_node_could_run() -> None:
    room = await Room(cast("Kube", NoNode()), lambda: 0.0, everywhere=True).fits(("ns", "a"), TEMPLATE, waits=True)
    for asked in (RolloutStrategy.AUTO, RolloutStrategy.ROLLING_UPDATE):
        for replicas in (1, 2):
            assert choose_strategy(replace(SPEC, replicas=replicas, rollout_strategy=asked), room) == NEW_FIRST
