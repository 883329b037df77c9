"""Values reach the manifest as they are, whatever they hold."""

from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import StrictUndefined

from speculative_operator.render import RenderError, environment
from speculative_operator.render.environment import plain, render_manifest

TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)
NASTY = [
    '"', "'", "\\", "\\u0041", "\\ud83d\\ude00", "😀", "\\😀", "a: b", "- x", "#", "&a", "*a", "!!int 1", "{{ x }}",
    "{% if %}", "%", "@", "`", "yes", "no", "null", "~", "1e3", "0x1f", "1_000", "12:30:45", "2024-01-01", "=", "<<",
    "\x00", "\x07", "\x1b", "\x7f", "\x85", "\xa0", "\u2028", "\u2029", "\ufeff", "\ufffe", "\uffff", "\U0010ffff",
    "\n", "\r\n", "\t", " lead", "trail ", "", "|", ">", "---", "...", "$(HOME)", "x" * 5000,
]  # fmt: skip


def through_template(value: Any) -> Any:
    values = {"name": "x", "namespace": "y", "labels": {}, "owner": {}, "immutable": False}
    return render_manifest("configmap", {**values, "data": value})["data"]


def test_nasty_text_comes_back() -> None:
    for text in NASTY:
        assert through_template(text) == text
        assert through_template({text: [text]}) == {text: [text]}


@given(value=JSON)
def test_any_json_comes_back(value: Any) -> None:
    assert through_template(value) == value


def test_mappings_and_tuples_of_any_kind_are_taken() -> None:
    assert through_template(MappingProxyType({"a": (1, 2)})) == {"a": [1, 2]}


def test_what_is_given_is_copied_and_no_manifest_shares_what_is_in_another() -> None:
    value = {"a": [1]}
    first, second = through_template(value), through_template(value)
    first["a"].append(2)
    assert (value, second) == ({"a": [1]}, {"a": [1]})


def test_no_template_holds_what_stands_for_a_value() -> None:
    folder = Path(environment.__file__).parent / "templates"
    assert not [path.name for path in folder.iterdir() if "$" in path.read_text()]


@pytest.mark.parametrize("value", [1.5, float("nan"), [1e16], {"a": {"b": float("inf")}}])
def test_floats_are_refused_by_value(value: Any) -> None:
    with pytest.raises(RenderError, match="floating-point"):
        through_template(value)


@pytest.mark.parametrize("value", [{1, 2}, b"x", object()])
def test_what_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(RenderError, match="not JSON"):
        through_template(value)


def test_a_missing_value_is_named() -> None:
    with pytest.raises(RenderError, match="'nowhere'"):
        plain(StrictUndefined(name="nowhere"))


@pytest.mark.parametrize("template", ["deployment", "service", "configmap"])
def test_templates_refuse_missing_values(template: str) -> None:
    with pytest.raises(RenderError, match=r"has no value|undefined"):
        render_manifest(template, {})
