"""One series, `speculative_payload_info` with live="false", had the pods of another namespace replaced a minute later:
figures alone decided it, for good."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.reconcile.reporting import MINE, tell
from tests.unit.reconcile.worlds import settled

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import Speculation
from speculative_operator.reconcile.report.engine_report import CERTAIN_SECONDS

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


def test_no_table_is_decided_for_pods_that_read_none() -> None:
    """Nor is anything learned under a table that is not in force."""
    cluster = settled(spec=replace(MINE, speculation=Speculation()))
    assert tell(cluster, 10 * FOREVER) == []
    assert cluster.condition("SpeculationActive")["reason"] == Reason.TABLE_NOT_IN_FORCE


@pytest.mark.parametrize("value", ["now", "v0.2.0", "engine-0.34.1", "engine-as-in-spec"])
def test_an_annotation_accepts_nothing_that_pods_report(value: str) -> None:
    """Such as one set on every object to have an upgrade carried out."""
    cluster = settled(spec=MINE)
    tell(cluster, FOREVER)
    cluster.edit(adopt=value)
    tell(cluster, FOREVER)
    assert (cluster.templates, cluster.status["speculation"]["actuator"]) == (1, "Live")


@pytest.mark.parametrize("version", ["0.24.0`; rm -rf ~; `", "$(reboot)", "", "a b", "x;y", "\n"])
def test_what_a_pod_reports_never_becomes_a_command(version: str) -> None:
    """People copy commands from warnings."""
    cluster = settled(spec=MINE)
    tell(cluster, FOREVER, version=version)
    assert "kubectl" not in "".join(one["message"] for one in cluster.status.get("warnings", []))
