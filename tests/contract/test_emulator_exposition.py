"""The emulator's /metrics against the recorded exposition of a real vLLM 0.32.0: names, labels, buckets, help."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from tests.unit.emulator.building import Run, configured, speculation
from tests.unit.engines.building import SMALL_QWEN, spec

from speculative_operator.domain.observation import PodWindow, Series
from speculative_operator.domain.spec import Method
from speculative_operator.engines.registry import engine_for

BUNDLED = resources.files("speculative_lab.emulator").joinpath("data", "vllm_metric_families.csv")
ROWS = list(csv.DictReader(BUNDLED.read_text(encoding="utf-8").splitlines()))
RECORDED_LIMIT = ("--max-model-len", "1024")
"""Token-count buckets follow it; the record was taken at 1024."""


def exposed(run: Run) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(run.metrics)
    return generate_latest(registry).decode()


@pytest.fixture(scope="module")
def loaded() -> Run:
    """An engine with K = 4 that served for a while, with waiting and aborted requests."""
    run = Run(configured(*RECORDED_LIMIT, "--max-num-seqs", "8", *speculation(4)))
    run.closed_loop(12, 5.0, prompt=50, output=40)
    return run


@pytest.fixture(scope="module")
def samples(loaded: Run) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(exposed(loaded)):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["family"])
def test_family(row: Mapping[str, str], loaded: Run, samples: Mapping[str, list[Sample]]) -> None:
    name, text = row["family"], exposed(loaded)
    assert f"# HELP {name} {row['help']}\n" in text
    assert f"# TYPE {name} {row['type']}\n" in text
    labels = set(row["labels"].split())
    main = samples[f"{name}_count" if row["type"] == "histogram" else name]
    assert {frozenset(sample.labels) for sample in main} == {frozenset(labels)}
    if row["label_values"]:
        label, _, values = row["label_values"].partition("=")
        assert [sample.labels[label] for sample in main] == values.split("|")
    if row["type"] == "histogram":
        buckets = samples[f"{name}_bucket"]
        assert [bucket.labels["le"] for bucket in buckets] == row["buckets"].split()
        assert [bucket.value for bucket in buckets] == sorted(bucket.value for bucket in buckets)
        assert buckets[-1].value == main[0].value


@pytest.mark.parametrize("row", [row for row in ROWS if row["type"] != "gauge"], ids=lambda row: row["family"])
def test_created_twins_are_gauges_of_their_own(row: Mapping[str, str], loaded: Run) -> None:
    twin = row["family"].removesuffix("_total") if row["type"] == "counter" else row["family"]
    assert f"# TYPE {twin}_created gauge\n" in exposed(loaded)


def test_nothing_else_is_exposed(samples: Mapping[str, list[Sample]]) -> None:
    names = {row["family"] for row in ROWS}
    for name in samples:
        assert any(
            name == known or name.removesuffix("_created") in (known, known.removesuffix("_total"))
            or (name.rpartition("_")[0] == known and name.rpartition("_")[2] in ("bucket", "count", "sum"))
            for known in names
        ), name  # fmt: skip


def test_speculation_series_are_absent_without_speculation_and_nothing_else_changes() -> None:
    with_it, without = (
        {family.name: family.type for family in text_string_to_metric_families(exposed(Run(configured(*flags))))}
        for flags in (speculation(4), ())
    )
    gone = {name for name in with_it if name not in without}
    assert gone == {name for name in with_it if "spec_decode" in name}
    assert len({name for name in gone if not name.endswith("_created")}) == 4
    assert without.items() <= with_it.items()


def test_what_prometheus_asks_for_is_well_formed(loaded: Run) -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(loaded.metrics)
    encode, content_type = choose_encoder("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5")
    families = list(parse_openmetrics(encode(registry).decode()))  # type: ignore[no-untyped-call]  # library
    assert content_type.startswith("application/openmetrics-text")
    assert len(families) == 43
    assert all(family.name.startswith("vllm:") for family in families)


def test_the_operator_s_reader_sees_what_happened() -> None:
    """Two scrapes through the adapter's reader give the exact window, K and acceptance included."""
    run = Run(configured(*speculation(3)))
    run.closed_loop(16, 5.0)
    first, before = _series(run, 1000.0), run.count("generation_tokens")
    steps = len(run.results)
    for _ in range(200):
        for _ended in run.step().finished:
            run.add()
    second = _series(run, 1010.0)
    joined = [
        replace(series, samples=(*series.samples, *later.samples)) for series, later in zip(first, second, strict=True)
    ]
    engine = engine_for(spec(Method.DRAFT_MODEL, source=SMALL_QWEN))
    window = engine.read(joined, {"pod-0"}, {}, 1011.0, 60.0)["pod-0"]
    assert isinstance(window, PodWindow), window
    assert window.generated_tokens == run.count("generation_tokens") - before
    assert window.steps == len(run.results) - steps
    assert window.mean_k == pytest.approx(3.0)
    assert window.batch == pytest.approx(15.9, abs=0.3)
    assert window.tokens_per_step == pytest.approx(2.4, abs=0.25)
    seconds = sum(result.seconds for result in run.results[steps:])
    assert window.step_period == pytest.approx(seconds / 200, rel=0.02)


def _series(run: Run, when: float) -> list[Series]:
    extra = {"pod": "pod-0", "namespace": "models"}
    return [
        Series(sample.name, {**sample.labels, **extra}, ((when, sample.value),))
        for family in text_string_to_metric_families(exposed(run))
        for sample in family.samples
    ]
