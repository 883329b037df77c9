"""The reader of wanted lines agrees with prometheus_client's on everything that both understand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.emulator.building import Run, configured, speculation

from speculative_operator.engines.exposition import ExpositionError, SeriesKey, parse
from speculative_operator.engines.vllm.reading import METRIC_NAMES

NAMES = ("vllm:a_total", "vllm:b", "plain")


def reference(text: str) -> dict[SeriesKey, float]:
    """What prometheus_client reads, for the wanted names."""
    found: dict[SeriesKey, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in NAMES:
                found[SeriesKey(sample.name, tuple(sorted(sample.labels.items())))] = float(sample.value)
    return found


def same(left: dict[SeriesKey, float], right: dict[SeriesKey, float]) -> bool:
    return left.keys() == right.keys() and all(
        left[key] == right[key] or (math.isnan(left[key]) and math.isnan(right[key])) for key in left
    )


_names = st.sampled_from([*NAMES, "vllm:a", "vllm:b_total", "other"])
_labels = st.dictionaries(
    st.sampled_from(["engine", "model_name", "le"]),
    st.text(st.sampled_from('ab}{ ,="\\\n#0'), max_size=6),
    max_size=3,
)
_values = st.one_of(
    st.floats().map(repr),
    st.integers().map(str),
    st.sampled_from(["+Inf", "-Inf", "NaN", "1e3", "0x1", "1_0", "", "abc", "5 1700000000", "5 # {a=\"b\"} 1", "5\t6"]),
)  # fmt: skip
_spaces = st.sampled_from(["", " ", "\t", "  "])


@st.composite
def lines(draw: st.DrawFn) -> str:
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.sampled_from(["", "# HELP plain some text 5", "# vllm:b 5", "   ", "#", "\r"]))
    if kind == 1:
        return draw(st.text(st.sampled_from('vllm:b{}="\\ 015,#\t'), max_size=20))
    escaped = {
        key: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        for key, value in draw(_labels).items()
    }
    inner = ",".join(f'{key}="{value}"' for key, value in escaped.items())
    name = draw(_names)
    if kind == 2:
        return f'{{"{name}"{"," if inner else ""}{inner}}} {draw(_values)}'
    braces = f"{{{inner}}}" if inner or draw(st.booleans()) else ""
    return f"{draw(_spaces)}{name}{draw(_spaces)}{braces}{draw(_spaces) or ' '}{draw(_values)}{draw(_spaces)}"


@given(st.lists(lines(), max_size=6))
def test_agrees_with_prometheus_client(texts: list[str]) -> None:
    """Line by line, and all lines that are read by themselves together."""
    whole, good = dict[SeriesKey, float](), list[str]()
    for line in texts:
        try:
            expected: dict[SeriesKey, float] | None = reference(line)
        except (ValueError, IndexError, OverflowError):
            expected = None
        try:
            found = parse(line, NAMES)
        except ExpositionError:
            assert expected is None, "prometheus_client reads it"
        else:
            assert expected is None or same(found, expected)
            if not found.keys() & whole.keys():
                whole |= found
                good.append(line)
    assert same(parse("\n".join(good), NAMES), whole)


def test_whole_exposition_of_the_engine_agrees() -> None:
    text = exposition()
    wanted = {
        SeriesKey(sample.name, tuple(sorted(sample.labels.items()))): float(sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in METRIC_NAMES
    }
    assert len(wanted) > 25
    assert parse(text, METRIC_NAMES) == wanted


def test_values_are_kept_as_written() -> None:
    text = 'vllm:b{x="1"} NaN\nvllm:b{x="2"} -Inf\nvllm:b{x="3"} -5\nplain 1e400\nvllm:a_total{x="} 7"} 3 1700000000\n'
    found = {key: repr(value) for key, value in parse(text, NAMES).items()}
    assert found == {
        SeriesKey("vllm:b", (("x", "1"),)): "nan",
        SeriesKey("vllm:b", (("x", "2"),)): "-inf",
        SeriesKey("vllm:b", (("x", "3"),)): "-5.0",
        SeriesKey("plain", ()): "inf",
        SeriesKey("vllm:a_total", (("x", "} 7"),)): "3.0",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('vllm:b{x="1} 5', "not a sample"),
        ('vllm:b{x="1"}', "not a sample"),
        ("vllm:b five", "not a sample"),
        ("vllm:b 1_0", "not a sample"),
        ('vllm:b{x="1"} 1\nvllm:b{x="1"} 2', "two values of one series"),
        ('vllm:b{x="1",y="2"} 1\nvllm:b{y="2",x="1"} 2', "two values of one series"),
        ("vllm:b " + "x" * 500, "not a sample: vllm:b x"),
    ],
)
def test_broken_lines_are_quoted(text: str, said: str) -> None:
    with pytest.raises(ExpositionError, match=said) as caught:
        parse(text, NAMES)
    assert len(str(caught.value)) < 200


def test_broken_lines_of_others_are_passed_over() -> None:
    assert parse('other{x="1} oops\nplain 4\n', NAMES) == {SeriesKey("plain", ()): 4.0}


def exposition() -> str:
    """All 43 families of a vLLM 0.32.0 that speculates."""
    registry = CollectorRegistry()
    registry.register(Run(configured(*speculation(8))).metrics)
    return generate_latest(registry).decode()


@pytest.mark.parametrize("line", ["plain " + "9" * 400, 'plain{a="' + "x" * 8192 + '"} 1'])
def test_a_page_that_would_take_too_much_is_an_error_of_that_page(line: str) -> None:
    with pytest.raises(ExpositionError):
        parse(f"vllm:b 1\n{line}\n", NAMES)
