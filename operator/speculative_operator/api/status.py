"""The status that users read: its wire types, from which the CRD's schema is made.

`reconcile` produces plain dicts of this form; its tests validate them here. Words such as reasons and states are
open-ended: a newer operator may write ones that an older CRD does not know. Figures for people are strings with their
unit, figures for machines are whole numbers; nothing is a float.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from speculative_operator.api.rollout_status import CanaryStatus, MeasuredStatus, RolloutStatus
from speculative_operator.api.scalars import Count, Line, Long, Rows, Sentence, Time
from speculative_operator.api.wire import Wire

DECISIONS_KEPT = 10


class Condition(Wire):
    """One observation of the object, as in every Kubernetes API."""

    type: Annotated[str, Field(max_length=316)]
    """Ready, Progressing, WeightsReady, PairCompatible, MemoryFits, Available, MetricsAvailable, SpeculationActive,
    TuningConverged or RolloutHealthy."""
    status: Line
    """True, False or Unknown."""
    reason: Annotated[str, Field(max_length=1024)]
    """One CamelCase word of docs/reasons.md."""
    message: Annotated[str, Field(max_length=32768)]
    """Explanation with its figures, and the remedy if something is wrong."""
    last_transition_time: Time
    """Time of the last change of `status`."""
    observed_generation: Long | None = None
    """Generation of the spec that the condition describes."""


class PinStatus(Wire):
    """One model and the version to which it is pinned."""

    uri: Annotated[str, Field(max_length=1024)]
    """Address of the model, as in the spec."""
    asked: Line | None = None
    """Revision in the spec; left out for the source's default."""
    resolved: Line | None = None
    """Version to which the revision resolved: a commit of hf://, a digest of oci://, a hash over all files for other
    sources. Left out until it is known."""
    key: Line | None = None
    """Folder of this version in a cache, below `.speculative-cache/models/`."""


class Failure(Wire):
    """Why a Job that inspects or fetches weights failed."""

    reason: Line
    """One CamelCase word of docs/reasons.md."""
    message: Sentence
    """What happened, and the remedy."""
    time: Time
    """Time at which the operator noticed it; it creates another Job later."""
    job: Line | None = None
    """uid of the Job."""
    side: Line | None = None
    """The model that it is about, `verifier` or `speculator`; empty if it is about both."""


class Pair(Wire):
    """Verifier and speculator, which a rollout replaces together."""

    verifier: Annotated[str, Field(max_length=1024)]
    """URI and revision of the verifier, pinned if the pin is known."""
    speculator: Annotated[str, Field(max_length=1024)] | None = None
    """URI and revision of the speculator; the method alone if it has no weights."""
    hash: Line | None = None
    """Short hash of both, equal to the label serving.speculative.dev/pair of the pods. While the speculator is removed
    the label names the verifier alone."""
    verifier_pin: PinStatus | None = None
    """Version of the verifier."""
    speculator_pin: PinStatus | None = None
    """Version of the speculator."""
    verdict: Line | None = None
    """Compatible, Doubtful or Incompatible; left out if nothing was compared."""
    checked_at: Time | None = None
    """Time of the last request to the sources."""
    repin: Line | None = None
    """Value of the annotation serving.speculative.dev/repin for which the pins were resolved."""
    cache: Line | None = None
    """Claim or node folder, and the folder in its root, that holds both models, complete and verified."""
    cached_at: Time | None = None
    """Time at which a Job last found or fetched both models there."""
    previous: Annotated[tuple[Line, ...], Field(max_length=4)] = ()
    """Folders of previous versions, which the cache keeps so that you can go back."""
    failure: Failure | None = None
    """Why the last Job for this pair failed."""


class PassedOver(Wire):
    """A row of the catalogue that the operator tried for this verifier and that does not work."""

    speculator: Annotated[str, Field(max_length=1024)] | None = None
    """Address of the speculator; left out if it is part of the verifier."""
    method: Line
    """Method of drafting."""
    why: Sentence
    """Reason why it does not work."""


class Picked(Wire):
    """The speculator that the operator picked from the catalogue for speculator.auto. It stays until the verifier or
    the annotation serving.speculative.dev/repin changes, or it cannot be served."""

    verifier: Annotated[str, Field(max_length=1024)]
    """URI of the verifier for which it was picked."""
    speculator: Annotated[str, Field(max_length=1024)] | None = None
    """Address of the speculator's weights, as in speculator.model. Left out if they are part of the verifier, or if
    nothing was picked."""
    method: Line | None = None
    """Method of drafting. Left out if nothing was picked: the engine then serves the verifier alone."""
    parallel_drafting: bool | None = Field(default=None, strict=True)
    """True: the speculator drafts all tokens in one pass."""
    k: Count | None = None
    """K that its source recommends, with which tuning starts."""
    source: Annotated[str, Field(max_length=1024)] | None = None
    """Source that documents the pair."""
    reason: Sentence
    """Why the operator picked this one or none."""
    basis: Line | None = None
    """How the catalogue found the verifier: Name, or Card if its model card was needed."""
    repin: Line | None = None
    """Value of the annotation serving.speculative.dev/repin for which it was picked."""
    time: Time | None = None
    """Time of the pick."""
    generation: Long | None = None
    """Generation of the spec for which pods were last created with it."""
    passed_over: Annotated[tuple[PassedOver, ...], Field(max_length=16)] = ()
    """Rows before it in the catalogue that do not work."""


class Download(Wire):
    """Progress of the weights on their way into the cache."""

    text: Line | None = None
    """Progress in short form, such as `61%, 3m left` or `16.4GB`."""
    bytes: Long | None = None
    """Bytes fetched so far, of both models together."""
    total_bytes: Long | None = None
    """Total bytes of both models."""
    rate: Line | None = None
    """Current rate, such as `512MB/s`."""
    left: Line | None = None
    """Time left at this rate, such as `3m`."""


class StartRecord(Wire):
    """One start of an engine."""

    pod: Line
    """Name of the pod."""
    started: Time
    """When its container started."""
    seconds: Long
    """Seconds from then until the pod was ready."""
    bytes: Long | None = None
    """Bytes of weights that it loaded; left out if their files were not inspected."""


class Startup(Wire):
    """Duration of engine starts, and the budget of the startup probe."""

    load_seconds: Long | None = None
    """Median of the starts below: loading, compiling and capturing graphs together."""
    rate: Line | None = None
    """Median of the bytes of weights per second of such a start, such as `320MB/s`."""
    budget_seconds: Long | None = None
    """Budget of the startup probe in the pods' template. Measurements change it together with the next change of the
    template, never alone."""
    starts: Annotated[tuple[StartRecord, ...], Field(max_length=8)] = ()
    """The last starts, the latest first."""


class GainPercent(Wire):
    """A gain in tokens per second, in percent, with its 80 % interval."""

    low: Count
    """Lower end of the interval."""
    mid: Count
    """The estimate."""
    high: Count
    """Upper end of the interval."""


class Caution(Wire):
    """A warning about a spec that is served."""

    reason: Line
    """One CamelCase word of docs/reasons.md."""
    message: Sentence
    """Explanation and remedy."""


class EngineStatus(Wire):
    """What the pods report about the engine; present for vLLM with tables that it re-reads."""

    asked: Annotated[str, Field(max_length=1024)] | None = None
    """Type, version and image of the engine in the spec to which the report belongs."""
    version: Line | None = None
    """Version that every ready pod reports."""
    live: bool | None = Field(default=None, strict=True)
    """True: pods re-read their table. False: the engine serves, but a new table does not reach it while it runs."""
    inert: Line | None = None
    """Why pods do not re-read their table, as their plug-in says: EngineVersion, or MissingHook and the hook's name."""
    since: Time | None = None
    """Time of the last change in the pods' report."""
    table_version_in_pods: Long | None = None
    """Lowest version of the table that is active in a serving pod."""


class LeavingTable(Wire):
    """The table of pods of a previous pair, which serve until pods of the new pair are ready."""

    pair: Line
    """Value of the label serving.speculative.dev/pair of these pods."""
    config_map: Line
    """Name of the ConfigMap from which they read it."""
    table: Rows
    """Their active table, as [first, last, K] by number of scheduled requests."""
    table_version: Long
    """Version of that table."""
    prepared_k: Annotated[tuple[Count, ...], Field(max_length=256)] = ()
    """K that these pods can draft."""
    reason: Line | None = None
    """Reason of the tuner's last change since their replacement began."""


class SpeculationStatus(Wire):
    """Speculation at the load of the last window."""

    state: Line | None = None
    """On, Off (K is 0 at this load), Removed (pods run without a speculator) or Holding (no evidence)."""
    method: Line | None = None
    """Active method of drafting."""
    actuator: Line | None = None
    """How a new table reaches the engine: Live (nothing restarts), Table or Restart (by a rollout), None."""
    table: Rows | None = None
    """Active table, as [first, last, K] by number of scheduled requests, both ends included. While the speculator is
    removed: the table for its return."""
    table_version: Long | None = None
    """Version of the active table; it grows by one with each new table and with the removal or return of the
    speculator."""
    speculator_removed: bool | None = None
    """True while pods run without the speculator because the tuner found it useless (offPolicy Remove)."""
    skips: bool | None = None
    """True while the pods skip the speculator whenever K stays 0 (offPolicy Skip)."""
    rows_version: Long | None = None
    """Version in which the rows of the table last changed; later versions changed only the candidates."""
    tries: Annotated[str, Field(max_length=1024)] | None = None
    """Candidate K that pods try for single blocks of steps, and the largest share of blocks for them: `5-6: 3 5 (5 %)`
    tries 3 and 5 at 5 to 6 requests. The share falls by itself as blocks are compared."""
    table_text: Annotated[str, Field(max_length=16384)] | None = None
    """Active table for people: `1-16:4 17-256:0`; `none` while the speculator is removed."""
    table_since: Time | None = None
    """Time at which tableVersion became active."""
    proposed_table: Rows | None = None
    """Mode Recommend: the table that Auto would activate. Mode Auto: the table that waits for your approval, see
    rollout."""
    k: Line | None = None
    """Draft tokens per request and step (K) at the current load."""
    acceptance_rate: Line | None = None
    """Share of draft tokens that the verifier accepts, such as `71%`."""
    acceptance_length: Line | None = None
    """Mean tokens per verification, the verifier's own token included (acceptance length)."""
    concurrency: Line | None = None
    """Mean number of requests per step and replica."""
    tpot: Line | None = None
    """Mean time per output token, such as `8.1ms`."""
    tpot_off: Line | None = None
    """Time per output token without a speculator by that gain, at the same load with the same prompts."""
    tokens_per_second: Line | None = None
    """Output tokens per second of all replicas together."""
    gain: Line | None = None
    """Gain in tokens per second over pods without a speculator, at the batch sizes of the last window: `+31.2%` where
    it was measured, `~+31.2%` where it is estimated."""
    gain_basis: Line | None = None
    """Measured: blocks of steps compared K with no speculator in these pods. Estimated: the tuner's model."""
    gain_range: Line | None = None
    """80 % interval of the gain, such as `+22% to +40%`."""
    gain_percent: GainPercent | None = None
    """The same gain with its interval, as whole numbers."""
    removal_gain: Line | None = None
    """Estimated gain in tokens per second of pods without a speculator over the best table, at recent loads."""
    removal_gain_range: Line | None = None
    """80 % interval of that gain."""
    removal_gain_percent: GainPercent | None = None
    """The same gain with its interval, as whole numbers."""
    proposed_gain: Line | None = None
    """Mode Recommend: expected gain of the proposed table."""
    proposed_gain_range: Line | None = None
    """80 % interval of that gain."""
    cost_per_1k_tokens: Line | None = Field(default=None, alias="costPer1kTokens")
    """Accelerator cost of a thousand output tokens, in the currency of accelerator.hourlyCost."""
    reason: Line | None = None
    """Reason of the last decision, of docs/reasons.md."""
    message: Sentence | None = None
    """The last decision in one sentence."""
    observed_at: Time | None = None
    """End of the window from which the figures come."""


class DecisionRecord(Wire):
    """One decided change with its figures."""

    time: Time
    """Time of the decision, to the microsecond."""
    from_: Sentence | None = Field(default=None, alias="from")
    """Previous table, for people."""
    to: Sentence
    """New table, for people."""
    table_version: Long | None = None
    """Version of the new table."""
    reason: Line
    """Reason, of docs/reasons.md."""
    message: Sentence | None = None
    """The decision in a sentence."""


class Status(Wire):
    """The observed state. The operator writes it when something important changes, and figures at most every 30
    seconds."""

    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            max_length=32, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
        ),
    ] = ()
    """Conditions, one of each type. Ready summarizes them."""
    observed_generation: Long | None = None
    """Generation of the spec on which the operator last acted."""
    mode: Line | None = None
    """Who chooses K now: the mode of the spec, or Paused while the annotation serving.speculative.dev/paused is set."""
    ready: Line | None = None
    """Ready pods of those wanted, such as `1/2`. Of a LeaderWorkerSet: groups."""
    replicas: Count | None = None
    """Number of pods."""
    ready_replicas: Count | None = None
    """Number of ready pods."""
    updated_replicas: Count | None = None
    """Number of pods with the current template."""
    selector: Annotated[str, Field(max_length=1024)] | None = None
    """Label selector of the pods, for autoscalers."""
    url: Annotated[str, Field(max_length=1024)] | None = None
    """Address of the engine's API for clients in the cluster."""
    pair: Pair | None = None
    """Verifier and speculator that the pods run, or the first pair from which pods will be created."""
    next_pair: Pair | None = None
    """The pair in the spec while pods still run another one: it is being inspected or fetched, or was refused."""
    picked: Picked | None = None
    """The pick of speculator.auto, and its reason."""
    weights: Download | None = None
    """Progress of the weights in the cache, if spec.weights.cache is set."""
    startup: Startup | None = None
    """Duration of starts, once a pod has been ready."""
    engine: EngineStatus | None = None
    """What the pods report about the engine."""
    warnings: Annotated[tuple[Caution, ...], Field(max_length=16)] = ()
    """Warnings about a spec that is served, such as an option that changes the model's output."""
    speculation: SpeculationStatus | None = None
    """Current speculation."""
    rollout: RolloutStatus | None = None
    """Rollouts that the tuner wants or has started."""
    canary: CanaryStatus | None = None
    """The analysis of spec.route.canary, if it has one."""
    measured: MeasuredStatus | None = None
    """What speculator.measure has found."""
    leaving: Annotated[tuple[LeavingTable, ...], Field(max_length=4)] = ()
    """Tables of previous pairs whose pods still serve."""
    decisions: Annotated[tuple[DecisionRecord, ...], Field(max_length=DECISIONS_KEPT)] = ()
    """The last decisions, newest first."""
