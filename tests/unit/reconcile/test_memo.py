"""What was computed for one object lately is not computed again, and what nobody asks for goes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from tests.unit.reconcile.worlds import SPEC as DEPLOYED
from tests.unit.reconcile.worlds import Cluster
from tests.unit.render.test_manifests import INPUT, SPEC, TEXTS

from speculative_operator.domain.memo import Memo, digest
from speculative_operator.domain.table import KTable
from speculative_operator.reconcile.children import desired
from speculative_operator.reconcile.children.desired import render_again
from speculative_operator.render import Capabilities, RenderError, RenderInput, render

OTHERS = [
    INPUT,
    replace(INPUT, table_version=2),
    replace(INPUT, table=KTable.constant(2, 256)),
    replace(INPUT, owns_replicas=False),
    replace(INPUT, capabilities=Capabilities(pod_monitor=True)),
    replace(INPUT, strategy={"type": "RollingUpdate"}),
    replace(INPUT, spec=replace(SPEC, uid="other")),
    replace(INPUT, spec=replace(SPEC, template={"spec": {"priorityClassName": "gold"}})),
    replace(INPUT, container=replace(INPUT.container, payload=False)),
]


def test_a_result_stays_while_each_reconcile_asks_for_it() -> None:
    memo, computed = Memo(), []

    def compute() -> str:
        computed.append(1)
        return "result"

    for _ in range(5):
        memo.begin()
        assert memo.get(("a", digest(SPEC)), compute) == memo.get(("a", digest(SPEC)), compute) == "result"
    assert len(computed) == 1
    memo.begin()
    memo.begin()
    assert memo.get(("a", digest(SPEC)), compute) == "result"
    assert len(computed) == 2, "two reconciles without it drop it"


def test_a_result_of_nothing_counts_as_one() -> None:
    memo, computed = Memo(), []
    for _ in range(3):
        memo.begin()
        assert memo.get("none", lambda: computed.append(1)) is None
    assert len(computed) == 1


def test_an_object_at_rest_is_rendered_once_in_a_fleet_of_5000(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each object has a memo of its own: the results of 4,999 others displace none of its own."""
    rendered: list[str] = []

    def counted(inp: RenderInput) -> tuple[dict[str, object], ...]:
        rendered.append(inp.spec.name)
        return render(inp)

    cluster = Cluster()
    cluster.settle()
    cluster.look()
    monkeypatch.setattr(desired, "render", counted)
    others = [Memo() for _ in range(4999)]
    for _ in range(2):
        for number, other in enumerate(others):
            other.begin()
            other.get(("render", number), lambda: b"what another object is rendered to")
        assert cluster.look().actions == ()
    assert rendered == [], "at rest nothing is rendered anew"
    cluster.edit(speculation=replace(DEPLOYED.speculation, max_speculative_tokens=3))
    cluster.look()
    assert rendered, "an edit is"


def test_the_same_as_rendering_the_first_time_and_again() -> None:
    memo = Memo()
    for _ in range(2):
        for other in OTHERS:
            assert render_again(other, memo) == render(other)


@settings(deadline=None, max_examples=20)
@given(text=TEXTS)
def test_any_text_comes_back_as_it_is(text: str) -> None:
    inp, memo = replace(INPUT, container=replace(INPUT.container, args=(text,))), Memo()
    assert render_again(inp, memo) == render_again(inp, memo) == render(inp)


def test_what_a_caller_changes_is_its_own() -> None:
    memo = Memo()
    first = render_again(INPUT, memo)[0]
    assert isinstance(first, dict)
    first["metadata"]["name"] = "changed"
    assert render_again(INPUT, memo) == render(INPUT)


def test_errors_come_every_time() -> None:
    bad, memo = replace(INPUT, spec=replace(SPEC, template={"spec": {"containers": [{"image": "x"}]}})), Memo()
    for _ in range(2):
        with pytest.raises(RenderError):
            render_again(bad, memo)
