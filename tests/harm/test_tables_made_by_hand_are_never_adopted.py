"""Harm: an annotation or a ConfigMap written by hand steers what pods draft, or makes versions that none can follow."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.reconcile.worlds import SPEC, Cluster, restart, settled

from speculative_operator.domain import names
from speculative_operator.domain.spec import OffPolicy, Speculation
from speculative_operator.domain.table import KTable
from speculative_operator.render import table_config
from speculative_operator.render.values import table_digest

REMOVABLE = replace(SPEC, speculation=Speculation(off_policy=OffPolicy.REMOVE))
SPECS = {"live": SPEC, "removable": REMOVABLE, "rollout": restart()}


def annotate(cluster: Cluster, content: Any) -> None:
    written = content if isinstance(content, str) else json.dumps(content)
    annotations = cluster.children["Deployment", "demo"]["metadata"]["annotations"]
    annotations[names.ANNOTATION_TABLE] = written
    cluster.forget()


def digested(version: int, k: int, removed: bool = False) -> dict[str, Any]:
    """As a Deployment bears it that we have rendered."""
    table = KTable.constant(k, 256)
    mark = table_digest(SPEC.uid, table, version, removed=removed)
    return {"version": version, "rows": table.rows(), "digest": mark} | ({"speculatorRemoved": True} if removed else {})


def stays(cluster: Cluster) -> None:
    before = deepcopy(cluster.status["speculation"])
    for _ in range(3):
        cluster.tick()
    after = cluster.status["speculation"]
    assert (after["table"], after["tableVersion"]) == (before["table"], before["tableVersion"])


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("version", [2, 9, 2**31, 2**62, 2**63 - 1, 2**63, 10**30])
@pytest.mark.parametrize("removed", [False, True])
def test_an_annotation_written_by_hand_never_counts(spec: Any, version: int, removed: bool) -> None:
    cluster = settled(spec=spec)
    annotate(cluster, {"version": version, "rows": [[1, 256, 2]], "speculatorRemoved": removed})
    stays(cluster)


@pytest.mark.parametrize("change", [{"rows": [[1, 256, 2]]}, {"version": 9}, {"speculatorRemoved": True}])
def test_our_own_annotation_edited_by_hand_never_counts(change: dict[str, Any]) -> None:
    cluster = settled(spec=restart(REMOVABLE))
    annotate(cluster, digested(2, 4) | change)
    stays(cluster)


def test_an_annotation_of_another_object_never_counts() -> None:
    cluster = settled(spec=replace(restart(), uid="uid-2"))
    annotate(cluster, digested(2, 4))
    stays(cluster)


def test_where_pods_re_read_their_table_the_deployment_never_says_which() -> None:
    cluster = settled()
    annotate(cluster, digested(2, 2))
    stays(cluster)


@pytest.mark.parametrize("version", [66, 1000, 2**31, 2**62, 2**63 - 1])
def test_versions_never_jump(version: int) -> None:
    """Not even with a digest, or as our ConfigMap: an operator that is killed loses one or two."""
    cluster = settled(spec=restart())
    annotate(cluster, digested(version, 4))
    stays(cluster)
    live = settled()
    kind, name = live.config("table")
    forged = table_config(live.spec, name, KTable.constant(2, 256), version)
    live.children[kind, name] |= {"data": forged["data"]}
    live.children[kind, name]["metadata"]["annotations"] = forged["metadata"]["annotations"]
    live.forget()
    stays(live)


@pytest.mark.parametrize("more", [{}, {"notes": "of somebody"}])
def test_a_config_map_with_more_in_it_than_we_render_never_counts(more: dict[str, str]) -> None:
    """Whoever adds to it has had it in hands: then nothing in it is taken for ours. Without that it is ours."""
    live = settled()
    kind, name = live.config("table")
    forged = table_config(live.spec, name, KTable.constant(2, 256), 2)
    live.children[kind, name] |= {"data": {**forged["data"], **more}}
    live.children[kind, name]["metadata"]["annotations"] = forged["metadata"]["annotations"]
    live.forget()
    before = live.status["speculation"]["table"]
    live.tick()
    assert (live.status["speculation"]["table"] == before) is bool(more)


def test_what_we_have_rendered_counts() -> None:
    """An operator that was killed between applying it and saying so rolls nothing back."""
    cluster = settled(spec=restart())
    annotate(cluster, digested(2, 4))
    cluster.tick()
    assert cluster.status["speculation"]["tableVersion"] == 2
    assert cluster.status["speculation"]["table"] == [[1, 256, 4]]


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["version", "rows", "speculatorRemoved", "digest"]), inner, max_size=5
    ),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(ANY)
def test_no_annotation_whatsoever_changes_the_table(content: Any) -> None:
    cluster = settled(spec=REMOVABLE)
    annotate(cluster, content)
    before = cluster.status["speculation"]["table"]
    cluster.tick()
    assert cluster.status["speculation"]["table"] == before
