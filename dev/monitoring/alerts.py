"""The alerts on the operator's metrics: a rules file of Prometheus in the chart, kept by hand.

docs/alerts.md says for each what to do; tests/contract/test_alerts.py has promtool fire and resolve each.
"""

from __future__ import annotations

from typing import Any

import yaml

from generate.__main__ import CHART, ROOT

PAGE = "docs/alerts.md"


def groups() -> dict[str, Any]:
    """The content of the rules file; also `spec` of a PrometheusRule."""
    found: dict[str, Any] = yaml.safe_load((ROOT / CHART / "files" / "alerts.yaml").read_text(encoding="utf-8"))
    return found


def alerts() -> list[dict[str, Any]]:
    """Every rule, in the file's order."""
    return [rule for group in groups()["groups"] for rule in group["rules"]]
