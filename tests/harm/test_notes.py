"""The operator's notes about an object are missing, cut off, absurd, edited or another object's: the tuner begins with
its prior, the pair is read again, and no pod is replaced."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.reconcile.paired import CACHED, DRAFT, PAIRED, Paired, advance, drawn, serving
from tests.unit.reconcile.worlds import KEPT, NOW, Cluster, observed, retuned, template

from speculative_operator.domain.spec import Weights
from speculative_operator.reconcile.snapshot import notes
from speculative_operator.reconcile.snapshot.status import read_status
from speculative_operator.reconcile.tick import tick

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
BESIDE = st.fixed_dictionaries(
    {},
    optional={
        "facts": JSON | st.lists(st.text(max_size=30), max_size=3),
        "pair": JSON,
        "memory": JSON
        | st.dictionaries(
            st.sampled_from(("format", "table", "times", "mean", "speculatorRemoved", "cells")), JSON, max_size=6
        ),
    },
)


def content(cluster: Cluster) -> dict[str, Any]:
    """The notes as they were written."""
    assert cluster.notes is not None
    return dict(notes.read(cluster.notes, cluster.spec.uid))


def missing(cluster: Cluster) -> None:
    cluster.notes = None


def emptied(cluster: Cluster) -> None:
    assert cluster.notes is not None
    cluster.notes["data"] = None


def cut_off(cluster: Cluster) -> None:
    assert cluster.notes is not None
    cluster.notes["data"][notes.KEY] = cluster.notes["data"][notes.KEY][:-40]


def edited(cluster: Cluster) -> None:
    """The table and removal, by a hand that knows the format and not the digest."""
    assert cluster.notes is not None
    whole = content(cluster)
    memory = {**whole.get("memory", {}), "table": [[1, 256, 16]], "speculatorRemoved": True}
    other = notes.manifest(cluster.spec, {**whole, "memory": memory})
    cluster.notes["data"][notes.KEY] = other["data"][notes.KEY]


def of_another(cluster: Cluster) -> None:
    cluster.notes = notes.manifest(replace(cluster.spec, uid="another"), content(cluster))


def orphaned(cluster: Cluster) -> None:
    assert cluster.notes is not None
    del cluster.notes["metadata"]["ownerReferences"]


def of_another_release(cluster: Cluster) -> None:
    cluster.notes = notes.manifest(cluster.spec, {"format": 9, "memory": {"format": 9}, "facts": {"pair": ["y:"]}})


LOSSES = [missing, emptied, cut_off, edited, of_another, orphaned, of_another_release]


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("weights", [Weights(), CACHED], ids=["plain", "cached"])
def test_no_pod_is_replaced(lose: Callable[[Cluster], None], weights: Weights) -> None:
    cluster = serving(spec=replace(PAIRED, weights=weights))
    before, status = template(cluster.deployment), deepcopy(cluster.status)
    lose(cluster)
    cluster.forget()
    advance(cluster)
    cluster.settle()
    assert (template(cluster.deployment), cluster.templates) == (before, 1)
    assert cluster.look().actions == ()
    for block in ("table", "tableVersion"):
        assert cluster.status["speculation"][block] == status["speculation"][block]
    assert content(cluster)["facts"], "read again, and kept again"


@pytest.mark.parametrize("lose", LOSSES)
def test_the_table_stays_and_the_tuner_begins_with_its_prior(lose: Callable[[Cluster], None]) -> None:
    cluster = retuned(spec=KEPT)
    for _ in range(2):
        cluster.tick()
    table, version = cluster.table, cluster.status["speculation"]["tableVersion"]
    cluster.forget()
    known = cluster.look().memory
    assert known is not None
    assert known.acceptance.drafts > 0.0, "else nothing is lost here"
    lose(cluster)
    outcome = cluster.tick()
    assert cluster.memory is not None
    assert cluster.memory.acceptance.drafts == 0.0
    assert outcome.actions == ()
    assert (cluster.table, cluster.status["speculation"]["tableVersion"]) == (table, version)
    for _ in range(5):
        cluster.tick(observed(cluster, batch=200, survival=0.2))
    assert cluster.templates == 1


@given(beside=BESIDE)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_bears_the_digest_is_read_without_harm(beside: dict[str, Any]) -> None:
    """As another release may write it: right in form, and any content."""
    cluster = serving()
    before = template(cluster.deployment)
    cluster.notes = notes.manifest(cluster.spec, {**content(cluster), **beside})
    cluster.forget()
    for _ in range(2):
        advance(cluster)
    assert (template(cluster.deployment), cluster.templates) == (before, 1)
    assert cluster.condition("Ready")["status"] == "True"


@given(found=BESIDE, wanted=BESIDE, status=st.dictionaries(st.sampled_from(("pair", "nextPair", "memory")), JSON))
def test_none_of_it_stops_a_reconcile(found: dict[str, Any], wanted: dict[str, Any], status: dict[str, Any]) -> None:
    for last in (0.0, 1e12):
        assert notes.should_write(found, wanted, last, 1e9) in (True, False)
    world = Cluster().world(status=status, notes=found)
    outcome = tick(world, None, None, NOW)
    assert "memory" not in outcome.status
    read_again = notes.read(notes.manifest(world.spec, outcome.notes or {}), world.spec.uid)
    assert json.dumps(read_again, sort_keys=True) == json.dumps(outcome.notes, sort_keys=True)


def test_while_the_operator_runs_an_edit_costs_nothing() -> None:
    cluster = serving()
    for lose in LOSSES:
        lose(cluster)
        assert cluster.tick().actions == ()
        cluster.notes = notes.manifest(cluster.spec, cluster.remembered or {})
    assert len(cluster.made) == 1, "the pair is not read again"


def test_memory_of_another_pair_is_not_taken() -> None:
    """The operator was killed after the notes were written, and before the status was."""
    cluster = retuned()
    kept = content(cluster)
    assert read_status(cluster.status, kept).memory
    assert not read_status(cluster.status, {**kept, "pair": "other"}).memory


def test_a_pair_that_is_left_keeps_its_facts_until_status_names_the_other() -> None:
    cluster = Paired()
    advance(cluster)
    (facts,) = content(cluster)["facts"]
    old = deepcopy(cluster.status)
    cluster.edit(speculator=drawn(DRAFT))
    while "facts" not in content(cluster) or content(cluster)["facts"] == [facts]:
        cluster.tick()
        if ("Job", "demo-inspect") in cluster.children and not cluster.fates:
            cluster.read()
    assert facts in content(cluster)["facts"]
    assert read_status(old, content(cluster)).pair.facts == facts
