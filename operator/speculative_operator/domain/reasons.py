"""One vocabulary: a reason is condition reason, event reason, metric label, CLI text and documentation entry at once.

Everything that reports uses it; docs/reasons.md is generated from the docstrings of the members' explanations below.
Texts that others read pass `without_credentials`: conditions, events, warnings, gaps, results of Jobs, logs.
"""

from __future__ import annotations

import re
from enum import StrEnum

HIDDEN = "***"
_SUSPECT = re.compile(r"://|\?[\w.%~-]+=|authorization", re.IGNORECASE)
_USER = re.compile(r"""(?<=://)[^\s/?#"'<>]*@""")
_QUERY = re.compile(r"""(?<=[/\w.\]])\?[\w.%~-]+=[^\s"'<>)]*""")
_HEADER = re.compile(r"""(authorization["']?\s*[:=]\s*["']?(?:(?:bearer|basic)\s+)?)[^\s"',}]+""", re.IGNORECASE)


class ConditionType(StrEnum):
    """Types of `status.conditions`; a SpeculativeDeployment has all but NOT_ALWAYS from the first reconcile on."""

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
    OUTPUTS_VERIFIED = "OutputsVerified"
    """Only in objects that `speculative verify` was run on."""
    TRAINED = "Trained"
    """Of a SpeculatorTraining alone, and so is the next."""
    ACCEPTANCE_HOLDS = "AcceptanceHolds"


NOT_ALWAYS = frozenset({ConditionType.OUTPUTS_VERIFIED, ConditionType.TRAINED, ConditionType.ACCEPTANCE_HOLDS})
"""Types that a SpeculativeDeployment lacks at first."""


class Reason(StrEnum):
    """Why something is as it is, or was done."""

    # readiness and rollout
    ALL_READY = "AllReady"
    PODS_NOT_READY = "PodsNotReady"
    START_TIMED_OUT = "StartTimedOut"
    NO_PODS = "NoPods"
    ROLLING_OUT = "RollingOut"
    ROLLED_OUT = "RolledOut"
    ROLLOUT_STALLED = "RolloutStalled"
    ROLLOUT_WAITS = "RolloutWaits"
    SCALED_TO_ZERO = "ScaledToZero"
    PAUSED = "Paused"
    UNPAUSED = "Resumed"
    CREATED = "Created"
    REPAIRED = "Repaired"
    SPEC_CHANGED = "SpecChanged"
    # what the spec asks for
    SPEC_INVALID = "SpecInvalid"
    RENDER_INVALID = "RenderInvalid"
    UNSUPPORTED_BY_ENGINE = "UnsupportedByEngine"
    LOSSY = "LossyAcceptance"
    LIVE_UNPROVEN = "LiveUnproven"
    PLUG_IN_INERT = "PlugInInert"
    ENGINE_VERSION_DIFFERS = "EngineVersionDiffers"
    TABLE_NOT_IN_FORCE = "TableNotInForce"
    UNSUPPORTED_TARGET = "UnsupportedTarget"
    INFERENCE_SERVICE_NOT_READY = "InferenceServiceNotReady"
    ROUTE_UNSUPPORTED = "RouteUnsupported"
    ROUTE_NOT_ACCEPTED = "RouteNotAccepted"
    CANARY_LEFT_OUT = "CanaryLeftOut"
    CANARY_STEPS = "CanaryInStep"
    CANARY_NEEDS_APPROVAL = "CanaryNeedsApproval"
    CANARY_PROMOTED = "CanaryPromoted"
    CANARY_WORSE = "CanaryWorse"
    CANARY_UNDECIDED = "CanaryUndecided"
    CANARY_FAILED = "CanaryFailed"
    CANARY_LOW_ACCEPTANCE = "CanaryLowAcceptance"
    MEASURE_WAITS = "MeasureWaits"
    CANDIDATE_MEASURED = "CandidateMeasured"
    CANDIDATE_BETTER = "CandidateBetter"
    CANDIDATE_NOT_BETTER = "CandidateNotBetter"
    CANDIDATE_FAILED = "CandidateFailed"
    CANDIDATE_REMOVED = "CandidateRemoved"
    ALL_MEASURED = "AllMeasured"
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
    ACCELERATOR_UNKNOWN = "AcceleratorUnknown"
    OPERATOR_SILENT = "OperatorSilent"
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
    RECENTLY_CHANGED = "RecentlyChanged"
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
    # outputs
    OUTPUTS_SAME = "OutputsSame"
    OUTPUTS_TIED = "OutputsSameButTies"
    OUTPUTS_DIFFER = "OutputsDiffer"
    OUTPUTS_OUTDATED = "OutputsOutdated"
    OUTPUTS_UNREADABLE = "OutputsUnreadable"
    DRAFTS_SUSPENDED = "DraftsSuspended"
    SUSPENSION_IGNORED = "SuspensionIgnored"
    # training of a speculator
    PREPARING = "Preparing"
    ANSWERING = "Answering"
    TRAINING = "Training"
    CHECKING = "Checking"
    TRAINED = "Trained"
    TRAINING_WAITS = "TrainingWaits"
    TRAINING_RESUMED = "TrainingResumed"
    TRAINING_FAILED = "TrainingFailed"
    BAD_DATA = "BadData"
    UNKNOWN_VERIFIER = "UnknownVerifier"
    OUT_OF_MEMORY = "OutOfMemory"
    DISK_FULL = "DiskFull"
    OUTPUT_FOREIGN = "OutputForeign"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    NODE_LOST = "NodeLost"
    ACCEPTANCE_HOLDS = "AcceptanceHolds"
    ACCEPTANCE_FELL = "AcceptanceFell"
    UNKNOWN = "Unknown"


_LOST = "The tuner waits, and after ten minutes without valid metrics it keeps only K that were shown to pay."
"""MetricsLost, for those who have not met it yet."""

EXPLANATIONS: dict[Reason, str] = {
    Reason.ALL_READY: "Every replica serves with the requested pair and settings.",
    Reason.PODS_NOT_READY: "Some serving pods are not ready; the message has their number and the state of the first "
    "one.",
    Reason.START_TIMED_OUT: "A startup probe stopped an engine that was not ready within its budget; see the warnings.",
    Reason.NO_PODS: "No serving pod exists yet.",
    Reason.ROLLING_OUT: "The Deployment replaces its pods because the pod template changed.",
    Reason.ROLLED_OUT: "All pods have the current template.",
    Reason.ROLLOUT_STALLED: "The rollout made no progress within its deadline; the old pods keep serving.",
    Reason.ROLLOUT_WAITS: (
        "No node has room for a new pod; the message says whether an old pod ends for it, and what you can do."
    ),
    Reason.SCALED_TO_ZERO: "spec.replicas is 0.",
    Reason.PAUSED: "The annotation serving.speculative.dev/paused is set: the operator changes nothing until you "
    "remove it.",
    Reason.UNPAUSED: "The annotation serving.speculative.dev/paused was removed: the operator goes on.",
    Reason.CREATED: "The operator created the children.",
    Reason.REPAIRED: "The operator restored a child that was missing or had been edited.",
    Reason.SPEC_CHANGED: "The operator applied a change of the spec to the children.",
    Reason.SPEC_INVALID: "The spec has a value that cannot be served; the message has field, value and remedy.",
    Reason.RENDER_INVALID: "The API server refused a child; the message quotes it. The cause is often spec.template.",
    Reason.UNSUPPORTED_BY_ENGINE: "This version of the engine cannot do what the spec asks; the message has the "
    "remedy.",
    Reason.LOSSY: "An option accepts drafts that the verifier would not have written: output may differ.",
    Reason.LIVE_UNPROVEN: "Live changes of K were not tested with this release or accelerator; the message says how K "
    "changes.",
    Reason.PLUG_IN_INERT: "The pods serve, but their plug-in leaves the engine alone and re-reads no table. The "
    "message names what it lacks.",
    Reason.ENGINE_VERSION_DIFFERS: "The pods report another release than spec.engine.version. The message says "
    "whether they re-read their table.",
    Reason.TABLE_NOT_IN_FORCE: "A serving pod has not activated the newest table; the message names the pod.",
    Reason.UNSUPPORTED_TARGET: "This release does not support the value of spec.target, or the cluster lacks its "
    "kinds: the message names them.",
    Reason.INFERENCE_SERVICE_NOT_READY: "All pods are ready, but KServe or OpenShift AI does not report the "
    "InferenceService or LLMInferenceService as ready: the message quotes why.",
    Reason.ROUTE_UNSUPPORTED: "spec.route is set, but the cluster lacks the kind HTTPRoute; all else works.",
    Reason.ROUTE_NOT_ACCEPTED: "The Gateway of spec.route does not take the HTTPRoute: the message quotes why.",
    Reason.CANARY_LEFT_OUT: "The object that spec.route.canary names gets no requests, and this one all of them: the "
    "message has the cause.",
    Reason.CANARY_STEPS: "The canary gets the weight of a step of its analysis, and the operator compares it with this "
    "object.",
    Reason.CANARY_NEEDS_APPROVAL: "The canary has passed all steps, and waits for your approval; the message has the "
    "command.",
    Reason.CANARY_PROMOTED: "The canary has passed all steps and gets all requests; the message says what is left to "
    "you.",
    Reason.CANARY_WORSE: "Taken back: the canary serves worse than this object at equal load; the message has the "
    "figures.",
    Reason.CANARY_UNDECIDED: "Taken back: the comparison was undecided at the deadline of the step; the message says "
    "why.",
    Reason.CANARY_FAILED: "Taken back: containers of the canary's pods restarted, its requests fail more often, or its "
    "outputs differ.",
    Reason.CANARY_LOW_ACCEPTANCE: "Taken back: the canary's drafts gain far less than is published for its speculator.",
    Reason.MEASURE_WAITS: "speculator.measure: no candidate is started now; the message has the cause.",
    Reason.CANDIDATE_MEASURED: "speculator.measure: a candidate with the catalogue's next speculator starts beside the "
    "pods, or is compared with them.",
    Reason.CANDIDATE_BETTER: "speculator.measure: the candidate was better at equal load; its speculator is picked. "
    "The message has the figures.",
    Reason.CANDIDATE_NOT_BETTER: "speculator.measure: the candidate was not shown to be better by the deadline, or was "
    "worse; what serves stays.",
    Reason.CANDIDATE_FAILED: "speculator.measure: the candidate did not start, restarted, or its outputs differ; what "
    "serves stays.",
    Reason.CANDIDATE_REMOVED: "speculator.measure: the candidate goes without a verdict; the message has the cause. "
    "Its row is measured later.",
    Reason.ALL_MEASURED: "speculator.measure: every row of the catalogue that can be served was measured for this "
    "verifier, engine and accelerator.",
    Reason.UNSUPPORTED_SOURCE: "The model cannot be served from this source; the message has the remedy.",
    Reason.NAME_CONFLICT: "An object that this one does not own has the name of a child.",
    Reason.FORBIDDEN: "The operator's ServiceAccount lacks a permission; the message has verb and resource.",
    Reason.WRITE_FAILED: "The API server failed three times to store a child; the message quotes it. The cause is "
    "often a webhook.",
    Reason.CHANGED_BACK: "Another writer changes the Deployment back after every restore: the operator leaves it as "
    "it is, and the message has the writer and the remedy.",
    Reason.SCALED_ELSEWHERE: "Another writer sets the Deployment's replicas: the operator ignores spec.replicas "
    "meanwhile.",
    Reason.NOT_CHECKED: "The operator did not check this, or knows too little; the message says what is missing.",
    Reason.ENGINE_LOADS: "The engine downloads the weights itself when a pod starts.",
    Reason.INSPECTING: "A Job reads configuration, tokenizer and tensor headers of verifier and speculator.",
    Reason.PAIR_MATCHES: "The speculator fits its verifier in everything that was compared.",
    Reason.PAIR_DOUBTFUL: "The pair can be served, but there are warnings; the message has them.",
    Reason.PAIR_MISMATCH: "The speculator does not fit its verifier: no pod is created. The message has the remedy.",
    Reason.PAIR_UNREAD: "The Job could not read the models' files, so nothing was compared before the engine starts.",
    Reason.ACCELERATOR_UNKNOWN: "The operator has no figures of accelerator.product, so it neither expects a gain nor "
    "checks the memory.",
    Reason.OPERATOR_SILENT: "The operator has not renewed its Lease, so status and figures may be old, and nothing is "
    "tuned. Pods keep their last table. Only the command line tells it.",
    Reason.VERSIONS_UNREAD: "The operator could not resolve the requested versions; running pods keep theirs.",
    Reason.UPGRADE_WAITS: "This release of the operator would render pods differently; running pods stay until you "
    "set the annotation that the message names.",
    Reason.PRIVILEGES_KEPT: "Running pods have a privilege that spec.template would be refused today; the message "
    "names it.",
    Reason.PICKED: "speculator.auto: the operator picked a speculator from the catalogue; the message has its reason "
    "and source.",
    Reason.NOTHING_KNOWN: "speculator.auto: the catalogue has no servable speculator for this verifier, which is "
    "served alone; the message has the remedy.",
    Reason.BETTER_KNOWN: "speculator.auto: the catalogue now prefers another speculator; the pick stays until you set "
    "the annotation repin.",
    Reason.MEMORY_SUFFICES: "The weights of both models and the requested KV cache fit; the message has the "
    "arithmetic.",
    Reason.MEMORY_SHORT: "Weights and KV cache do not fit; the message has the arithmetic and what would fit.",
    Reason.WEIGHTS_CACHED: "The cache holds both models, complete and with the right checksums.",
    Reason.DOWNLOADING: "A Job fetches the weights; the message has bytes, rate and remaining time.",
    Reason.DOWNLOAD_STALLED: "The Job has received no byte for a while and keeps trying; the message names the file.",
    Reason.SOURCE_UNAUTHORIZED: "The source refused the credentials, or requires some; the message names the Secret.",
    Reason.SOURCE_NOT_FOUND: "The source has no such model, revision or file.",
    Reason.SOURCE_THROTTLED: "The source asks for fewer requests; the operator retries later.",
    Reason.SOURCE_UNREACHABLE: "The source does not answer, or fails; the operator retries later.",
    Reason.CHECKSUM_MISMATCH: "A file differs from what its source announced; the operator fetches it again.",
    Reason.CACHE_FULL: "The cache has no room for the weights; the message has the bytes needed and free.",
    Reason.CACHE_UNWRITABLE: "The Job may not write to the cache, or the volume fails; the message has the remedy.",
    Reason.CACHE_FOREIGN: "The cache has a folder .speculative-cache that the operator did not create: the operator "
    "writes and removes nothing there.",
    Reason.WEIGHTS_MISSING: "A pod does not start from the cache; a Job checks whether its weights are there, and "
    "fetches them if not.",
    Reason.METRICS_FOUND: "Pods with at least 80 % of the requests have fresh samples.",
    Reason.METRICS_MISSING: f"Prometheus has no samples of a ready pod. {_LOST}",
    Reason.METRICS_STALE: f"The newest sample of a pod is too old. {_LOST}",
    Reason.METRICS_ABSURD: f"A sample is NaN, infinite, negative or contradicts another. {_LOST}",
    Reason.METRICS_PARTIAL: "Too many pods, or series of a pod, are missing. The tuner only removes drafts that cost "
    "more than they gain.",
    Reason.METRICS_FOREIGN: "Series have a pod's name but come from another address, so the operator ignores them. "
    "The message has label, value and the setting for a Prometheus that rewrites it. The tuner changes nothing.",
    Reason.PROMETHEUS_ERROR: f"Prometheus refused the query, failed or is unreachable. {_LOST}",
    Reason.PROMETHEUS_TIMEOUT: f"Prometheus did not answer in time. {_LOST}",
    Reason.METRICS_LOST: "There were no valid metrics for ten minutes: at each load the tuner lowers K to one that "
    "was shown to pay, or to 0.",
    Reason.METRICS_BACK: "Metrics are back: the table from before the outage is active again.",
    Reason.COUNTER_RESET: "A pod restarted within the window; the operator drops the window.",
    Reason.IDLE: "The window has no requests; the table stays as it is.",
    Reason.STARTING: "The pods were not scraped often enough yet since they or the operator started.",
    Reason.COLLECTING: "There are too few drafts or steps for a decision yet.",
    Reason.TUNED: "The active table is the best one found for the observed loads.",
    Reason.HOLDING: "There is no evidence for a change: the table stays as it is.",
    Reason.WITHIN_MARGIN: "A better table exists, but its expected gain is below the margin.",
    Reason.RECENTLY_CHANGED: "A better table exists, but the last change is too recent.",
    Reason.FASTER: "The tuner expects more tokens per second from the new table at the observed loads.",
    Reason.HIGH_CONCURRENCY: "Drafts cost more than they gain at this concurrency: the tuner lowers K there, or sets "
    "it to 0.",
    Reason.LOW_ACCEPTANCE: "The verifier accepts too few drafts: the tuner lowers K, or sets it to 0.",
    Reason.GUARD: "The measured speed fell below that without speculation: the tuner removes drafts at once.",
    Reason.TRIES_CHANGED: "The candidates that the engine may try have changed; the active table is the same.",
    Reason.DEAD_WEIGHT: "Pods without the speculator serve more at the observed loads: the operator removes it, which "
    "frees its memory.",
    Reason.RESUMED: "The speculator pays again at the current load: the operator brings it back.",
    Reason.SLO: "A larger K misses a latency target of spec.speculation.objective at this load.",
    Reason.TARGET_OUT_OF_REACH: "No K meets a latency target: the fastest K is active. The message has the best "
    "measured P99 and its K; the tuner tries again after a change of load, or after an hour.",
    Reason.FIXED: "The mode is Static: the table of the spec is active.",
    Reason.RECOMMENDED: "The mode is Recommend: status shows the proposed table, and nothing is changed.",
    Reason.ROLLOUT_NEEDS_APPROVAL: "Another table, or pods without the speculator, would be better, but the rollout "
    "would reduce serving capacity while it lasts. The operator waits; the message has the command that accepts it.",
    Reason.ROLLOUT_UNDONE: "A rollout of the tuner stalled, or its pods were slower: the operator restored the "
    "previous pods.",
    Reason.DISABLED: "The mode is Disabled.",
    Reason.NO_SPECULATOR: "The spec names no speculator and no draft-free method.",
    Reason.OUTPUTS_SAME: "speculative verify found the same tokens with drafts as without.",
    Reason.OUTPUTS_TIED: "speculative verify found other tokens with drafts only where two were about equally likely: "
    "numerics, no defect.",
    Reason.OUTPUTS_DIFFER: "speculative verify found tokens with drafts that the verifier alone would not write: a "
    "defect of the engine for this pair.",
    Reason.OUTPUTS_OUTDATED: "The pods are of another template than those that speculative verify compared.",
    Reason.OUTPUTS_UNREADABLE: "The annotation outputs-verified was not written by speculative verify.",
    Reason.DRAFTS_SUSPENDED: "The annotation drafts-suspended-until keeps K at 0, mostly for speculative verify; "
    "drafts return at that time, even without the operator.",
    Reason.SUSPENSION_IGNORED: "The annotation drafts-suspended-until asks for what cannot be done; the message says "
    "why.",
    Reason.PREPARING: "Training: a Job without accelerators looks at prompts, verifier, output and disk, or the pod "
    "with accelerators loads the verifier.",
    Reason.ANSWERING: "Training: the verifier answers the prompts.",
    Reason.TRAINING: "Training: the speculator learns; status has step, loss and the time left.",
    Reason.CHECKING: "Training: the result is compared with its verifier, as every pair is.",
    Reason.TRAINED: "Training: the speculator is in output; the message has its address and expected acceptance.",
    Reason.TRAINING_WAITS: "Training: the pod cannot start; the message quotes why, such as no free accelerator.",
    Reason.TRAINING_RESUMED: "Training: its Job was gone and was made again; it goes on from the last checkpoint.",
    Reason.TRAINING_FAILED: "Training: the Job failed for another reason than those below; the message has the last "
    "words of its container.",
    Reason.BAD_DATA: "Training: the prompts are missing, empty or malformed; the message has file, line and remedy.",
    Reason.UNKNOWN_VERIFIER: "Training: config.json of the verifier names no layers, or fewer than three.",
    Reason.OUT_OF_MEMORY: "Training: more memory was used than node or accelerators have; the message has the remedy.",
    Reason.DISK_FULL: "Training: the claim of output has too little room; the message has the bytes needed and free.",
    Reason.OUTPUT_FOREIGN: "Training: the folder of output or copyTo has files of others, or of another training; "
    "nothing is written there.",
    Reason.DEADLINE_EXCEEDED: "Training: budget.hours are over; checkpoints stay in output, and another object that "
    "differs in budget.hours alone goes on from them.",
    Reason.NODE_LOST: "Training: pods were lost more often than is tried again; checkpoints stay in output.",
    Reason.ACCEPTANCE_HOLDS: "Training: the speculator is accepted in service as held-out prompts let expect.",
    Reason.ACCEPTANCE_FELL: "Training: for a week the speculator was accepted less than held-out prompts let expect; "
    "the message has both figures, and status.retrainWith the command that trains on new prompts.",
    Reason.UNKNOWN: "The operator does not know yet.",
}


_BY_WORD = {one.value: one for one in Reason}


def reason_of(word: str) -> Reason | None:
    """The reason that is written so; None for a word of another release."""
    return _BY_WORD.get(word)


def without_credentials(text: str) -> str:
    """`text` without user and password of URLs, without their queries, which sign or name a token, and without what
    follows `Authorization`."""
    if not _SUSPECT.search(text):
        return text
    text = _USER.sub(f"{HIDDEN}@", text)
    text = _QUERY.sub(f"?{HIDDEN}", text)
    return _HEADER.sub(rf"\1{HIDDEN}", text)
