"""The three dashboards: the fleet, one object, the operator. Written by `python -m monitoring`.

Queries aggregate by cluster, namespace and name, so that an operator that takes over gives no second line. A click on a
row of the fleet leads to the object, and on a line of a pod to that pod alone.
"""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import stat, statetimeline, table

from monitoring.panels import Annotation, Dashboard, Levels, Panel, Query, Variable, thresholds, words

OBJECT = "speculative_operator_object"
BY = "by (cluster, namespace, name)"
ALL = 'cluster=~"$cluster", namespace=~"$namespace"'
ONE = 'cluster=~"$cluster", namespace="$namespace", name="$name"'
POD = "$name-((predictor-|kserve-)?[a-z0-9]+-[a-z0-9]{5}|group-[0-9]+)"
"""Pods of one object that serve, by each target. `$name-.+` would match those of NAME-OTHER too."""
OWN = f'cluster=~"$cluster", namespace="$namespace", pod=~"{POD}"'
PODS = f'{OWN}, pod=~"$pod"'
"""Those of the object's pods that the reader chose."""
NAMED = "{{namespace}}/{{name}} {{cluster}}"
TPOT_TARGET, TTFT_TARGET = "spec.speculation.objective.tpotP99", "spec.speculation.objective.ttftP99"
CLUSTERS = Variable("cluster", "Cluster", f"{OBJECT}_info", True)
"""A label that a Prometheus of several clusters adds; without it, all is the one choice."""
BOARD = "/d/speculative-object?${datasource:queryparam}&${cluster:queryparam}&${__url_time_range}"
TO_OBJECT, ROW_TO_OBJECT = (
    f"{BOARD}&var-namespace=${{{found}.namespace}}&var-name=${{{found}.name}}"
    for found in ("__field.labels", "__data.fields")
)
TO_POD = f"{BOARD}&${{namespace:queryparam}}&${{name:queryparam}}&var-pod=${{__field.labels.pod}}"
GAIN: Levels = ((None, "red"), (-0.02, "orange"), (0.02, "green"))
"""Slower than without a speculator, the same, faster."""
ZERO: Levels = ((None, "red"), (0.0, "green"))
FULL: Levels = ((None, "green"), (0.8, "orange"), (0.95, "red"))
SOME: Levels = ((None, "green"), (1.0, "orange"), (100.0, "red"))
NONE: Levels = ((None, "green"), (1.0, "red"))
COLOURED = {"custom.cellOptions": {"type": "color-text"}}
STATES = {
    name: {"color": {"mode": "fixed", "fixedColor": colour}}
    for name, colour in (("On", "green"), ("Holding", "orange"), ("Off", "blue"), ("Removed", "purple"))
}


def _most(name: str, selector: str = "") -> Query:
    """A line for each of the twenty objects with the most of a figure."""
    return Query(f"topk(20, max {BY} ({OBJECT}_{name}{{{ALL}{selector}}}))", NAMED)


def _own(name: str, legend: str, selector: str = "", by: str = "", *, needs: str = "") -> Query:
    """A figure of the one object, by the labels `by`."""
    grouped = f" by ({by})" if by else ""
    return Query(f"max{grouped} ({OBJECT}_{name}{{{ONE}{selector}}})", legend, needs)


def _stat(title: str, expr: str, unit: str = "short", *, legend: str = "-", needs: str = "", **more: Any) -> Panel:
    return Panel(title, (Query(expr, legend, needs),), stat.Panel, unit, width=4, **more)


def _column(name: str, selector: str = "") -> Query:
    return Query(f"max {BY} ({OBJECT}_{name}{{{ALL}{selector}}})")


def _of_fleet(title: str, query: Query, **more: Any) -> Panel:
    return Panel(title, (query,), link=TO_OBJECT, **more)


def _per_pod(title: str, expr: str, unit: str = "short", text: str = "", **more: Any) -> Panel:
    """A line for each pod, which leads to the dashboard of that pod alone. `expr`: with PODS for `%s`."""
    return Panel(title, (Query(expr.replace("%s", PODS), "{{pod}}"),), unit=unit, text=text, link=TO_POD, **more)


FLEET = Dashboard(
    "speculative-fleet",
    "Speculative decoding: all objects",
    "Every SpeculativeDeployment of this Prometheus.",
    (
        (
            "Now",
            (
                _stat("Objects", f"count(count {BY} ({OBJECT}_info{{{ALL}}}))"),
                _stat(
                    "Not ready", f'count(min {BY} ({OBJECT}_condition{{{ALL}, type="Ready"}}) == 0) or vector(0)',
                    levels=NONE,
                ),
                _stat("Accelerators in use", f"sum(max {BY} ({OBJECT}_accelerators{{{ALL}}}))"),
                _stat("Tokens per second", f"sum(max {BY} ({OBJECT}_tokens_per_second{{{ALL}}}))"),
                _stat(
                    "Median gain", f'quantile(0.5, max {BY} ({OBJECT}_gain_ratio{{{ALL}, bound="mid"}}))',
                    "percentunit", text="Tokens per second over pods without a speculator.", levels=GAIN,
                ),
                _stat("Waiting requests", f"sum(max {BY} ({OBJECT}_waiting_requests{{{ALL}}}))", levels=SOME),
            ),
        ),
        (
            "Objects",
            (
                Panel(
                    "Batch size, K and gain of each object",
                    (
                        _column("condition", ', type="Ready"'), _column("load_requests"), _column("load_k"),
                        _column("gain_ratio", ', bound="mid"'), _column("acceptance_length"), _column("tpot_seconds"),
                        _column("tokens_per_second"), _column("waiting_requests"),
                    ),
                    table.Panel,
                    text="Click on an object for its dashboard.",
                    width=24,
                    columns={
                        "cluster": "Cluster", "namespace": "Namespace", "name": "Object", "Value #A": "Ready",
                        "Value #B": "Batch size", "Value #C": "K", "Value #D": "Gain", "Value #E": "Acceptance length",
                        "Value #F": "TPOT", "Value #G": "Tokens per second", "Value #H": "Waiting",
                    },
                    fields={
                        "Object": {"links": [{"title": "Open", "url": ROW_TO_OBJECT}]},
                        "Ready": {"mappings": words(_0=("no", "red"), _1=("yes", "green")), **COLOURED},
                        "Gain": {"unit": "percentunit", "thresholds": thresholds(GAIN).build(), **COLOURED},
                        "TPOT": {"unit": "s"}, "Batch size": {"decimals": 0}, "Acceptance length": {"decimals": 2},
                    },
                ),
                _of_fleet("Tokens per second", _most("tokens_per_second")),
                _of_fleet("Gain", _most("gain_ratio", ', bound="mid"'), unit="percentunit"),
                _of_fleet("Waiting requests", _most("waiting_requests")),
                _of_fleet("Batch size per replica", _most("load_requests")),
                Panel(
                    "States of speculation",
                    (Query(f"count by (state) (max by (cluster, namespace, name, state) ({OBJECT}_state{{{ALL}}}))",
                           "{{state}}"),),
                    fields=STATES,
                ),
                Panel(
                    "Decisions per hour",
                    (Query(f"sum by (reason) (increase({OBJECT}_decisions_total{{{ALL}}}[1h]))", "{{reason}}"),),
                ),
            ),
        ),
    ),
    (CLUSTERS, Variable("namespace", "Namespace", f'{OBJECT}_info{{cluster=~"$cluster"}}', True)),
)  # fmt: skip
TOKENS = f"max({OBJECT}_tokens_per_second{{{ONE}}})"
ONE_OBJECT = Dashboard(
    "speculative-object",
    "Speculative decoding: one object",
    "One SpeculativeDeployment: its table, its gain, its latencies, its decisions and its pods.",
    (
        (
            "Now",
            (
                _stat(
                    "State", f"max by (state) ({OBJECT}_state{{{ONE}}})", legend="{{state}}", names=True, fields=STATES
                ),
                _stat("K at the current batch size", f"max({OBJECT}_load_k{{{ONE}}})"),
                _stat("Gain", f'max({OBJECT}_gain_ratio{{{ONE}, bound="mid"}})', "percentunit", levels=GAIN),
                _stat("Acceptance length", f"max({OBJECT}_acceptance_length{{{ONE}}})"),
                _stat("Tokens per second", TOKENS),
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
                    "Tokens per second, with and without the speculator",
                    (
                        Query(TOKENS, "with"),
                        *(
                            Query(f'{TOKENS} / (1 + max({OBJECT}_gain_ratio{{{ONE}, bound="{bound}"}}))', said)
                            for bound, said in (("mid", "without"), ("low", "without, at most"),
                                                ("high", "without, at least"))
                        ),
                    ),
                    text="Without: what is served now, divided by 1 + gain; at most and at least by the gain's 80 % "
                    "interval.",
                    fields={name: {"custom.lineStyle": {"fill": "dash", "dash": [6, 6]}, "custom.lineWidth": 1}
                            for name in ("without, at most", "without, at least")},
                ),
                Panel(
                    "Gain and its 80 % interval", (_own("gain_ratio", "{{bound}}, {{basis}}", by="bound, basis"),),
                    unit="percentunit", text="0 is the speed of pods without a speculator.", levels=ZERO,
                ),
                Panel(
                    "Batch size and K",
                    (
                        _own("load_requests", "scheduled requests per replica"), _own("load_k", "K"),
                        _own("load_within_target_requests", "batch size within the target of TPOT", needs=TPOT_TARGET),
                    ),
                    fields={"K": {"custom.axisPlacement": "right", "custom.axisLabel": "K", "decimals": 0, "min": 0,
                                  "custom.lineInterpolation": "stepAfter"}},
                ),
                Panel(
                    "Table: K by scheduled requests", (_own("k", "{{requests}} requests", by="requests"),),
                    statetimeline.Panel,
                ),
                Panel(
                    "Steps per second by K",
                    (Query(f"sum by (k) (rate(speculative_payload_steps_total{{{OWN}}}[5m]))", "K {{k}}"),),
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
                Panel("Mean latencies", (_own("tpot_seconds", "TPOT"), _own("ttft_seconds", "TTFT")), unit="s"),
                *(
                    Panel(
                        f"P99 of {latency.upper()}",
                        (
                            _own("p99_seconds", "{{bound}}", f', latency="{latency}"', "bound"),
                            _own("target_seconds", "target", f', latency="{latency}"', needs=target),
                        ),
                        unit="s",
                        text="The P99 lies between both lines: histograms tell only the bucket.",
                        fields={"target": {"color": {"mode": "fixed", "fixedColor": "red"}}},
                    )
                    for latency, target in (("tpot", TPOT_TARGET), ("ttft", TTFT_TARGET))
                ),
                Panel("Requests", (_own("running_requests", "running"), _own("waiting_requests", "waiting"))),
                Panel("Replicas", (_own("replicas", "{{state}}", by="state"),)),
                Panel(
                    "Conditions",
                    (_own("condition", "{{type}}: {{reason}}", by="type, reason"),),
                    statetimeline.Panel,
                    text="Unknown has no line.",
                    values=words(_0=("False", "orange"), _1=("True", "green")),
                ),
            ),
        ),
        (
            "Pods",
            (
                _per_pod(
                    "Acceptance length",
                    "1 + sum by (pod) (rate(vllm:spec_decode_num_accepted_tokens_total{%s}[5m]))"
                    " / sum by (pod) (rate(vllm:spec_decode_num_drafts_total{%s}[5m]))",
                    text="Tokens per verification, as vLLM counts them. A click on a line chooses its pod.",
                ),
                _per_pod("Running requests", "sum by (pod) (vllm:num_requests_running{%s})"),
                _per_pod(
                    "KV cache in use", "max by (pod) (vllm:kv_cache_usage_perc{%s})", "percentunit", levels=FULL
                ),
            ),
        ),
    ),
    (
        CLUSTERS,
        Variable("namespace", "Namespace", f'{OBJECT}_info{{cluster=~"$cluster"}}'),
        Variable("name", "Object", f'{OBJECT}_info{{cluster=~"$cluster", namespace="$namespace"}}'),
        Variable("pod", "Pods", f"up{{{OWN}}}", True),
    ),
    (
        Annotation(
            "Decision",
            Query(f"sum by (reason) (increase({OBJECT}_decisions_total{{{ONE}}}[2m])) > bool 0", "{{reason}}"), "blue"
        ),
        Annotation(
            "Rollout", Query(f'max by (reason) ({OBJECT}_condition{{{ONE}, type="Progressing"}})', "{{reason}}"),
            "orange",
        ),
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
                _stat(
                    "Leaders", "sum(speculative_operator_leader)", text="1 when all is well.",
                    values=words(_0=("none", "red")),
                ),
                _stat("Objects", "max(speculative_operator_objects)"),
                _stat("Waiting for a reconcile", "sum(speculative_operator_queue_depth)", levels=SOME),
                _stat("Kinds that cannot be watched", "sum(speculative_operator_unwatched) or vector(0)", levels=NONE),
                _stat("Own rows of the catalogue", "max(speculative_operator_catalogue_own_rows)"),
                _stat(
                    "Version", "max by (version) (speculative_operator_build_info)", legend="{{version}}",
                    names=True,
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
