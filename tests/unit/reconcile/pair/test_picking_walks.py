"""Random walks of an object whose speculator is left to the operator: rows come and go, Jobs fail, users edit, the
operator restarts. Rows and restarts alone never move a pick nor a pod, and no pod drafts with what was not judged fit.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.reconcile.choosing import GOOD, LEFT, SMALL, WRONG, Choosing, row, rows, verifier
from tests.unit.reconcile.paired import CACHED, EAGLE, FOREIGN, VERIFIER, advance

from speculative_operator.api.status import Status
from speculative_operator.domain.jobs import Purpose
from speculative_operator.domain.spec import Cache, Check, EmptyDir, Mode, Speculation, Weights

CATALOGUES = [rows(GOOD), rows(SMALL, GOOD), rows(WRONG), rows(WRONG, SMALL, GOOD), rows(row(EAGLE, verifier="me/new"))]
UNREAD = Weights(check=Check.DISABLED)
BROUGHT = Weights(cache=Cache(empty_dir=EmptyDir("40Gi")))
QUIET = st.sampled_from(
    [*(("rows", one) for one in CATALOGUES), ("restart", None), ("wait", 30.0), ("wait", 25_000.0), ("read", None)]
)
"""What no user asked for."""
EDITS = st.sampled_from(
    [
        ("replicas", 3), ("mode", Mode.DISABLED), ("mode", Mode.AUTO), ("repin", "x"), ("repin", "y"), ("repin", ""),
        ("verifier", "me/new"), ("verifier", VERIFIER), ("paused", True), ("paused", False), ("fails", "speculator"),
        ("fails", ""), ("refused", "speculator"), ("fetched", None), ("garble", None),
    ]
)  # fmt: skip


class Walk:
    def __init__(self, weights: Weights, catalogue: Any) -> None:
        self.cluster = Choosing(spec=replace(LEFT, weights=weights), catalogue=catalogue)

    def step(self, kind: str, value: Any) -> None:
        cluster = self.cluster
        if kind == "rows":
            cluster.catalogue = value
        elif kind == "restart":
            cluster.memory, cluster.applied = None, {}
        elif kind == "wait":
            cluster.now += value
        elif kind in ("replicas", "paused"):
            cluster.edit(**{kind: value})
        elif kind == "mode":
            cluster.edit(speculation=Speculation(mode=value))
        elif kind == "repin":
            cluster.spec = replace(cluster.spec, weights=replace(cluster.spec.weights, repin=value))
        elif kind == "verifier":
            cluster.edit(verifier=verifier(value))
        elif kind == "garble":
            cluster.status["picked"] = {"verifier": 7, "method": "eagle3"}
        else:
            self.job(kind, value)

    def job(self, kind: str, side: Any) -> None:
        cluster = self.cluster
        purpose = Purpose.FETCH if kind == "fetched" else Purpose.INSPECT
        if ("Job", f"demo-{purpose}") not in cluster.children or "phase" in cluster.fates.get(purpose, {}):
            return
        if kind == "read":
            cluster.read()
        elif kind == "fetched":
            cluster.fetched()
        else:
            reason = "SourceNotFound" if kind == "refused" else "SourceUnreachable"
            cluster.fails(purpose, reason, side=side)

    def tick(self) -> None:
        self.cluster.tick()
        self.cluster.roll()
        Status.model_validate(self.cluster.status)
        if self.cluster.serves() and self.cluster.spec.weights.check is Check.AUTO:
            assert FOREIGN not in " ".join(self.cluster.engine_args), "a pair that does not fit"


PLACES = pytest.mark.parametrize(
    "weights", [Weights(), CACHED, BROUGHT, UNREAD], ids=["plain", "cached", "brought", "unread"]
)
WALKS = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


@PLACES
@WALKS
@given(first=st.sampled_from(CATALOGUES), steps=st.lists(QUIET, max_size=10))
def test_nothing_but_the_user_moves_a_pick(weights: Weights, first: Any, steps: list[tuple[str, Any]]) -> None:
    walk = Walk(weights, first)
    advance(walk.cluster)
    walk.cluster.settle()
    templates, status = walk.cluster.templates, walk.cluster.status
    assert walk.cluster.serves()
    for kind, value in steps:
        walk.step(kind, value)
        walk.tick()
        assert walk.cluster.templates == templates
        assert walk.cluster.picked == status["picked"]
        assert walk.cluster.condition("Ready")["status"] == "True"


@PLACES
@WALKS
@given(first=st.sampled_from(CATALOGUES), steps=st.lists(QUIET | EDITS, max_size=14))
def test_whatever_happens(weights: Weights, first: Any, steps: list[tuple[str, Any]]) -> None:
    walk = Walk(weights, first)
    for kind, value in steps:
        walk.step(kind, value)
        walk.tick()
    cluster = walk.cluster
    cluster.catalogue = rows(WRONG, GOOD)
    cluster.edit(paused=False, speculation=Speculation(), verifier=LEFT.verifier)
    walk.tick()  # a pick that was lost while paused is taken from the pods
    cluster.edit(weights=replace(weights, repin="end"))
    for _ in range(12):
        cluster.now += 4000.0
        walk.tick()
        walk.job("read", None)
        walk.job("fetched", None)
    cluster.settle()
    assert cluster.condition("Ready")["status"] == "True", cluster.condition("Ready")
    assert cluster.look().actions == ()
    assert cluster.told_of() == (f"hf://{FOREIGN if weights is UNREAD else EAGLE}", "eagle3")
    assert cluster.picked["generation"] == cluster.spec.generation
