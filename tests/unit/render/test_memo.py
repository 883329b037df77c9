"""Remembered renders are renders."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from tests.unit.render.test_manifests import INPUT, SPEC, TEXTS

from speculative_operator.domain.table import KTable
from speculative_operator.render import Capabilities, RenderError, memo, render, render_again

OTHERS = [
    INPUT,
    replace(INPUT, table_version=2),
    replace(INPUT, table=KTable.constant(2, 256)),
    replace(INPUT, owns_replicas=False),
    replace(INPUT, capabilities=Capabilities(pod_monitor=True)),
    replace(INPUT, strategy={"type": "RollingUpdate"}),
    replace(INPUT, spec=replace(SPEC, uid="other")),
    replace(INPUT, spec=replace(SPEC, template={"spec": {"priorityClassName": "gold"}})),
    replace(INPUT, container=replace(INPUT.container, payload={"speculative_scheduler.py": "print('y')\n"})),
]


def test_the_same_as_rendering_the_first_time_and_again() -> None:
    for _ in range(2):
        for other in OTHERS:
            assert render_again(other) == render(other)


@settings(deadline=None, max_examples=20)
@given(text=TEXTS)
def test_any_text_is_remembered_as_it_is(text: str) -> None:
    inp = replace(INPUT, container=replace(INPUT.container, args=(text,)))
    assert render_again(inp) == render_again(inp) == render(inp)


def test_what_a_caller_changes_is_its_own() -> None:
    render_again(INPUT)[0]["metadata"]["name"] = "changed"
    assert render_again(INPUT) == render(INPUT)


def test_errors_come_every_time() -> None:
    bad = replace(INPUT, spec=replace(SPEC, template={"spec": {"containers": [{"image": "x"}]}}))
    for _ in range(2):
        with pytest.raises(RenderError):
            render_again(bad)


def test_the_number_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo, "KEPT", 3)
    for version in range(10, 20):
        render_again(replace(INPUT, table_version=version))
        assert len(memo._results) <= 3
