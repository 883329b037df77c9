"""Random walks: users edit, Jobs succeed, fail and vanish, the operator restarts, time passes; what must always hold.

A pod template never pins a pair that was not judged fit, nor mounts a model that is not wholly there; whatever
happened, once Jobs do well the cluster comes to rest with what was asked for.
"""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.reconcile.paired import CACHED, COMMITS, DRAFT, EAGLE, FOREIGN, PAIRED, VERIFIER, Paired, drawn, hub
from tests.unit.reconcile.worlds import observed

from speculative_operator.api.status import Status
from speculative_operator.domain.jobs import Progress, Purpose
from speculative_operator.domain.models import Pin
from speculative_operator.domain.spec import Method, Mode, Scheme, Speculation, Speculator, Weights

SPECULATORS = (drawn(EAGLE), drawn(FOREIGN), Speculator(Method.DRAFT_MODEL, hub(DRAFT)), Speculator(Method.NGRAM))
STEPS = (
    *(("read", None),) * 5, *(("fetched", None),) * 3,
    *(("speculator", one) for one in SPECULATORS),
    ("replicas", 1), ("replicas", 3), ("mode", Mode.DISABLED), ("mode", Mode.AUTO), ("repin", "x"), ("moved", EAGLE),
    ("cache", CACHED), ("cache", Weights()), ("fails", Purpose.INSPECT),
    ("fails", Purpose.FETCH), ("refused", Purpose.INSPECT), ("vanish", None), ("restart", None), ("wait", 400.0),
    ("wait", 25_000.0), ("comes", 0.3), ("seen", 200), ("paused", True), ("paused", False),
)  # fmt: skip


class Walk:
    """One cluster, and what lies in its cache."""

    def __init__(self, weights: Weights) -> None:
        self.cluster = Paired(spec=replace(PAIRED, weights=weights))
        self.there: set[str] = set()
        self.templates: list[tuple[str, ...]] = []

    def step(self, kind: str, value: Any) -> None:
        cluster = self.cluster
        if kind in ("speculator", "replicas", "paused"):
            cluster.edit(**{kind: value})
        elif kind == "mode":
            cluster.edit(speculation=Speculation(mode=value))
        elif kind in ("repin", "cache"):
            weights = replace(cluster.spec.weights, repin=value) if kind == "repin" else value
            cluster.edit(weights=weights)
        elif kind == "moved":
            cluster.commits[value] = f"{len(self.templates):040x}"
        elif kind == "wait":
            cluster.now += value
        elif kind == "restart":
            cluster.memory, cluster.applied = None, {}
        elif kind == "vanish":
            cluster.forget()
        elif kind == "seen":
            cluster.tick(observed(cluster, batch=value, survival=0.2))
        else:
            self.job(kind, value)

    def job(self, kind: str, value: Any) -> None:
        cluster = self.cluster
        purpose = value if isinstance(value, Purpose) else Purpose.INSPECT if kind == "read" else Purpose.FETCH
        if ("Job", f"demo-{purpose}") not in cluster.children or "phase" in cluster.fates.get(purpose, {}):
            return
        if kind == "read":
            cluster.read()
        elif kind == "fetched":
            self.fetch()
        elif kind == "comes":
            cluster.comes(Progress(int(value * 10**10), 10**10, 10**8, "a.safetensors"))
        else:
            cluster.fails(purpose, "SourceUnauthorized" if kind == "refused" else "SourceUnreachable")

    def fetch(self) -> None:
        args = self.cluster.args(Purpose.FETCH)
        for side in ("verifier", "speculator"):
            if f"--{side}" in args:
                name = args[args.index(f"--{side}") + 1].removeprefix("hf://")
                self.there.add(Pin(Scheme.HF, name, "", args[args.index(f"--{side}-revision") + 1]).key)
        self.cluster.fetched()

    def check(self) -> None:
        cluster = self.cluster
        Status.model_validate(cluster.status)
        if not cluster.serves():
            return
        args = tuple(cluster.engine_args)
        if not self.templates or self.templates[-1] != args:
            self.templates.append(args)
            self.check_template(" ".join(args))

    def check_template(self, line: str) -> None:
        unread = "--revision" not in line and "/mnt/models/" not in line
        assert FOREIGN not in line or unread, "a pair that does not fit"
        mounted = set(re.findall(r"/models/([0-9a-f]{16})\b", line))
        assert mounted <= self.there, "half a pair"
        if "/mnt/models/" in line:
            assert "--revision" not in line, "one side cached, the other not"


@pytest.mark.parametrize("weights", [Weights(), CACHED], ids=["plain", "cached"])
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(st.sampled_from(STEPS), max_size=14))
def test_whatever_happens(weights: Weights, steps: list[tuple[str, Any]]) -> None:
    walk = Walk(weights)
    for kind, value in steps:
        walk.step(kind, value)
        walk.cluster.tick()
        walk.cluster.roll()
        walk.check()
    ended(walk)


def ended(walk: Walk) -> None:
    """Jobs do well, the user asks for what fits, and time passes."""
    cluster = walk.cluster
    cluster.edit(speculator=drawn(EAGLE), paused=False, speculation=Speculation(), replicas=2)
    for _ in range(12):
        cluster.now += 4000.0
        cluster.tick()
        walk.check()
        walk.job("read", None)
        walk.job("fetched", None)
        cluster.roll()
    cluster.settle()
    assert cluster.condition("Ready")["status"] == "True", cluster.condition("Ready")
    assert cluster.look().actions == ()
    cached = cluster.spec.weights.cache is not None
    line = " ".join(cluster.engine_args)
    assert ("/mnt/models/models/" in line) is cached
    assert cluster.status["pair"]["verifierPin"]["resolved"] == COMMITS[VERIFIER]
    assert "nextPair" not in cluster.status
