"""The tables of docs/engines.md and docs/metrics.md say what the data says."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.engines.building import spec

from speculative_operator.domain.spec import Method
from speculative_operator.engines import engine_for
from speculative_operator.engines.vllm import reading, version
from speculative_operator.engines.vllm.capability import METHODS
from speculative_operator.engines.vllm.plan import plan
from speculative_operator.engines.vllm.user_arguments import OWNED

DOCS = Path(__file__).resolve().parents[3] / "docs"
ENGINES = (DOCS / "engines.md").read_text(encoding="utf-8")
METRICS = (DOCS / "metrics.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("method", [method for method in Method if not METHODS[method].refused])
def test_row_of_each_method(method: Method) -> None:
    subject = spec(method)
    facts, planned, knobs = METHODS[method], plan(subject), engine_for(subject).knobs(subject)
    less = "yes" if planned.runner in facts.follows else "no"
    own = "yes" if facts.needs_source else "no"
    row = (
        f"| `{method}` | {version.show(facts.since)} | {own} | {planned.actuator} | {planned.runner} "
        f"| {less} | {knobs.passes_at_zero:g} |"
    )
    assert row in ENGINES


def test_no_row_too_many() -> None:
    rows = [line for line in ENGINES.splitlines() if line.startswith("| `") and line.count("|") == 8]
    assert len(rows) == sum(not facts.refused for facts in METHODS.values())


def test_every_owned_flag_is_documented() -> None:
    assert [flag for flag in OWNED if flag not in ENGINES] == []


def test_every_series_is_documented() -> None:
    assert [name for name in reading.METRIC_NAMES if name not in METRICS] == []
