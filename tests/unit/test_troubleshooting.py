"""Symptoms of docs/troubleshooting.md are what a reader sees: each condition that it names gets that status and reason
from ticks of the operator, over a cluster in a dictionary."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.cli.test_explain_situations import missing, no_full_window, pods_down, says
from tests.unit.reconcile.pair.test_pair_weights import fetching
from tests.unit.reconcile.paired import FOREIGN, PAIRED, Paired, advance, drawn
from tests.unit.reconcile.report.test_status import up, with_deployment
from tests.unit.reconcile.worlds import Cluster, observed, settled

from speculative_operator.domain.jobs import Purpose
from speculative_operator.domain.observation import Observation
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import EngineSettings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "troubleshooting.md"
CONDITION = re.compile(r"`(\w+)` (True|False|Unknown), ((?:`[^`]+`(?:, | or )?)+)")
DIRECT = "The operator reads them from the pods"
Made = Callable[[pytest.MonkeyPatch], Cluster | Paired]


def stalled(_: pytest.MonkeyPatch) -> Cluster:
    late = {"type": "Progressing", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
    cluster = with_deployment(up(), updatedReplicas=1, conditions=[late])
    cluster.tick()
    return cluster


def waiting(_: pytest.MonkeyPatch) -> Cluster:
    cluster = settled()
    cluster.edit(engine=EngineSettings(args=("--seed=1",)))
    cluster.tick()
    cluster.find_no_node()
    cluster.tick()
    return cluster


def misfit(_: pytest.MonkeyPatch) -> Paired:
    cluster = Paired(spec=replace(PAIRED, speculator=drawn(FOREIGN)))
    advance(cluster)
    return cluster


def full(_: pytest.MonkeyPatch) -> Paired:
    cluster = fetching()
    cluster.fails(Purpose.FETCH, "CacheFull", "17.2 GB are needed, 3.1 GB are free")
    cluster.tick()
    return cluster


def refused(reason: Reason) -> Made:
    def make(_: pytest.MonkeyPatch) -> Paired:
        cluster = Paired(spec=PAIRED)
        cluster.tick()
        cluster.fails(Purpose.INSPECT, reason.value, "the hub refuses")
        cluster.tick()
        return cluster

    return make


def paused(_: pytest.MonkeyPatch) -> Cluster:
    cluster = settled()
    cluster.annotate(paused=True)
    cluster.tick()
    return cluster


def read_directly(_: pytest.MonkeyPatch) -> Cluster:
    cluster = settled()
    for _round in range(2):
        seen = observed(cluster)
        cluster.tick(Observation(cluster.now, seen.pods, direct="it is unreachable"))
    return cluster


SITUATIONS: dict[tuple[str, str, str], Made] = {
    ("PairCompatible", "False", "PairMismatch"): misfit,
    ("Ready", "False", "SourceUnauthorized"): refused(Reason.SOURCE_UNAUTHORIZED),
    ("Ready", "False", "SourceNotFound"): refused(Reason.SOURCE_NOT_FOUND),
    ("WeightsReady", "False", "CacheFull"): full,
    ("Ready", "False", "PodsNotReady"): pods_down,
    ("RolloutHealthy", "False", "RolloutWaits"): waiting,
    ("RolloutHealthy", "False", "RolloutStalled"): stalled,
    ("MetricsAvailable", "False", "PrometheusError"): missing(Reason.PROMETHEUS_ERROR, "HTTP 503"),
    ("MetricsAvailable", "False", "PrometheusTimeout"): missing(Reason.PROMETHEUS_TIMEOUT, "no answer"),
    ("MetricsAvailable", "False", "MetricsMissing"): missing(Reason.METRICS_MISSING, "no samples"),
    ("MetricsAvailable", "False", "MetricsForeign"): missing(Reason.METRICS_FOREIGN, "another address"),
    ("MetricsAvailable", "True", DIRECT): read_directly,
    ("TuningConverged", "Unknown", "Starting"): no_full_window,
    ("TuningConverged", "Unknown", "Holding"): missing(Reason.IDLE, "no requests"),
    ("TuningConverged", "Unknown", "CollectingEvidence"): says(Reason.COLLECTING, "12 drafts of 20"),
    ("TuningConverged", "True", "TargetOutOfReach"): says(Reason.TARGET_OUT_OF_REACH, "no K meets 10 ms"),
    ("Progressing", "False", "Paused"): paused,
}


def symptoms() -> set[tuple[str, str, str]]:
    """Condition, status and reason, or words of the message, of each symptom."""
    return {
        (kind, status, word)
        for kind, status, listed in CONDITION.findall(PAGE.read_text())
        for word in re.findall(r"`([^`]+)`", listed)
    }


def test_every_condition_of_the_page_is_tried() -> None:
    assert symptoms() == set(SITUATIONS)


@pytest.mark.parametrize("symptom", SITUATIONS, ids=" ".join)
def test_the_symptom_is_what_a_reader_sees(symptom: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    kind, status, word = symptom
    seen = SITUATIONS[symptom](monkeypatch).condition(kind)
    assert seen["status"] == status
    assert word == seen["reason"] or word in seen["message"], seen


@pytest.mark.parametrize("words", ["image.repository is empty"])
def test_words_of_the_chart_are_on_the_page(words: str) -> None:
    template = PAGE.parents[1] / "charts" / "speculative-operator" / "templates" / "_helpers.tpl"
    assert words in PAGE.read_text()
    assert words in template.read_text()
