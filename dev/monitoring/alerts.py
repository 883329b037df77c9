"""Alerts on the operator's metrics, as a rules file of Prometheus. Written by `python -m monitoring`.

docs/alerts.md says for each what to do; tests/contract/test_alerts.py has promtool fire and resolve each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PAGE = "docs/alerts.md"
OBJECT = "by (namespace, name)"
CONDITION = "speculative_operator_object_condition"
AT_WORK = "Downloading|Inspecting"
"""Reasons that may last for long while all goes well."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert. `expr` holds while something is wrong, for `lasting` until it fires."""

    name: str
    expr: str
    lasting: str
    severity: str
    summary: str
    description: str

    def rule(self) -> dict[str, Any]:
        """As in a rules file."""
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.lasting,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook": f"{PAGE}#{self.name.lower()}",
            },
        }


def _false(kind: str, unless: str = "") -> str:
    """True while the condition of an object is False for another reason than `unless`."""
    others = f', reason!~"{unless}"' if unless else ""
    return f'min {OBJECT} ({CONDITION}{{type="{kind}"{others}}}) == 0'


NAMED = "{{ $labels.namespace }}/{{ $labels.name }}"
OPERATOR = (
    Alert(
        "SpeculativeOperatorDown",
        "(sum(speculative_operator_leader) or vector(0)) < 1",
        "10m",
        "warning",
        "No speculative-operator is at work.",
        "No operator pod holds the Lease, or Prometheus does not scrape it. Serving pods go on with their tables; K no "
        "longer follows the load.",
    ),
    Alert(
        "SpeculativeOperatorStalled",
        "sum(increase(speculative_operator_ticks_total[15m])) == 0 and sum(speculative_operator_objects) > 0",
        "5m",
        "warning",
        "speculative-operator reconciles nothing.",
        "There are SpeculativeDeployments, and no reconcile has ended for 15 minutes.",
    ),
    Alert(
        "SpeculativeOperatorFailing",
        'sum(rate(speculative_operator_ticks_total{outcome="failed"}[15m]))'
        " / sum(rate(speculative_operator_ticks_total[15m])) > 0.2",
        "15m",
        "warning",
        "Reconciles of speculative-operator fail.",
        "{{ $value | humanizePercentage }} of the reconciles fail; the operator's log names objects and causes.",
    ),
    Alert(
        "SpeculativeOperatorKindUnwatched",
        "max by (resource) (speculative_operator_unwatched) > 0",
        "15m",
        "warning",
        "speculative-operator cannot watch {{ $labels.resource }}.",
        "The operator lists {{ $labels.resource }} every minute instead: it notices changes late, and costs more.",
    ),
    Alert(
        "SpeculativeOperatorCatalogueUnreadable",
        "max(speculative_operator_catalogue_bad) > 0",
        "15m",
        "warning",
        "speculative-operator cannot read your rows of the catalogue.",
        "The previous rows stay in use for speculator.auto; the operator's log names the row.",
    ),
)
OBJECTS = (
    Alert(
        "SpeculativeDeploymentUnavailable",
        f"{_false('Available', 'ScaledToZero')} unless on (namespace, name) "
        f'{CONDITION}{{type="Progressing", reason=~"{AT_WORK}"}} == 1',
        "10m",
        "critical",
        f"No pod of {NAMED} serves.",
        "The object has had no ready pod for 10 minutes, and nothing is being downloaded for it.",
    ),
    Alert(
        "SpeculativeDeploymentNotReady",
        _false("Ready", f"{AT_WORK}|Paused"),
        "30m",
        "warning",
        f"{NAMED} is not as its spec asks.",
        "The condition Ready has been False for 30 minutes; its message has cause and remedy.",
    ),
    Alert(
        "SpeculativeDeploymentRolloutStalled",
        _false("RolloutHealthy"),
        "5m",
        "warning",
        f"A rollout of {NAMED} makes no progress.",
        "New pods do not become ready; the old ones keep serving.",
    ),
    Alert(
        "SpeculativeDeploymentMetricsMissing",
        _false("MetricsAvailable"),
        "15m",
        "warning",
        f"The tuner has no metrics of {NAMED}.",
        "K no longer follows the load; after ten minutes without metrics the tuner lowers K to what was shown to pay.",
    ),
    Alert(
        "SpeculativeDeploymentTableNotInForce",
        f'min {OBJECT} ({CONDITION}{{type="TuningConverged", reason="TableNotInForce"}}) == 0',
        "15m",
        "warning",
        f"A pod of {NAMED} does not take its table.",
        "A serving pod still runs an older table; the condition TuningConverged names the pod.",
    ),
    Alert(
        "SpeculativeDeploymentSlower",
        f'max {OBJECT} (speculative_operator_object_gain_ratio{{bound="high"}}) < -0.02',
        "15m",
        "warning",
        f"Speculation makes {NAMED} slower.",
        "Even the upper end of the gain's 80 % interval is {{ $value | humanizePercentage }}. In mode Auto the tuner "
        "lowers K by itself within minutes; in Static and Recommend nobody does.",
    ),
    Alert(
        "SpeculativeDeploymentTargetMissed",
        'max by (namespace, name, latency) (speculative_operator_object_p99_seconds{bound="low"})'
        " >= on (namespace, name, latency)"
        " max by (namespace, name, latency) (speculative_operator_object_target_seconds)",
        "15m",
        "warning",
        f"{NAMED} misses its target of {{{{ $labels.latency }}}}.",
        "The P99 has surely been above the target for 15 minutes: at least {{ $value | humanizeDuration }}.",
    ),
    Alert(
        "SpeculativeDeploymentOverloaded",
        f"max {OBJECT} (speculative_operator_object_waiting_requests)"
        f" > 4 + 0.5 * max {OBJECT} (speculative_operator_object_running_requests)",
        "15m",
        "warning",
        f"Requests queue before {NAMED}.",
        "{{ $value | humanize }} requests wait, more than half as many as run: no K makes up for missing replicas.",
    ),
    Alert(
        "SpeculativeDeploymentSpeculatorUnused",
        f"max {OBJECT} (max_over_time(speculative_operator_object_load_k[6h])) == 0"
        ' unless on (namespace, name) speculative_operator_object_state{state="Removed"}'
        " and on (namespace, name) speculative_operator_object_info offset 6h",
        "30m",
        "info",
        f"The speculator of {NAMED} has been idle for 6 hours.",
        "K has been 0 at every load of the last 6 hours, and the speculator still holds memory.",
    ),
)
ALERTS = (*OPERATOR, *OBJECTS)


def groups() -> dict[str, Any]:
    """The content of the rules file; also `spec` of a PrometheusRule."""
    return {"groups": list(_groups())}


def _groups() -> Iterator[dict[str, Any]]:
    for name, alerts in (("speculative-operator", OPERATOR), ("speculative-deployments", OBJECTS)):
        yield {"name": name, "rules": [alert.rule() for alert in alerts]}
