"""Every alert fires on what it is for and resolves after it, as Prometheus itself evaluates the rules."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster import toolchain
from monitoring.alerts import alerts, groups

OBJECT = '{namespace="models", name="demo"'
CONDITION = f"speculative_operator_object_condition{OBJECT}"


@dataclass(frozen=True)
class Case:
    """Series of one minute per sample in which something goes wrong and later ends."""

    series: dict[str, str]
    fires: int
    """A minute at which the alert fires."""
    early: int
    """A minute at which it is wrong, and too early to tell anybody."""
    resolved: int
    """A minute at which it is over."""
    never: tuple[dict[str, str], ...] = field(default=())
    """Series that look like it and are none, evaluated at `fires`."""


def condition(kind: str, reason: str) -> str:
    return f'{CONDITION}, type="{kind}", reason="{reason}"}}'


def of_object(name: str, *labels: str) -> str:
    return f"speculative_operator_object_{name}{OBJECT}{''.join(f', {label}' for label in labels)}}}"


CASES = {
    "SpeculativeOperatorDown": Case({"speculative_operator_leader{pod='a'}": "1x5 0x30 1x30"}, 20, 8, 40),
    "SpeculativeOperatorStalled": Case(
        {
            "speculative_operator_ticks_total{outcome='quiet'}": "0+6x10 60x60 60+6x30",
            "speculative_operator_objects": "2x120",
        },
        50, 27, 90,
        never=(
            {"speculative_operator_ticks_total{outcome='quiet'}": "60x120", "speculative_operator_objects": "0x120"},
        ),
    ),
    "SpeculativeOperatorFailing": Case(
        {
            "speculative_operator_ticks_total{outcome='failed'}": "0+3x60 180x60",
            "speculative_operator_ticks_total{outcome='quiet'}": "0+6x120",
        },
        40, 8, 100,
        never=(
            {
                "speculative_operator_ticks_total{outcome='failed'}": "0+1x120",
                "speculative_operator_ticks_total{outcome='quiet'}": "0+9x120",
            },
        ),
    ),
    "SpeculativeOperatorKindUnwatched": Case(
        {"speculative_operator_unwatched{resource='pods'}": "0x5 1x30 0x30"}, 25, 10, 50
    ),
    "SpeculativeOperatorCatalogueUnreadable": Case({"speculative_operator_catalogue_bad": "0x5 1x30 0x30"}, 25, 10, 50),
    "SpeculativeDeploymentUnavailable": Case(
        {condition("Available", "PodsNotReady"): "1x5 0x30 1x30"}, 20, 8, 50,
        never=(
            {condition("Available", "ScaledToZero"): "0x60"},
            {condition("Available", "NoPods"): "0x60", condition("Progressing", "Downloading"): "1x60"},
        ),
    ),
    "SpeculativeDeploymentNotReady": Case(
        {condition("Ready", "PairMismatch"): "0x50 _x30", condition("Ready", "AllReady"): "_x51 1x30"}, 40, 20, 60,
        never=({condition("Ready", "Paused"): "0x60"}, {condition("Ready", "Downloading"): "0x60"}),
    ),
    "SpeculativeDeploymentRolloutStalled": Case(
        {
            condition("RolloutHealthy", "RolloutStalled"): "0x20 _x60",
            condition("RolloutHealthy", "RolledOut"): "_x21 1x60",
        },
        10, 3, 40,
    ),
    "SpeculativeDeploymentMetricsMissing": Case(
        {
            condition("MetricsAvailable", "MetricsMissing"): "0x10 _x60",
            condition("MetricsAvailable", "MetricsStale"): "_x11 0x20 _x60",
            condition("MetricsAvailable", "MetricsFound"): "_x33 1x60",
        },
        20, 12, 50,
    ),
    "SpeculativeDeploymentTableNotInForce": Case(
        {
            condition("TuningConverged", "TableNotInForce"): "0x40 _x60",
            condition("TuningConverged", "Tuned"): "_x41 1x60",
        },
        20, 10, 60,
        never=({condition("TuningConverged", "FasterTable"): "0x60"},),
    ),
    "SpeculativeDeploymentSlower": Case(
        {of_object("gain_ratio", 'bound="mid"'): "0.2x5 -0.1x30 0.2x30"}, 25, 10, 50,
        never=(
            {of_object("gain_ratio", 'bound="mid"'): "-0.03x60", of_object("gain_ratio", 'bound="low"'): "-0.5x60"},
        ),
    ),
    "SpeculativeDeploymentTargetMissed": Case(
        {
            of_object("p99_seconds", 'latency="tpot"', 'bound="low"'): "0.01x5 0.03x30 0.01x30",
            of_object("target_seconds", 'latency="tpot"'): "0.025x90",
        },
        25, 10, 50,
        never=(
            {
                of_object("p99_seconds", 'latency="tpot"', 'bound="high"'): "0.05x60",
                of_object("p99_seconds", 'latency="tpot"', 'bound="low"'): "0.01x60",
                of_object("target_seconds", 'latency="tpot"'): "0.025x60",
            },
            {of_object("p99_seconds", 'latency="ttft"', 'bound="low"'): "9x60"},
        ),
    ),
    "SpeculativeDeploymentOverloaded": Case(
        {of_object("waiting_requests"): "0x5 30x30 0x30", of_object("running_requests"): "40x90"}, 25, 10, 50,
        never=({of_object("waiting_requests"): "3x60", of_object("running_requests"): "0x60"},),
    ),
    "SpeculativeDeploymentSpeculatorUnused": Case(
        {of_object("load_k"): "2x30 0x600 2x60", of_object("info", 'mode="Auto"'): "1x800"}, 480, 400, 660,
        never=(
            {of_object("load_k"): "0x800", of_object("info", 'mode="Auto"'): "_x300 1x500"},
            {
                of_object("load_k"): "0x800", of_object("info", 'mode="Auto"'): "1x800",
                of_object("state", 'state="Removed"'): "1x800",
            },
        ),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def promtool() -> Path:
    if toolchain.missing((toolchain.PROMTOOL,)):
        pytest.skip("promtool is not built: `make toolchain` does, once")
    return toolchain.program(toolchain.PROMTOOL)


def test_every_alert_has_a_case() -> None:
    assert set(CASES) == {alert["alert"] for alert in alerts()}


def expected(alert: str, minute: int, firing: bool) -> dict[str, Any]:
    return {
        "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)',
        "eval_time": f"{minute}m",
        "exp_samples": [{"labels": "{}", "value": int(firing)}],
    }


def case_of(series: dict[str, str], *expressions: dict[str, Any]) -> dict[str, Any]:
    given = [{"series": name, "values": values} for name, values in series.items()]
    return {"interval": "1m", "input_series": given, "promql_expr_test": list(expressions)}


@pytest.mark.parametrize("name", sorted(CASES))
def test_an_alert_fires_in_time_and_resolves(name: str, promtool: Path, tmp_path: Path) -> None:
    case = CASES[name]
    tests = [case_of(case.series, expected(name, case.early, False), expected(name, case.fires, True),
                     expected(name, case.resolved, False))]  # fmt: skip
    tests += [case_of(series, expected(name, case.fires, False)) for series in case.never]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(groups()))
    file = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(file))
    for command in (["check", "rules", "--lint=all", "rules.yaml"], ["test", "rules", "tests.yaml"]):
        done = subprocess.run([promtool, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: str(alert["alert"]))
def test_texts_name_labels_that_the_alert_has(alert: dict[str, Any]) -> None:
    """Each aggregates, so that a reason which changes does not begin the wait anew."""
    by = re.findall(r"\bby \(([a-z, ]*)\)", alert["expr"])
    kept = set(by[0].split(", ")) if by else set()
    assert set(re.findall(r"\$labels\.(\w+)", "".join(alert["annotations"].values()))) <= kept
    assert kept or re.search(r"\b(sum|max)\(", alert["expr"])
