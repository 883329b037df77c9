"""The three dashboards: the fleet, one object, the operator. Written by `python -m monitoring`.

Queries aggregate by namespace and name, so that an operator that takes over gives no second line.
"""

from __future__ import annotations

from typing import Any

from monitoring.panels import Dashboard, Panel, Query, variable

OBJECT = "speculative_operator_object"
BY = "by (namespace, name)"
ONE = 'namespace="$namespace", name="$name"'
POD = "$name-((predictor-|kserve-)?[a-z0-9]+-[a-z0-9]{5}|group-[0-9]+)"
"""Pods of one object that serve, by each target. `$name-.+` would match those of NAME-OTHER too."""
PODS = f'namespace="$namespace", pod=~"{POD}"'
NAMED = "{{namespace}}/{{name}}"
TPOT_TARGET, TTFT_TARGET = "spec.speculation.objective.tpotP99", "spec.speculation.objective.ttftP99"


def _most(name: str, selector: str = "") -> Query:
    """A line for each of the twenty objects with the most of a figure."""
    return Query(f"topk(20, max {BY} ({OBJECT}_{name}{selector}))", NAMED)


def _own(name: str, legend: str, selector: str = "", by: str = "", *, needs: str = "") -> Query:
    """A figure of the one object, by the labels `by`."""
    grouped = f" by ({by})" if by else ""
    return Query(f"max{grouped} ({OBJECT}_{name}{{{ONE}{selector}}})", legend, needs)


def _stat(title: str, expr: str, unit: str = "short", *, legend: str = "-", needs: str = "", **more: Any) -> Panel:
    return Panel(title, (Query(expr, legend, needs),), "stat", unit, width=4, **more)


def _column(name: str, selector: str = "") -> Query:
    return Query(f"max {BY} ({OBJECT}_{name}{selector})")


TEXT_OF_LABEL = {"textMode": "name"}
FLEET = Dashboard(
    "speculative-fleet",
    "Speculative decoding: all objects",
    "Every SpeculativeDeployment of this Prometheus.",
    (
        (
            "Now",
            (
                _stat("Objects", f"count(count {BY} ({OBJECT}_info))"),
                _stat("Not ready", f'count(min {BY} ({OBJECT}_condition{{type="Ready"}}) == 0) or vector(0)'),
                _stat("Accelerators in use", f"sum(max {BY} ({OBJECT}_accelerators))"),
                _stat("Tokens per second", f"sum(max {BY} ({OBJECT}_tokens_per_second))"),
                _stat(
                    "Median gain", f'quantile(0.5, max {BY} ({OBJECT}_gain_ratio{{bound="mid"}}))', "percentunit",
                    text="Tokens per second over pods without a speculator.",
                ),
                _stat("Waiting requests", f"sum(max {BY} ({OBJECT}_waiting_requests))"),
            ),
        ),
        (
            "Objects",
            (
                Panel(
                    "Load, K and gain of each object",
                    (
                        _column("load_requests"), _column("load_k"), _column("gain_ratio", '{bound="mid"}'),
                        _column("acceptance_length"), _column("tpot_seconds"), _column("tokens_per_second"),
                    ),
                    "table",
                    width=24,
                    transformations=(
                        {"id": "merge", "options": {}},
                        {
                            "id": "organize",
                            "options": {
                                "excludeByName": {"Time": True},
                                "renameByName": {
                                    "Value #A": "Load", "Value #B": "K", "Value #C": "Gain (ratio)",
                                    "Value #D": "Acceptance length", "Value #E": "TPOT (s)",
                                    "Value #F": "Tokens per second",
                                },
                            },
                        },
                    ),
                ),
                Panel("Tokens per second", (_most("tokens_per_second"),)),
                Panel("Gain", (_most("gain_ratio", '{bound="mid"}'),), unit="percentunit"),
                Panel("Waiting requests", (_most("waiting_requests"),)),
                Panel("Load per replica", (_most("load_requests"),)),
                Panel(
                    "States of speculation",
                    (Query(f"count by (state) (max by (namespace, name, state) ({OBJECT}_state))", "{{state}}"),),
                ),
                Panel(
                    "Decisions per hour",
                    (Query(f"sum by (reason) (increase({OBJECT}_decisions_total[1h]))", "{{reason}}"),),
                ),
            ),
        ),
    ),
)  # fmt: skip
ONE_OBJECT = Dashboard(
    "speculative-object",
    "Speculative decoding: one object",
    "One SpeculativeDeployment: its table, its gain, its latencies and its decisions.",
    (
        (
            "Now",
            (
                _stat(
                    "State", f"max by (state) ({OBJECT}_state{{{ONE}}})", legend="{{state}}", options=TEXT_OF_LABEL
                ),
                _stat("K at the current load", f"max({OBJECT}_load_k{{{ONE}}})"),
                _stat("Gain", f'max({OBJECT}_gain_ratio{{{ONE}, bound="mid"}})', "percentunit"),
                _stat("Acceptance length", f"max({OBJECT}_acceptance_length{{{ONE}}})"),
                _stat("Tokens per second", f"max({OBJECT}_tokens_per_second{{{ONE}}})"),
                _stat(
                    "Cost of 1,000 tokens", f"max({OBJECT}_cost_per_thousand_tokens{{{ONE}}})",
                    needs="spec.accelerator.hourlyCost",
                    text="In the currency of spec.accelerator.hourlyCost; empty without it.",
                ),
            ),
        ),
        (
            "Speculation",
            (
                Panel(
                    "Load and K",
                    (
                        _own("load_requests", "scheduled requests per replica"), _own("load_k", "K"),
                        _own("load_within_target_requests", "load within the target of TPOT", needs=TPOT_TARGET),
                    ),
                ),
                Panel("Table: K by scheduled requests", (_own("k", "{{requests}} requests", by="requests"),)),
                Panel(
                    "Gain and its 80 % interval", (_own("gain_ratio", "{{bound}}, {{basis}}", by="bound, basis"),),
                    unit="percentunit",
                    text="0 is the speed of pods without a speculator.",
                ),
                Panel(
                    "Tokens per verification, by pod",
                    (
                        Query(
                            f"1 + sum by (pod) (rate(vllm:spec_decode_num_accepted_tokens_total{{{PODS}}}[5m]))"
                            f" / sum by (pod) (rate(vllm:spec_decode_num_drafts_total{{{PODS}}}[5m]))",
                            "{{pod}}",
                        ),
                    ),
                    text="Acceptance length as vLLM counts it.",
                ),
                Panel(
                    "Steps per second by K",
                    (
                        Query(
                            f"sum by (k) (rate(speculative_payload_steps_total{{{PODS}}}[5m]))", "K {{k}}"
                        ),
                    ),
                    text="What the engine did, as the plug-in counts it: trials of other K included.",
                ),
                Panel(
                    "Decisions per hour",
                    (Query(f"sum by (reason) (increase({OBJECT}_decisions_total{{{ONE}}}[1h]))", "{{reason}}"),),
                ),
            ),
        ),
        (
            "Latency and load",
            (
                Panel(
                    "Mean latencies", (_own("tpot_seconds", "TPOT"), _own("ttft_seconds", "TTFT")), unit="s",
                ),
                Panel(
                    "P99 of TPOT",
                    (
                        _own("p99_seconds", "{{bound}}", ', latency="tpot"', "bound"),
                        _own("target_seconds", "target", ', latency="tpot"', needs=TPOT_TARGET),
                    ),
                    unit="s",
                    text="The P99 lies between both lines: histograms tell only the bucket.",
                ),
                Panel(
                    "P99 of TTFT",
                    (
                        _own("p99_seconds", "{{bound}}", ', latency="ttft"', "bound"),
                        _own("target_seconds", "target", ', latency="ttft"', needs=TTFT_TARGET),
                    ),
                    unit="s",
                ),
                Panel("Requests", (_own("running_requests", "running"), _own("waiting_requests", "waiting"))),
                Panel("Tokens per second", (_own("tokens_per_second", "tokens per second"),)),
                Panel("KV cache of the fullest pod", (_own("kv_cache_usage_ratio", "in use"),), unit="percentunit"),
                Panel("Replicas", (_own("replicas", "{{state}}", by="state"),)),
                Panel(
                    "Conditions",
                    (_own("condition", "{{type}}: {{reason}}", by="type, reason"),),
                    "state-timeline",
                    width=16,
                    text="1: True, 0: False; Unknown has no line.",
                ),
            ),
        ),
    ),
    (
        variable("namespace", "Namespace", f"label_values({OBJECT}_info, namespace)"),
        variable("name", "Object", f'label_values({OBJECT}_info{{namespace="$namespace"}}, name)'),
    ),
)  # fmt: skip


def _rate(name: str, by: str, legend: str) -> Query:
    return Query(f"sum by ({by}) (rate(speculative_operator_{name}[5m]))", legend)


def _p99(name: str, by: str, legend: str) -> Query:
    return Query(f"histogram_quantile(0.99, sum by ({by}) (rate(speculative_operator_{name}_bucket[5m])))", legend)


def _of_process(name: str) -> Query:
    return Query(f"{name} and on (instance, job) speculative_operator_build_info", "{{instance}}")


OPERATOR = Dashboard(
    "speculative-operator",
    "Speculative decoding: the operator",
    "speculative-operator itself: what it does, what it costs, and what stands in its way.",
    (
        (
            "Now",
            (
                _stat("Leaders", "sum(speculative_operator_leader)", text="1 when all is well."),
                _stat("Objects", "max(speculative_operator_objects)"),
                _stat("Waiting for a reconcile", "sum(speculative_operator_queue_depth)"),
                _stat("Kinds that cannot be watched", "sum(speculative_operator_unwatched) or vector(0)"),
                _stat("Own rows of the catalogue", "max(speculative_operator_catalogue_own_rows)"),
                _stat(
                    "Version", "max by (version) (speculative_operator_build_info)", legend="{{version}}",
                    options=TEXT_OF_LABEL,
                ),
            ),
        ),
        (
            "Work",
            (
                Panel("Reconciles per second", (_rate("ticks_total", "outcome", "{{outcome}}"),), unit="ops"),
                Panel(
                    "P99 of a reconcile, by phase", (_p99("tick_phase_seconds", "le, phase", "{{phase}}"),), unit="s"
                ),
                Panel(
                    "Changes made in the cluster", (_rate("actions_total", "action, kind", "{{action}} {{kind}}"),),
                    unit="ops",
                ),
                Panel("Decisions", (_rate("decisions_total", "reason", "{{reason}}"),), unit="ops"),
                Panel("Events", (_rate("events_total", "type, reason", "{{type}} {{reason}}"),), unit="ops"),
                Panel("Objects without metrics", (_rate("gaps_total", "reason", "{{reason}}"),), unit="ops"),
            ),
        ),
        (
            "What it asks, and costs",
            (
                Panel(
                    "Requests to the API server", (_rate("api_requests_total", "verb, code", "{{verb}} {{code}}"),),
                    unit="reqps",
                ),
                Panel("P99 of a request to the API server", (_p99("api_request_seconds", "le, verb", "{{verb}}"),),
                      unit="s"),
                Panel("P99 of a query to Prometheus", (_p99("prometheus_query_seconds", "le", "query"),), unit="s"),
                Panel(
                    "Age of the last event, by kind",
                    (Query("max by (kind) (speculative_operator_watch_age_seconds)", "{{kind}}"),),
                    unit="s",
                    text="Kinds that nobody changes are old without any fault.",
                ),
                Panel("Memory", (_of_process("process_resident_memory_bytes"),), unit="bytes"),
                Panel("CPU", (_of_process("rate(process_cpu_seconds_total[5m])"),), unit="none"),
            ),
        ),
    ),
)  # fmt: skip
DASHBOARDS = {"fleet": FLEET, "object": ONE_OBJECT, "operator": OPERATOR}
"""By the name of the file."""
