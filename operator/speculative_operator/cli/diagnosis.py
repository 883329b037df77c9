"""What keeps an object from being ready or tuned, by its status: the one cause that counts, all that is wrong, and
what to do about each reason.

Pure. Used by `explain`, `status`, `get` and `doctor`, so that all of them say the same. `domain.reasons` says what a
reason means; `NEXT` says what the reader can do from a terminal: a command or a field, with {name} and {namespace}
those of the object.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from speculative_operator.cli.cluster import Object, condition, mode, speculation
from speculative_operator.cli.commands import format_age
from speculative_operator.domain.reasons import EXPLANATIONS, ConditionType, Reason, reason_of

_STATUS = "speculative status {name} -n {namespace} -w"
_PODS = "kubectl describe pods -n {namespace} -l serving.speculative.dev/deployment={name}"
_DOCTOR = "speculative doctor"
_EDIT = "kubectl edit speculativedeployment {name} -n {namespace}"
_JOBS = "kubectl get jobs,pods -n {namespace} -l serving.speculative.dev/deployment={name}"
_CHECK = "speculative check FILE"

_METRICS = f"{_DOCTOR}: whether pods export figures, and who scrapes them; docs/troubleshooting.md has other causes"
_WAIT = f"wait: {_STATUS}"

NEXT: dict[Reason, str] = {
    Reason.PODS_NOT_READY: _PODS,
    Reason.START_TIMED_OUT: "kubectl logs -p POD -n {namespace} shows what the engine did; docs/operations.md: budgets",
    Reason.NO_PODS: _DOCTOR,
    Reason.ROLLING_OUT: _WAIT,
    Reason.ROLLOUT_STALLED: _PODS,
    Reason.ROLLOUT_WAITS: f"{_DOCTOR} shows free accelerators; the message has what else you can do",
    Reason.SCALED_TO_ZERO: "set spec.replicas above 0",
    Reason.PAUSED: "speculative resume {name} -n {namespace}",
    Reason.SPEC_INVALID: f"{_EDIT}: the message names field, value and remedy",
    Reason.RENDER_INVALID: f"{_EDIT}: change what the message names, often in spec.template, or the policy of the "
    "cluster that refuses it; speculative render FILE shows the manifests",
    Reason.UNSUPPORTED_BY_ENGINE: f"{_EDIT}: the message has the remedy; docs/engines.md lists what each engine can do",
    Reason.UNSUPPORTED_TARGET: "set spec.target: Deployment",
    Reason.ROUTE_UNSUPPORTED: "install the Gateway API, or remove spec.route",
    Reason.ROUTE_NOT_ACCEPTED: "kubectl describe gateway,httproute -n {namespace}",
    Reason.INFERENCE_SERVICE_NOT_READY: "kubectl describe inferenceservice,llminferenceservice {name} -n {namespace}",
    Reason.UNSUPPORTED_SOURCE: f"{_EDIT}: the message has the remedy",
    Reason.NAME_CONFLICT: "rename the object, or remove what has the name that the message quotes",
    Reason.FORBIDDEN: "grant the verb that the message names: kubectl auth can-i --list --as=SERVICEACCOUNT",
    Reason.CHANGED_BACK: "stop the writer that the message names from setting these fields",
    Reason.WRITE_FAILED: "ask the webhook that the message quotes: kubectl get validatingwebhookconfigurations",
    Reason.ENGINE_VERSION_DIFFERS: "set spec.engine.version to the release of the image",
    Reason.TABLE_NOT_IN_FORCE: "kubectl delete pod POD -n {namespace}: a new pod reads the table at its start",
    Reason.PLUG_IN_INERT: "set spec.engine.version and image to a release that docs/engines.md lists as Live",
    Reason.INSPECTING: _JOBS,
    Reason.PAIR_MISMATCH: f"set spec.speculator.model to another one: speculative pairs VERIFIER, {_CHECK}",
    Reason.PAIR_DOUBTFUL: _CHECK,
    Reason.PAIR_UNREAD: _JOBS,
    Reason.VERSIONS_UNREAD: _JOBS,
    Reason.NOTHING_KNOWN: "set spec.speculator.model, or method: ngram: speculative pairs lists what is known",
    Reason.MEMORY_SHORT: "set the field that the message suggests; speculative plan FILE shows what would fit",
    Reason.DOWNLOADING: _WAIT,
    Reason.DOWNLOAD_STALLED: _JOBS,
    Reason.SOURCE_UNAUTHORIZED: "correct the Secret of spec.weights.secretName",
    Reason.SOURCE_NOT_FOUND: f"correct spec.verifier.model or spec.speculator.model: {_CHECK}",
    Reason.SOURCE_THROTTLED: _WAIT,
    Reason.SOURCE_UNREACHABLE: _JOBS,
    Reason.CHECKSUM_MISMATCH: _JOBS,
    Reason.CACHE_FULL: "enlarge the claim of spec.weights.cache, or remove models from it",
    Reason.CACHE_UNWRITABLE: "correct the volume of spec.weights.cache: the message has the remedy",
    Reason.CACHE_FOREIGN: "set spec.weights.cache to a volume without a folder .speculative-cache of others",
    Reason.WEIGHTS_MISSING: _JOBS,
    Reason.METRICS_MISSING: _METRICS,
    Reason.METRICS_STALE: "scrape more often, or raise the operator's setting SPECULATIVE_STALE_AFTER_SECONDS",
    Reason.METRICS_ABSURD: _PODS,
    Reason.METRICS_PARTIAL: _METRICS,
    Reason.METRICS_FOREIGN: "set the label of namespace and pod that the message names in the operator's settings",
    Reason.PROMETHEUS_ERROR: "correct prometheus.url in the chart's values",
    Reason.PROMETHEUS_TIMEOUT: "correct prometheus.url in the chart's values, or give Prometheus more CPU",
    Reason.METRICS_LOST: _METRICS,
    Reason.COUNTER_RESET: _PODS,
    Reason.IDLE: "send requests to the address in status.url",
    Reason.STARTING: _WAIT,
    Reason.COLLECTING: _WAIT,
    Reason.HOLDING: _WAIT,
    Reason.RECENTLY_CHANGED: _WAIT,
    Reason.HIGH_CONCURRENCY: "set spec.replicas higher: fewer requests per pod leave room for drafts",
    Reason.LOW_ACCEPTANCE: "set spec.speculator.model to one trained for this verifier: speculative pairs VERIFIER",
    Reason.GUARD: f"{_STATUS}: drafts return when they pay; speculative plan FILE compares other speculators",
    Reason.DEAD_WEIGHT: "set spec.speculator.model to another one: speculative pairs VERIFIER; spec.speculation."
    "offPolicy: KeepRunning keeps the speculator loaded",
    Reason.SLO: "loosen the target in spec.speculation.objective, or set spec.replicas higher",
    Reason.TARGET_OUT_OF_REACH: "loosen the target in spec.speculation.objective, or set spec.replicas higher",
    Reason.FIXED: "set spec.speculation.mode: Auto to have K follow the load",
    Reason.RECOMMENDED: "set spec.speculation.mode: Auto to have the proposed table made active",
    Reason.ROLLOUT_NEEDS_APPROVAL: "speculative approve {name} -n {namespace}",
    Reason.CANARY_NEEDS_APPROVAL: "speculative approve {name} -n {namespace}",
    Reason.ROLLOUT_UNDONE: _PODS,
    Reason.DISABLED: "set spec.speculation.mode: Auto to speculate",
    Reason.OUTPUTS_DIFFER: f"set spec.speculation.mode: Disabled; {_CHECK} names known wrong combinations",
    Reason.OUTPUTS_OUTDATED: "speculative verify {name} -n {namespace}",
    Reason.OUTPUTS_UNREADABLE: "speculative verify {name} -n {namespace}",
    Reason.SUSPENSION_IGNORED: "kubectl annotate specdep {name} -n {namespace} "
    "serving.speculative.dev/drafts-suspended-until-",
    Reason.ACCELERATOR_UNKNOWN: "set spec.accelerator.product as node labels or data sheets have it, such as H100-SXM",
    Reason.OPERATOR_SILENT: "speculative doctor",
    Reason.NO_SPECULATOR: "set spec.speculator.auto: true, or name a speculator: speculative pairs VERIFIER",
}
"""Reason -> the command or field that helps. A reason that is not here asks for nothing."""


def next_step(word: str, name: str, namespace: str) -> str:
    """The command or field for a reason; empty where there is nothing to do."""
    reason = reason_of(word)
    return NEXT[reason].replace("{name}", name).replace("{namespace}", namespace) if reason in NEXT else ""


WRONG_IF_FALSE = (
    ConditionType.PAIR_COMPATIBLE, ConditionType.MEMORY_FITS, ConditionType.WEIGHTS_READY,
    ConditionType.ROLLOUT_HEALTHY, ConditionType.READY, ConditionType.METRICS_AVAILABLE, ConditionType.OUTPUTS_VERIFIED,
)  # fmt: skip
"""Conditions that say by False that something is wrong, the nearest to the cause first. False of other conditions is no
fault: a rollout that is over does not progress, and a table that is still being tuned is not converged."""
_BY_MODE = {"Static": Reason.FIXED, "Disabled": Reason.DISABLED}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know about an object: its source, its reason, and what can be done."""

    source: str
    """A type of condition, or `lease`, `status`, `decision`, `warning`, `annotation`, `mode`, `proposal`."""
    reason: str
    message: str
    means: str = ""
    next: str = ""


def cause_of(body: Object) -> Finding:
    """The finding that says why K is what it is: a user's order, else a fault, else the tuner's last decision."""
    if not (body.get("status") or {}).get("conditions"):
        message = "the operator has not looked at the object yet; watchNamespaces may leave its namespace out"
        return Finding("status", Reason.UNKNOWN.value, message, "", "speculative doctor")
    chosen = mode(body)
    if chosen == "Paused":
        return _finding(body, "annotation", Reason.PAUSED, "the annotation paused is set")
    faults = list(faults_of(body))
    refused = next((one for one in faults if one.source != ConditionType.METRICS_AVAILABLE), None)
    if refused is not None:
        return refused
    ready = condition(body, ConditionType.READY)
    if ready.get("reason") == Reason.SCALED_TO_ZERO:
        return _finding_of(body, ConditionType.READY, ready)
    if chosen in _BY_MODE:
        seen = speculation(body)
        return _finding(body, "mode", _BY_MODE[chosen], str(seen.get("message") or f"the mode is {chosen}"))
    return next(_causes_in_auto(body, faults))


def _causes_in_auto(body: Object, faults: list[Finding]) -> Iterator[Finding]:
    status, seen = body.get("status") or {}, speculation(body)
    yield from faults
    # Where the engine's release differs, the table of the status may not be the pods'.
    yield from (one for one in warnings_of(body) if one.reason == Reason.ENGINE_VERSION_DIFFERS)
    proposal = (status.get("rollout") or {}).get("proposal")
    if proposal:
        yield _finding(body, "proposal", Reason.ROLLOUT_NEEDS_APPROVAL, str(proposal.get("message", "")))
    if seen.get("reason"):
        yield _finding_of(body, "decision", seen)
    for kind in (ConditionType.METRICS_AVAILABLE, ConditionType.TUNING_CONVERGED, ConditionType.READY):
        one = condition(body, kind)
        if one and (one.get("status") == "Unknown" or kind is ConditionType.READY):
            yield _finding_of(body, kind, one)
    yield Finding("status", Reason.UNKNOWN.value, "the status says nothing of tuning", "", "speculative doctor")


def faults_of(body: Object) -> Iterator[Finding]:
    """Yield a finding for each condition that says that something is wrong; one message once, though several conditions
    carry it."""
    found: set[str] = set()
    for kind in WRONG_IF_FALSE:
        one = condition(body, kind)
        fault = _finding_of(body, kind, one)
        if one.get("status") == "False" and fault.message not in found:
            found.add(fault.message)
            yield fault
    late = condition(body, ConditionType.TUNING_CONVERGED)
    if late.get("reason") == Reason.TABLE_NOT_IN_FORCE:
        yield _finding_of(body, ConditionType.TUNING_CONVERGED, late)


def warnings_of(body: Object) -> Iterator[Finding]:
    """Yield a finding for each warning of the status."""
    for one in (body.get("status") or {}).get("warnings") or ():
        yield _finding_of(body, "warning", one)


def silence_of(body: Object, silent: float | None) -> Iterator[Finding]:
    """Yield a finding where the operator has said nothing for `silent` seconds, which is longer than it may be."""
    if silent is not None:
        message = f"no operator has renewed its Lease for {format_age(silent)}: what stands here may be as old"
        yield _finding(body, "lease", Reason.OPERATOR_SILENT, message)


def reason_shown(body: Object) -> str:
    """The reason that a list shows: of a fault, else of a warning, else of the condition Ready."""
    found = next(itertools.chain(faults_of(body), warnings_of(body)), None)
    return found.reason if found is not None else str(condition(body, ConditionType.READY).get("reason", ""))


def _finding_of(body: Object, source: str, one: Object) -> Finding:
    """The finding that reason and message of a condition, a warning or a decision give."""
    return _finding(body, source, str(one.get("reason", "")), str(one.get("message", "")))


def _finding(body: Object, source: str, reason: str, message: str) -> Finding:
    meta, known = body["metadata"], reason_of(reason)
    means = EXPLANATIONS.get(known, "") if known is not None else ""
    step = next_step(reason, str(meta["name"]), str(meta.get("namespace", "default")))
    return Finding(str(source), str(reason), message, means, step)
