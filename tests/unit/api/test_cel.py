"""The subset of CEL that the rules of the API are written in. tests/contract holds it to a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from speculative_operator.api.cel import LONGEST, evaluate, render

OBJECT = {
    "k": 3,
    "name": "a-b",
    "rows": [[1, 4, 2], [5, 8, 0]],
    "labels": {"x": "1", "y/z": "2"},
    "inner": {"on": True},
}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("has(self.inner.on) && !has(self.inner.off)", True),
        ("!has(self.other) || self.other.deep == 1", True),
        ("self.k in [1, self.k] && 'c' in ['a', 'b']", False),
        ("(self.k + 1) * 2 % 5", 3),
        ("self.name.matches('^a-b$') && self.name.startsWith('a')", True),
        ("self.rows.map(r, r[0]).isSorted() && self.rows.exists_one(r, r[2] > 0)", True),
        ("self.rows.all(r, self.rows.exists(q, q[1] + 1 == r[0]) || r[0] == self.rows[0][0])", True),
        ("size(self.rows.filter(r, r[2] == 0)) == 1", True),
        ("self.labels.exists(key, key.startsWith('y/'))", True),
    ],
)
def test_values(expression: str, value: Any) -> None:
    assert evaluate(expression, self=OBJECT) == value


def test_a_line_end_is_part_of_the_text() -> None:
    assert not evaluate("self.matches('^a$')", self="a\n")


def test_messages_have_values_in_place_and_cut_long_ones() -> None:
    assert render('name is "{self.name}", K {#self.k}', self=OBJECT) == 'name is "a-b", K 3'
    assert len(render("{self.name}", self={"name": "a" * 5000})) == LONGEST


@pytest.mark.parametrize("broken", ["self.k ==", "self.k )", "(self.k", "self.rows[0"])
def test_what_is_not_cel_is_an_error(broken: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        evaluate(broken, self=OBJECT)
