"""Tells what to do about each reason: a command or a field. Used by `explain`, `status` and `doctor`.

`domain.reasons` says what a reason means; this says what the reader can do from a terminal. {name} and {namespace} are
those of the object.
"""

from __future__ import annotations

from speculative_operator.domain.reasons import EXPLANATIONS, Reason

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
    Reason.START_TIMED_OUT: "kubectl logs -p POD -n {namespace} shows what the engine did; docs/startup.md has budgets",
    Reason.NO_PODS: _DOCTOR,
    Reason.ROLLING_OUT: _WAIT,
    Reason.ROLLOUT_STALLED: _PODS,
    Reason.SCALED_TO_ZERO: "set spec.replicas above 0",
    Reason.PAUSED: "speculative resume {name} -n {namespace}",
    Reason.SPEC_INVALID: f"{_EDIT}: the message names field, value and remedy",
    Reason.RENDER_INVALID: f"{_EDIT}: look at spec.template; speculative render FILE shows the manifests",
    Reason.UNSUPPORTED_BY_ENGINE: f"{_EDIT}: the message has the remedy; speculative engines lists what each can do",
    Reason.UNSUPPORTED_TARGET: "set spec.target: Deployment",
    Reason.UNSUPPORTED_SOURCE: f"{_EDIT}: the message has the remedy",
    Reason.NAME_CONFLICT: "rename the object, or remove what has the name that the message quotes",
    Reason.FORBIDDEN: "grant the verb that the message names: kubectl auth can-i --list --as=SERVICEACCOUNT",
    Reason.CHANGED_BACK: "stop the writer that the message names from setting these fields",
    Reason.WRITE_FAILED: "ask the webhook that the message quotes: kubectl get validatingwebhookconfigurations",
    Reason.ENGINE_VERSION_DIFFERS: "set spec.engine.version to the release of the image",
    Reason.TABLE_NOT_IN_FORCE: "kubectl delete pod POD -n {namespace}: a new pod reads the table at its start",
    Reason.LIVE_UNPROVEN: "set spec.engine.version to a release that speculative engines lists as Live",
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
    "offPolicy: Soft keeps the speculator loaded",
    Reason.SLO: "loosen the target in spec.speculation.objective, or set spec.replicas higher",
    Reason.TARGET_OUT_OF_REACH: "loosen the target in spec.speculation.objective, or set spec.replicas higher",
    Reason.FIXED: "set spec.speculation.mode: Auto to have K follow the load",
    Reason.RECOMMENDED: "set spec.speculation.mode: Auto to have the proposed table made active",
    Reason.ROLLOUT_NEEDS_APPROVAL: "speculative approve {name} -n {namespace}",
    Reason.ROLLOUT_UNDONE: _PODS,
    Reason.DISABLED: "set spec.speculation.mode: Auto to speculate",
    Reason.NO_SPECULATOR: "set spec.speculator.auto: true, or name a speculator: speculative pairs VERIFIER",
}
"""Reason -> the command or field that helps. A reason that is not here asks for nothing."""


def reason_of(word: object) -> Reason | None:
    """The reason that a status names; None for a word of another release."""
    return next((one for one in Reason if one.value == word), None)


def meaning_of(word: object) -> str:
    """What the reason means; empty for an unknown one."""
    reason = reason_of(word)
    return EXPLANATIONS.get(reason, "") if reason is not None else ""


def next_step(word: object, name: str, namespace: str) -> str:
    """The command or field for a reason; empty where there is nothing to do."""
    reason = reason_of(word)
    return NEXT[reason].replace("{name}", name).replace("{namespace}", namespace) if reason in NEXT else ""
