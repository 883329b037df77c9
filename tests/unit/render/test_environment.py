"""Values reach the manifest as they are, whatever they hold."""

from types import MappingProxyType
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import StrictUndefined

from speculative_operator.render import RenderError
from speculative_operator.render.environment import encode, render_manifest

LOADERS = [yaml.SafeLoader, *([yaml.CSafeLoader] if hasattr(yaml, "CSafeLoader") else [])]
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


def through_yaml(value: Any, loader: Any) -> Any:
    return yaml.load(f"a:\n- key: {encode(value)}\n  other: 1\n", Loader=loader)["a"][0]["key"]


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("text", NASTY)
def test_nasty_text_comes_back(text: str, loader: Any) -> None:
    assert through_yaml(text, loader) == text


@pytest.mark.parametrize("loader", LOADERS)
@given(value=JSON)
def test_any_json_comes_back(value: Any, loader: Any) -> None:
    assert through_yaml(value, loader) == value


def test_mappings_and_tuples_of_any_kind_are_taken() -> None:
    assert encode(MappingProxyType({"a": (1, 2)})) == '{"a": [1, 2]}'


@pytest.mark.parametrize("value", [1.5, float("nan"), [1e16], {"a": {"b": float("inf")}}])
def test_floats_are_refused_by_value(value: Any) -> None:
    with pytest.raises(RenderError, match="floating-point"):
        encode(value)


@pytest.mark.parametrize("value", [{1, 2}, b"x", object()])
def test_what_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(RenderError, match="not JSON"):
        encode(value)


def test_half_a_character_is_refused() -> None:
    with pytest.raises(RenderError, match="unpaired surrogate"):
        encode(["\ud83d"])


def test_a_missing_value_is_named() -> None:
    with pytest.raises(RenderError, match="'nowhere'"):
        encode(StrictUndefined(name="nowhere"))


@pytest.mark.parametrize("template", ["deployment", "service", "configmap"])
def test_templates_refuse_missing_values(template: str) -> None:
    with pytest.raises(RenderError, match=r"has no value|undefined"):
        render_manifest(template, {})
