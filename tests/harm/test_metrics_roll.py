"""One series, `speculative_payload_info` with live="false", had the pods of another namespace replaced a minute later:
figures alone decided it, for good."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.reconcile.reporting import MINE, tell
from tests.unit.reconcile.worlds import settled

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Speculation
from speculative_operator.reconcile.observed.running_engine import AS_IN_SPEC
from speculative_operator.reconcile.report.engine_report import CERTAIN_SECONDS, acceptance

FOREVER = 3 * CERTAIN_SECONDS


def test_figures_alone_never_replace_a_pod() -> None:
    cluster = settled(spec=MINE)
    assert tell(cluster, FOREVER) == []
    cluster.forget()
    assert tell(cluster, FOREVER) == []
    assert cluster.templates == 1
    assert cluster.status["speculation"]["actuator"] == "Live"
    (warning,) = cluster.status["warnings"]
    assert warning["reason"] == Reason.ENGINE_VERSION_DIFFERS
    for word in ("kubectl annotate specdep demo", acceptance("0.34.1"), AS_IN_SPEC):
        assert word in warning["message"]


def test_no_table_is_decided_for_pods_that_read_none() -> None:
    """Nor is anything learned under a table that is not in force."""
    cluster = settled(spec=replace(MINE, speculation=Speculation()))
    assert tell(cluster, 10 * FOREVER) == []
    assert cluster.condition("SpeculationActive")["reason"] == Reason.TABLE_NOT_IN_FORCE


@pytest.mark.parametrize("value", ["now", "v0.2.0", "engine-0.32.0", acceptance("0.24.0"), AS_IN_SPEC])
def test_an_annotation_for_something_else_accepts_nothing(value: str) -> None:
    """Such as one set on every object to have an upgrade carried out."""
    cluster = settled(spec=MINE)
    tell(cluster, FOREVER)
    cluster.edit(adopt=value)
    tell(cluster, FOREVER)
    assert cluster.templates == 1


def test_what_was_accepted_can_be_taken_back() -> None:
    cluster = settled(spec=MINE)
    tell(cluster, CERTAIN_SECONDS + 10.0)
    cluster.edit(adopt=acceptance("0.34.1"))
    tell(cluster, 10.0)
    cluster.tick()
    cluster.roll()
    assert cluster.status["speculation"]["actuator"] == "Table"
    cluster.edit(adopt="something-else")
    cluster.settle()
    assert cluster.status["speculation"]["actuator"] == "Table", "an upgrade adopted later takes nothing back"
    cluster.edit(adopt=AS_IN_SPEC)
    cluster.tick()
    cluster.tick()
    cluster.roll()
    assert cluster.status["speculation"]["actuator"] == "Live"
    tell(cluster, FOREVER)
    assert cluster.status["speculation"]["actuator"] == "Live"


@pytest.mark.parametrize("version", ["0.24.0`; rm -rf ~; `", "$(reboot)", "", "a b", "x;y", "\n"])
def test_what_a_pod_reports_never_becomes_a_command(version: str) -> None:
    """The warning holds a command to copy."""
    cluster = settled(spec=MINE)
    tell(cluster, FOREVER, version=version)
    for warning in cluster.status.get("warnings", []):
        command = warning["message"].partition("`kubectl")[2].partition("`")[0]
        assert command.endswith("adopt=engine-unknown")
