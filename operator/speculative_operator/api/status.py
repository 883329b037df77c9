"""The status that users read: its wire types, from which the CRD's schema is made.

`reconcile` produces plain dicts of this form; its tests validate them here. Words such as reasons and states are
open-ended: a newer operator may write ones that an older CRD does not know. Figures for people are strings with their
unit, figures for machines are whole numbers; nothing is a float.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from speculative_operator.api.rollout_status import RolloutStatus
from speculative_operator.api.status_scalars import Count, Line, Long, Rows, Sentence, Time
from speculative_operator.api.wire import Wire

DECISIONS_KEPT = 10


class Condition(Wire):
    """One observation of the deployment, as every Kubernetes condition."""

    type: Annotated[str, Field(max_length=316)]
    """Ready, Progressing, WeightsReady, PairCompatible, MemoryFits, Available, MetricsAvailable, SpeculationActive,
    TuningConverged or RolloutHealthy."""
    status: Line
    """True, False or Unknown."""
    reason: Annotated[str, Field(max_length=1024)]
    """One CamelCase word of docs/reasons.md."""
    message: Annotated[str, Field(max_length=32768)]
    """What is so, with the figures behind it, and what to do where something is wrong."""
    last_transition_time: Time
    """When `status` last changed."""
    observed_generation: Long | None = None
    """Generation of the spec that the condition speaks of."""


class PinStatus(Wire):
    """One model and the version of it that was found."""

    uri: Annotated[str, Field(max_length=1024)]
    """Where it is, as in the spec."""
    asked: Line | None = None
    """Revision that the spec asks for; left out: the source's default."""
    resolved: Line | None = None
    """What that was when it was looked up: a commit of hf://, a digest of oci://, a hash over all files elsewhere. Left
    out until it is known."""
    newest: Line | None = None
    """What it has become since; left out while it is the same."""
    key: Line | None = None
    """Folder of this version in a cache, below `.speculative-cache/models/`."""


class Failure(Wire):
    """Why a Job that reads or fetches weights came to nothing."""

    reason: Line
    """One CamelCase word of docs/reasons.md."""
    message: Sentence
    """What happened, and what to do."""
    time: Time
    """When it was noticed; another Job is made a while later."""
    job: Line | None = None
    """uid of the Job."""


class Pair(Wire):
    """Verifier and speculator, which are rolled together or not at all."""

    verifier: Annotated[str, Field(max_length=1024)]
    """URI and revision of the verifier: the pinned one where it is known."""
    speculator: Annotated[str, Field(max_length=1024)] | None = None
    """URI and revision of the speculator; the method alone where no weights draft."""
    hash: Line | None = None
    """Short hash of both, equal to the label serving.speculative.dev/pair of the pods, unless those are in hard off:
    then the label names the verifier alone."""
    verifier_pin: PinStatus | None = None
    """Version of the verifier."""
    speculator_pin: PinStatus | None = None
    """Version of the speculator."""
    verdict: Line | None = None
    """Compatible, Doubtful or Incompatible; left out where nothing was compared."""
    checked_at: Time | None = None
    """When the sources were last asked."""
    repin: Line | None = None
    """Value of the annotation serving.speculative.dev/repin that the pins were looked up for."""
    cache: Line | None = None
    """Claim, or folder of the node, and the folder in its root in which both lie complete and verified."""
    cached_at: Time | None = None
    """When a Job last found both there, or brought them."""
    previous: Annotated[tuple[Line, ...], Field(max_length=4)] = ()
    """Folders of the versions before, which the cache keeps for a way back."""
    facts: Annotated[str, Field(max_length=16384)] | None = None
    """What was read of both, packed. For the operator alone: its form may change at any time."""
    failure: Failure | None = None
    """Why the last Job for this pair came to nothing."""


class PassedOver(Wire):
    """An entry of the catalogue that was tried for this verifier and does not do."""

    speculator: Annotated[str, Field(max_length=1024)] | None = None
    """Where it is; left out: part of the verifier."""
    method: Line
    """How it drafts."""
    why: Sentence
    """What was found."""


class Picked(Wire):
    """What speculator.auto has picked from the catalogue. It stays until the verifier changes, the annotation
    serving.speculative.dev/repin has a new value, or it turns out not to be servable."""

    verifier: Annotated[str, Field(max_length=1024)]
    """URI of the verifier that it was picked for."""
    speculator: Annotated[str, Field(max_length=1024)] | None = None
    """Where the drafting weights are, as speculator.model would say it. Left out where they are part of the verifier,
    and where nothing was picked."""
    method: Line | None = None
    """How they draft. Left out where nothing was picked: the verifier is served alone."""
    parallel_drafting: bool | None = Field(default=None, strict=True)
    """True: all tokens are drafted in one pass."""
    k: Count | None = None
    """K that its source serves it with, where tuning starts."""
    source: Annotated[str, Field(max_length=1024)] | None = None
    """Where it is documented."""
    reason: Sentence
    """Why this one, or why nothing, in a sentence."""
    basis: Line | None = None
    """What the verifier was found by: Name, or Card where its model card was read, too."""
    repin: Line | None = None
    """Value of the annotation serving.speculative.dev/repin that it was picked for."""
    time: Time | None = None
    """When it was picked."""
    generation: Long | None = None
    """Generation of the spec that pods were last made for with it."""
    passed_over: Annotated[tuple[PassedOver, ...], Field(max_length=16)] = ()
    """Entries that stood before it and do not do."""


class Download(Wire):
    """How far the weights are on their way into the cache."""

    text: Line | None = None
    """In a few words, such as `61%, 3m left` or `16.4GB`."""
    bytes: Long | None = None
    """Bytes that are there, of both models together."""
    total_bytes: Long | None = None
    """Bytes in all."""
    rate: Line | None = None
    """Bytes per second of late, such as `512MB/s`."""
    left: Line | None = None
    """Time left at this rate, such as `3m`."""


class StartRecord(Wire):
    """One start of an engine."""

    pod: Line
    """Name of the pod."""
    started: Time
    """When its container started."""
    seconds: Long
    """From then until the pod was ready."""
    bytes: Long | None = None
    """Weights of the pair that it loaded; left out where their files were not read."""


class Startup(Wire):
    """How long engines take to start, and what their startup probe gives them for it."""

    load_seconds: Long | None = None
    """Median of the starts below: loading, compiling and capturing graphs together."""
    rate: Line | None = None
    """Bytes of weights per second of such a start, such as `320MB/s`: their median."""
    budget_seconds: Long | None = None
    """Budget of the startup probe of the pods' template. What is measured changes it with the next change of the
    template, never by itself."""
    template: Line | None = None
    """Tells that template from others. For the operator alone."""
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
    """Something to know of a spec that is served."""

    reason: Line
    """One CamelCase word of docs/reasons.md."""
    message: Sentence
    """What is so, and what to do about it."""


class EngineStatus(Wire):
    """The engine as its pods report it, where they do: vLLM with tables that it re-reads."""

    asked: Annotated[str, Field(max_length=1024)] | None = None
    """Type, version and image of the engine that the spec asks for, which the report is about."""
    version: Line | None = None
    """Version that every ready pod reports."""
    live: bool | None = Field(default=None, strict=True)
    """True: pods re-read their table. False: the engine serves, but no new table reaches it while it runs."""
    since: Time | None = None
    """When the pods' report last changed."""
    fallback: bool | None = Field(default=None, strict=True)
    """True: pods were found not to re-read their table and, as the annotation adopt asks, are served accordingly: K
    changes by a rollout. A change of version or image in the spec ends this, or the value engine-as-in-spec."""
    table_version_in_pods: Long | None = None
    """Lowest version of the table that a serving pod has put in force."""


class LeavingTable(Wire):
    """The table of pods of a former pair, which serve on while pods of the new one come up."""

    pair: Line
    """Value of the label serving.speculative.dev/pair of these pods."""
    config_map: Line
    """Name of the ConfigMap that they read it from."""
    table: Rows
    """Table in force in them, as [first, last, K] by number of scheduled requests."""
    table_version: Long
    """Its version."""
    prepared_k: Annotated[tuple[Count, ...], Field(max_length=256)] = ()
    """K that they are known to be able to draft."""
    per_request: bool | None = Field(default=None, strict=True)
    """True while the table lets them withhold the drafts of single requests."""
    reason: Line | None = None
    """Why the tuner changed it last, since they are being replaced."""


class SpeculationStatus(Wire):
    """Speculation as it is now, at the load seen in the last window."""

    state: Line | None = None
    """On, SoftOff (K is 0 at this load), HardOff (pods run without a speculator) or Holding (no evidence)."""
    method: Line | None = None
    """Method in force."""
    actuator: Line | None = None
    """How a new table reaches the engine: Live (nothing restarts), Table or Restart (by a rollout), None."""
    table: Rows | None = None
    """Table in force, as [first, last, K] by number of scheduled requests, both ends included. In hard off: the table
    that waits for the pods' return."""
    table_version: Long | None = None
    """Version of what is in force; it grows by one with each new table and with the speculator's removal or return."""
    hard_off: bool | None = None
    """True while pods run without the speculator because the tuner found it to be dead weight (offPolicy Hard)."""
    per_request: bool | None = Field(default=None, strict=True)
    """True while the table lets pods withhold the drafts of single requests (perRequest Auto)."""
    rows_version: Long | None = None
    """Version with which the table came, where later ones changed only what is tried beside it."""
    tries: Annotated[str, Field(max_length=1024)] | None = None
    """K that pods try for single blocks of steps while the table is in force, and the largest share of blocks that it
    takes: `5-6: 3 5 (5 %)` tries 3 and 5 at 5 to 6 requests. The share falls by itself as blocks are compared."""
    table_text: Annotated[str, Field(max_length=16384)] | None = None
    """Table in force, for people: `1-16:4 17-256:0`; `none` in hard off."""
    table_since: Time | None = None
    """When tableVersion came into force."""
    proposed_table: Rows | None = None
    """mode Recommend: the table that Auto would put in force. Auto: the one that waits for your word, see rollout."""
    k: Line | None = None
    """Tokens drafted per step (K) at the current load."""
    acceptance_rate: Line | None = None
    """Share of drafted tokens that the verifier accepts, such as `71%`."""
    acceptance_length: Line | None = None
    """Tokens per verification, the verifier's own included."""
    concurrency: Line | None = None
    """Requests scheduled per step and replica."""
    tpot: Line | None = None
    """Mean time per output token, such as `8.1ms`."""
    tpot_off: Line | None = None
    """Predicted time per output token without speculation at the same load."""
    tokens_per_second: Line | None = None
    """Output tokens per second of all replicas together."""
    gain: Line | None = None
    """Estimated gain in tokens per second over no speculation, such as `+31.2%`."""
    gain_range: Line | None = None
    """80 % interval of the gain, such as `+22% to +40%`."""
    gain_percent: GainPercent | None = None
    """The same gain with its interval, as whole numbers."""
    hard_off_gain: Line | None = None
    """Estimated gain in tokens per second of pods without speculator over the table in force, at the loads of late."""
    hard_off_gain_range: Line | None = None
    """80 % interval of that gain."""
    hard_off_gain_percent: GainPercent | None = None
    """The same gain with its interval, as whole numbers."""
    proposed_gain: Line | None = None
    """mode Recommend: the gain expected of the proposed table."""
    proposed_gain_range: Line | None = None
    """80 % interval of that gain."""
    cost_per_1k_tokens: Line | None = Field(default=None, alias="costPer1kTokens")
    """Accelerator cost of a thousand output tokens, in the currency of accelerator.hourlyCost."""
    reason: Line | None = None
    """Reason of the last decision, of docs/reasons.md."""
    message: Sentence | None = None
    """The last decision in a sentence."""
    observed_at: Time | None = None
    """End of the window that the figures come from."""


class DecisionRecord(Wire):
    """One change that was decided, with what it rests on."""

    time: Time
    """When it was decided, to the microsecond."""
    from_: Sentence | None = Field(default=None, alias="from")
    """Table before, for people."""
    to: Sentence
    """Table after."""
    table_version: Long | None = None
    """Version of the table after."""
    reason: Line
    """Reason, of docs/reasons.md."""
    message: Sentence | None = None
    """The decision in a sentence."""
    numbers: Annotated[dict[str, Line], Field(max_length=32)] | None = None
    """Figures behind it, with their units."""


class Status(Wire):
    """What is so. Written by the operator when something that matters changes; figures at most every 30 seconds."""

    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            max_length=32, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
        ),
    ] = ()
    """Conditions, one of each type. Ready sums them up."""
    observed_generation: Long | None = None
    """Generation of the spec that the operator last acted on."""
    replicas: Count | None = None
    """Pods that exist."""
    ready_replicas: Count | None = None
    """Pods that are ready to serve."""
    updated_replicas: Count | None = None
    """Pods that run the current template."""
    selector: Annotated[str, Field(max_length=1024)] | None = None
    """Label selector of the pods, for autoscalers."""
    url: Annotated[str, Field(max_length=1024)] | None = None
    """Where clients in the cluster reach the API of the engine."""
    pair: Pair | None = None
    """Verifier and speculator that the pods run, or are made of first."""
    next_pair: Pair | None = None
    """The pair that the spec asks for, while pods still run another: it is being read or fetched, or was refused."""
    picked: Picked | None = None
    """What speculator.auto has picked, and why."""
    weights: Download | None = None
    """The weights in the cache, where spec.weights.cache names one."""
    startup: Startup | None = None
    """How long starts take, once a pod was ready."""
    engine: EngineStatus | None = None
    """The engine as its pods report it."""
    warnings: Annotated[tuple[Caution, ...], Field(max_length=16)] = ()
    """What a user should know of a spec that is served, such as an option that changes what the model says."""
    speculation: SpeculationStatus | None = None
    """Speculation as it is now."""
    rollout: RolloutStatus | None = None
    """Rollouts that nobody asked for: those that the tuner wants."""
    leaving: Annotated[tuple[LeavingTable, ...], Field(max_length=4)] = ()
    """Tables of former pairs whose pods serve on, for as long as there are such pods."""
    decisions: Annotated[tuple[DecisionRecord, ...], Field(max_length=DECISIONS_KEPT)] = ()
    """The last decisions, newest first."""
    memory: (
        Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})] | None
    ) = None
    """What the tuner needs after a restart of the operator. For the operator alone: its form may change at any time."""
