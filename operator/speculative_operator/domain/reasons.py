"""One vocabulary: a reason is condition reason, event reason, metric label, CLI text and documentation entry at once.

Everything that reports uses it; docs/reasons.md is generated from the docstrings of the members' explanations below.
"""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """Types of `status.conditions`, all present from the first visit on."""

    READY = "Ready"
    PROGRESSING = "Progressing"
    WEIGHTS_READY = "WeightsReady"
    PAIR_COMPATIBLE = "PairCompatible"
    MEMORY_FITS = "MemoryFits"
    AVAILABLE = "Available"
    METRICS_AVAILABLE = "MetricsAvailable"
    SPECULATION_ACTIVE = "SpeculationActive"
    TUNING_CONVERGED = "TuningConverged"
    ROLLOUT_HEALTHY = "RolloutHealthy"


class Reason(StrEnum):
    """Why something is as it is, or was done."""

    # readiness and rollout
    ALL_READY = "AllReady"
    PODS_NOT_READY = "PodsNotReady"
    START_TIMED_OUT = "StartTimedOut"
    COMPILE_CACHE_UNUSED = "CompileCacheUnused"
    NO_PODS = "NoPods"
    ROLLING_OUT = "RollingOut"
    ROLLED_OUT = "RolledOut"
    ROLLOUT_STALLED = "RolloutStalled"
    SCALED_TO_ZERO = "ScaledToZero"
    PAUSED = "Paused"
    CREATED = "Created"
    REPAIRED = "Repaired"
    SPEC_CHANGED = "SpecChanged"
    # what the spec asks for
    SPEC_INVALID = "SpecInvalid"
    RENDER_INVALID = "RenderInvalid"
    UNSUPPORTED_BY_ENGINE = "UnsupportedByEngine"
    LOSSY = "LossyAcceptance"
    ENGINE_UNMAINTAINED = "EngineUnmaintained"
    LIVE_UNPROVEN = "LiveUnproven"
    PER_REQUEST_UNUSED = "PerRequestUnused"
    LIVE_OFF_UNUSED = "LiveOffUnused"
    ENGINE_VERSION_DIFFERS = "EngineVersionDiffers"
    TABLE_NOT_IN_FORCE = "TableNotInForce"
    UNSUPPORTED_TARGET = "UnsupportedTarget"
    UNSUPPORTED_SOURCE = "UnsupportedSource"
    NAME_CONFLICT = "NameConflict"
    FORBIDDEN = "Forbidden"
    CHANGED_BACK = "ChangedBack"
    SCALED_ELSEWHERE = "ScaledElsewhere"
    WRITE_FAILED = "WriteFailed"
    NOT_CHECKED = "NotChecked"
    ENGINE_LOADS = "EngineLoads"
    # pair and weights
    INSPECTING = "Inspecting"
    PAIR_MATCHES = "PairMatches"
    PAIR_DOUBTFUL = "PairDoubtful"
    PAIR_MISMATCH = "PairMismatch"
    PAIR_UNREAD = "PairUnread"
    NEW_REVISION = "NewRevisionAvailable"
    VERSIONS_UNREAD = "VersionsUnread"
    UPGRADE_WAITS = "UpgradeWaits"
    PRIVILEGES_KEPT = "PrivilegesKept"
    PICKED = "SpeculatorPicked"
    NOTHING_KNOWN = "NoSpeculatorKnown"
    BETTER_KNOWN = "BetterSpeculatorKnown"
    MEMORY_SUFFICES = "MemorySuffices"
    MEMORY_SHORT = "MemoryShort"
    WEIGHTS_CACHED = "WeightsCached"
    DOWNLOADING = "Downloading"
    DOWNLOAD_STALLED = "DownloadStalled"
    SOURCE_UNAUTHORIZED = "SourceUnauthorized"
    SOURCE_NOT_FOUND = "SourceNotFound"
    SOURCE_THROTTLED = "SourceThrottled"
    SOURCE_UNREACHABLE = "SourceUnreachable"
    CHECKSUM_MISMATCH = "ChecksumMismatch"
    CACHE_FULL = "CacheFull"
    CACHE_UNWRITABLE = "CacheUnwritable"
    CACHE_FOREIGN = "CacheForeign"
    WEIGHTS_MISSING = "WeightsMissing"
    # metrics
    METRICS_FOUND = "MetricsFound"
    METRICS_MISSING = "MetricsMissing"
    METRICS_STALE = "MetricsStale"
    METRICS_ABSURD = "MetricsAbsurd"
    METRICS_PARTIAL = "MetricsPartial"
    METRICS_FOREIGN = "MetricsForeign"
    PROMETHEUS_ERROR = "PrometheusError"
    PROMETHEUS_TIMEOUT = "PrometheusTimeout"
    METRICS_LOST = "MetricsLost"
    METRICS_BACK = "MetricsBack"
    COUNTER_RESET = "CounterReset"
    IDLE = "Idle"
    # deciding
    STARTING = "Starting"
    COLLECTING = "CollectingEvidence"
    TUNED = "Tuned"
    HOLDING = "Holding"
    WITHIN_MARGIN = "WithinMargin"
    DWELLING = "Dwelling"
    FASTER = "FasterTable"
    HIGH_CONCURRENCY = "HighConcurrency"
    LOW_ACCEPTANCE = "LowAcceptance"
    GUARD = "SlowerThanOff"
    TRIES_CHANGED = "TriesChanged"
    DEAD_WEIGHT = "DrafterDeadWeight"
    RESUMED = "SpeculationResumed"
    SLO = "LatencyTarget"
    TARGET_OUT_OF_REACH = "TargetOutOfReach"
    FIXED = "Fixed"
    RECOMMENDED = "Recommended"
    ROLLOUT_NEEDS_APPROVAL = "RolloutNeedsApproval"
    ROLLOUT_UNDONE = "RolloutUndone"
    DISABLED = "Disabled"
    NO_SPECULATOR = "NoSpeculator"
    UNKNOWN = "Unknown"


EXPLANATIONS: dict[Reason, str] = {
    Reason.ALL_READY: "Every replica serves with the pair and settings asked for.",
    Reason.PODS_NOT_READY: "Some serving pods are not ready; the message counts them and gives the first one's state.",
    Reason.START_TIMED_OUT: "A startup probe ended an engine that was not ready within its budget; see the warnings.",
    Reason.COMPILE_CACHE_UNUSED: "spec.engine.compileCache has no effect here; the message says why.",
    Reason.NO_PODS: "No serving pod exists yet.",
    Reason.ROLLING_OUT: "Pods are being replaced because the pod template changed.",
    Reason.ROLLED_OUT: "Every pod runs the current template.",
    Reason.ROLLOUT_STALLED: "The rollout made no progress within its deadline; the old pods keep serving.",
    Reason.SCALED_TO_ZERO: "spec.replicas is 0.",
    Reason.PAUSED: "The annotation serving.speculative.dev/paused is set: nothing is changed until it is removed.",
    Reason.CREATED: "The children were created.",
    Reason.REPAIRED: "A child was missing or had been edited, and was put back.",
    Reason.SPEC_CHANGED: "A change of the spec reached the children.",
    Reason.SPEC_INVALID: "The object holds a value that cannot be served; the message names field, value and remedy.",
    Reason.RENDER_INVALID: "The API server refused a child as rendered; the message quotes it. Often spec.template.",
    Reason.UNSUPPORTED_BY_ENGINE: "The engine, at this version, cannot do what is asked; the message names the remedy.",
    Reason.LOSSY: "An option accepts drafts that the verifier would not have written: output may differ.",
    Reason.ENGINE_UNMAINTAINED: "The engine gets fixes only, or none; the message names one that is maintained.",
    Reason.LIVE_UNPROVEN: "Live changes of K were not proven on this release of the engine: a rollout changes K there.",
    Reason.LIVE_OFF_UNUSED: "offPolicy Live has no effect with this engine, method or release; K 0 is as with Soft.",
    Reason.PER_REQUEST_UNUSED: "speculation.perRequest has no effect with this engine, method or mode; all else works.",
    Reason.ENGINE_VERSION_DIFFERS: "The pods report another release than spec.engine.version. Where they do not "
    "re-read their table, the message names the annotation that has them served as that release.",
    Reason.TABLE_NOT_IN_FORCE: "A pod that serves has not put the newest table in force; the message names it.",
    Reason.UNSUPPORTED_TARGET: "spec.target is not available in this release.",
    Reason.UNSUPPORTED_SOURCE: "The model source cannot be served like this; the message names the remedy.",
    Reason.NAME_CONFLICT: "A child's name is taken by an object that this one does not own.",
    Reason.FORBIDDEN: "The operator's ServiceAccount lacks a permission; the message names verb and resource.",
    Reason.WRITE_FAILED: "The API server failed to store a child three times; the message quotes it. Often a webhook.",
    Reason.CHANGED_BACK: "Somebody changes the Deployment back each time that it is repaired: it stays as it is, "
    "and the message names the writer and the remedy.",
    Reason.SCALED_ELSEWHERE: "Another writer sets the Deployment's replicas: spec.replicas is not used meanwhile.",
    Reason.NOT_CHECKED: "It was not looked at, or too little is known to tell; the message says what is missing.",
    Reason.ENGINE_LOADS: "The engine fetches the weights itself when a pod starts.",
    Reason.INSPECTING: "Configuration, tokenizer and tensor headers of verifier and speculator are being read.",
    Reason.PAIR_MATCHES: "The speculator fits its verifier in everything that was compared.",
    Reason.PAIR_DOUBTFUL: "The pair can be served, but something speaks against it; the message says what and why.",
    Reason.PAIR_MISMATCH: "The speculator does not fit its verifier: no pod is made. The message names the remedy.",
    Reason.PAIR_UNREAD: "The files could not be read, so that nothing was compared; the engine does when it starts.",
    Reason.NEW_REVISION: "The branch or tag of the spec has moved; the pinned version stays until it is asked for.",
    Reason.VERSIONS_UNREAD: "The versions that are to be looked up could not be read; pods that run keep theirs.",
    Reason.UPGRADE_WAITS: "This release of the operator would make pods differently; those that run stay until it is "
    "asked for, by the annotation that the message names.",
    Reason.PRIVILEGES_KEPT: "Pods run with a privilege that spec.template would not get now; the message names it.",
    Reason.PICKED: "speculator.auto: the message names the speculator taken from the catalogue, why, and the source.",
    Reason.NOTHING_KNOWN: "speculator.auto: the catalogue has nothing that can be served for this verifier, which is "
    "served alone; the message names the remedy.",
    Reason.BETTER_KNOWN: "speculator.auto: the catalogue now puts another first; the pick stays until it is asked for.",
    Reason.MEMORY_SUFFICES: "Weights of both models and the KV cache asked for fit; the message holds the arithmetic.",
    Reason.MEMORY_SHORT: "Weights and KV cache do not fit; the message holds the arithmetic and what would.",
    Reason.WEIGHTS_CACHED: "Both models lie in the cache, complete and with the right checksums.",
    Reason.DOWNLOADING: "A Job brings the weights; the message holds bytes, rate and the time left.",
    Reason.DOWNLOAD_STALLED: "No byte came for a while; the message names the file. The Job keeps trying.",
    Reason.SOURCE_UNAUTHORIZED: "The source refused the credentials, or wants some; the message names the Secret.",
    Reason.SOURCE_NOT_FOUND: "The source has no such model, revision or file.",
    Reason.SOURCE_THROTTLED: "The source asks for fewer requests; it is asked again later.",
    Reason.SOURCE_UNREACHABLE: "The source does not answer or fails; it is asked again later.",
    Reason.CHECKSUM_MISMATCH: "A file differs from what its source announced; it is fetched again.",
    Reason.CACHE_FULL: "The cache has no room for the weights; the message names the bytes needed and those free.",
    Reason.CACHE_UNWRITABLE: "The Job may not write to the cache, or the volume fails; the message names the remedy.",
    Reason.CACHE_FOREIGN: "A folder .speculative-cache that the operator did not make lies in the cache: nothing is "
    "written or removed there.",
    Reason.WEIGHTS_MISSING: "A pod does not start from the cache; a Job looks whether its weights are there, and "
    "brings them where they are not.",
    Reason.METRICS_FOUND: "Pods that carry four fifths of the requests at least have fresh samples.",
    Reason.METRICS_MISSING: "Prometheus answers, but has no samples of a ready pod. Tuning waits; see MetricsLost.",
    Reason.METRICS_STALE: "The newest sample of a pod is too old. Tuning waits; see MetricsLost.",
    Reason.METRICS_ABSURD: "A sample is NaN, infinite, negative or contradicts another. Tuning waits; see MetricsLost.",
    Reason.METRICS_PARTIAL: "Too many pods, or series of a pod, are missing. No more than drafts that lose is changed.",
    Reason.METRICS_FOREIGN: "Series bear a pod's name but come from another address, so they are not believed. "
    "The message names label, value and the setting for a Prometheus that rewrites it. Nothing is changed.",
    Reason.PROMETHEUS_ERROR: "Prometheus refused, failed or is unreachable. Tuning waits; see MetricsLost.",
    Reason.PROMETHEUS_TIMEOUT: "Prometheus did not answer in time. Tuning waits; see MetricsLost.",
    Reason.METRICS_LOST: "Nothing could be believed for ten minutes: at each load K falls to one shown to pay, or 0.",
    Reason.METRICS_BACK: "Pods are seen again: the table before the outage is back.",
    Reason.COUNTER_RESET: "A pod restarted within the window; the window is dropped.",
    Reason.IDLE: "No requests in the window; the table stays as it is.",
    Reason.STARTING: "The first full window has not been seen since the operator or the pods started.",
    Reason.COLLECTING: "Too few drafts or steps for a decision yet.",
    Reason.TUNED: "The table in force is the best one found for the loads seen.",
    Reason.HOLDING: "No evidence to act on: the table stays as it is.",
    Reason.WITHIN_MARGIN: "A better table exists, but its expected gain is inside the margin of error.",
    Reason.DWELLING: "A better table exists, but the last change is too recent.",
    Reason.FASTER: "The new table is expected to give more tokens per second at the loads seen.",
    Reason.HIGH_CONCURRENCY: "Drafts cost more than they give at this concurrency: K is lowered or 0 there.",
    Reason.LOW_ACCEPTANCE: "Too few drafts are accepted: K is lowered or 0.",
    Reason.GUARD: "Measured speed fell below what no speculation would give: drafts are cut at once.",
    Reason.TRIES_CHANGED: "The K that the engine may try have changed; the table in force is the same.",
    Reason.DEAD_WEIGHT: "Pods without the drafter serve more at the loads seen: it is removed, its memory returned.",
    Reason.RESUMED: "The load fell to where the drafter pays again: pods return with it.",
    Reason.SLO: "A latency target of spec.speculation.objective is missed at this load with a larger K.",
    Reason.TARGET_OUT_OF_REACH: "No K meets a latency target: the fastest K serves. The message gives the best P99 "
    "that was measured, and with which K; it is tried again when the load has changed, and after an hour.",
    Reason.FIXED: "mode is Static: the table of the spec is in force.",
    Reason.RECOMMENDED: "mode is Recommend: the table is proposed in status and not applied.",
    Reason.ROLLOUT_NEEDS_APPROVAL: "Another table, or pods without the speculator, would be better, but not without a "
    "loss of serving capacity while pods are replaced: nothing is done. The message names the command that accepts it.",
    Reason.ROLLOUT_UNDONE: "A rollout that the tuner wanted stalled, or its pods are slower: pods are as before again.",
    Reason.DISABLED: "mode is Off.",
    Reason.NO_SPECULATOR: "The spec names no speculator and no draft-free method.",
    Reason.UNKNOWN: "Not known yet.",
}
