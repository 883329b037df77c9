"""The figures of docs/ show what their numbers say, and the drawings are those of the code."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from figures import concepts
from figures.charts import Chart, Scale, cases, decision_surface, relation
from figures.tables import DOCUMENT, filled, limits, targets


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


def test_a_table_is_filled_between_its_marks_and_nowhere_else() -> None:
    text = "a\n<!-- limits -->\nold\n<!-- /limits -->\nb\n"
    assert filled(text, "limits", "| 1 |") == "a\n<!-- limits -->\n| 1 |\n<!-- /limits -->\nb\n"
    with pytest.raises(ValueError, match="rivals"):
        filled(text, "rivals", "")


def test_limits_that_cost_nothing_are_told_in_the_mean_only() -> None:
    table = limits({"burst": {"late": 0.5, "few": -0.1}, "moe": {"late": 0.01, "few": 0.0}})
    assert "| `burst` | 0.50 | -0.10 |" in table
    assert "moe" not in table
    assert table.endswith("| mean of 2 | 0.26 | 0.00 |")


def test_every_table_has_its_place_in_the_document() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for name in ("targets", "rivals", "scenarios", "ablations", "limits"):
        assert "| only |" in filled(text, name, "| only |")


def test_a_figure_that_was_not_measured_is_a_dash() -> None:
    assert targets({"summary": {"regret_percent": {"mean": 0.75}}}).splitlines()[2:4] == [
        "| mean regret, physics as given | 0.75 | <= 1.5 % |",
        "| worst scenario | - | <= 4 % |",
    ]


@pytest.mark.parametrize("name", concepts.DRAWINGS)
def test_drawings_are_those_of_the_code(name: str) -> None:
    """`PYTHONPATH=dev python -m figures.concepts` writes them."""
    assert (concepts.IMAGES / f"{name}.svg").read_text(encoding="utf-8") == concepts.DRAWINGS[name]()


@pytest.mark.parametrize("draw", [relation, cases])
def test_charts_of_physics_are_those_of_the_code(draw: Callable[[], str]) -> None:
    """`PYTHONPATH=dev python -m figures.charts` writes them."""
    assert (concepts.IMAGES / f"{draw.__name__}.svg").read_text(encoding="utf-8") == draw()
