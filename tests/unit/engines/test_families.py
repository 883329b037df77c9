"""Readers ask for series that their engines expose, with the labels that they use, as emulator/data tells."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from speculative_lab import emulator
from speculative_operator.domain.observation import PodWindow, Series
from speculative_operator.engines.exposition import parse
from speculative_operator.engines.sglang import reading as sglang
from speculative_operator.engines.tensorrt_llm import reading as tensorrt_llm

HERE = Path(__file__).parent
FAMILIES = Path(emulator.__file__).parent / "data"
READERS = {"sglang": sglang, "tensorrt_llm": tensorrt_llm}
NOW = 1_700_000_100.0


def exposed(engine: str) -> dict[str, tuple[str, set[str]]]:
    """Series -> its kind and labels."""
    found: dict[str, tuple[str, set[str]]] = {}
    with (FAMILIES / f"{engine}_families.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            labels = set(row["labels"].split())
            names = (
                [f"{row['family']}{end}" for end in ("_count", "_sum", "_bucket")]
                if row["buckets"]
                else [row["family"]]
            )
            found |= dict.fromkeys(names, (row["type"], labels))
    return found


@pytest.mark.parametrize("engine", READERS)
def test_every_wanted_series_is_exposed_as_what_it_is_taken_for(engine: str) -> None:
    reader, series = READERS[engine], exposed(engine)
    assert set(reader.read.names) <= set(series)
    for name in reader.read.names:
        assert (series[name][0] == "gauge") is (name in reader.read.need.gauges), name


@pytest.mark.parametrize("engine", READERS)
def test_the_page_tells_of_every_series(engine: str) -> None:
    page = (HERE.parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    stems = {name.removesuffix("_count").removesuffix("_sum").rpartition(":")[2] for name in READERS[engine].read.names}
    assert [stem for stem in stems if stem not in page] == []


def test_labels_that_are_asked_for_exist() -> None:
    assert "mode" in exposed("sglang")[sglang.PASSES][1] & exposed("sglang")[sglang.TOKENS][1]
    assert "pp_rank" in exposed("sglang")[sglang.PASSES][1]
    positions = exposed("tensorrt_llm")
    assert "is_streaming" in exposed("sglang")[sglang.BUCKETS.ttft][1]
    assert "token_position" in positions[tensorrt_llm.DRAFTED][1] & positions[tensorrt_llm.ACCEPTED][1]


def scraped(engine: str) -> Iterator[Series]:
    """The two expositions of data/, 30 s apart, as Prometheus would hold them."""
    texts = [(HERE / "data" / f"{engine}-{place}.txt").read_text(encoding="utf-8") for place in (1, 2)]
    first, second = (parse(text, READERS[engine].read.names) for text in texts)
    assert set(first) <= set(second)
    for key, value in second.items():
        samples = ((NOW - 35, first[key]), (NOW - 5, value)) if key in first else ((NOW - 5, value),)
        yield Series(key.name, {**dict(key.labels), "pod": "pod-0"}, samples)


@pytest.mark.parametrize("engine", READERS)
def test_expositions_in_the_form_of_the_sources_are_read(engine: str) -> None:
    """Eight requests of 101 tokens, 40 request-steps each, K = 4; 20 ms a step, eight at once."""
    found = READERS[engine].read(list(scraped(engine)), ["pod-0"], {}, NOW, 60.0)["pod-0"]
    assert isinstance(found, PodWindow), found
    assert found.decode_request_steps == pytest.approx(320)
    assert found.steps == pytest.approx(40)
    assert found.step_period == pytest.approx(0.02)
    assert found.tokens_per_step == pytest.approx(2.5)
    assert found.generated_tokens == pytest.approx(808)
    assert found.mean_k == pytest.approx(4)
    assert found.prompt_tokens == pytest.approx(800)
    assert found.running == pytest.approx(8)
