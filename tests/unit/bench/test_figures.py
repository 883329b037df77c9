"""The figures of docs/ show what their numbers say, and the drawings are those of the code."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from figures.charts import IMAGES, Chart, Scale, cases, decision_surface, relation


@pytest.mark.parametrize(("log", "middle"), [(False, 50.5), (True, 10.0)])
def test_a_scale_has_its_middle_where_it_says(log: bool, middle: float) -> None:
    assert Scale(1.0, 100.0, 60.0, 560.0, log)(middle) == pytest.approx(310.0)


def test_a_box_stands_upright_whichever_way_the_axis_runs() -> None:
    chart = Chart(Scale(0, 10, 0, 100), Scale(0, 10, 200, 100))
    chart.box((1, 2), (3, 6), "red")
    assert 'x="10.0" y="140.0" width="20.0" height="40.0"' in chart.svg()


def test_the_surface_drafts_more_where_more_is_accepted() -> None:
    drawn = decision_surface()
    assert "#1e3a8a" in drawn
    assert "#dbeafe" in drawn


@pytest.mark.parametrize("draw", [relation, cases])
def test_charts_of_physics_are_those_of_the_code(draw: Callable[[], str]) -> None:
    """`PYTHONPATH=dev python -m figures.charts` writes them."""
    assert (IMAGES / f"{draw.__name__}.svg").read_text(encoding="utf-8") == draw()
