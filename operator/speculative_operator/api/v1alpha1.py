"""The spec that users write: its wire types, from which the CRD's schema, docs/api.md and `kubectl explain` are made.

Docstrings below are what users read. `convert` turns a validated object into `domain.spec.DeploymentSpec`.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import Field, JsonValue

from speculative_operator.api import rules, scalars
from speculative_operator.api.pod import EnvVars, Template
from speculative_operator.api.targets import InferenceService, Route
from speculative_operator.api.weights import Weights
from speculative_operator.api.wire import Wire, config_with_rules
from speculative_operator.domain.spec import (
    DEFAULT_VERSIONS,
    EngineType,
    Goal,
    Method,
    Mode,
    OffPolicy,
    RolloutStrategy,
    Target,
    Tuning,
    Workload,
)

MOST_REPLICAS = 1000
MOST_NODES = 64
MOST_TOKENS = 64
MOST_SEQUENCES = 65536
MOST_BANDS = 64
MOST_BATCHED_TOKENS = 16_777_216
HIGHEST_RANK = 4096
LONGEST_LOOKUP = 1024
MOST_OPTIONS = 64

Model = TypeVar("Model", bound=Wire)


def field_with_defaults(model: type[Model]) -> Any:
    """A field whose object is there with its own defaults when the user leaves it out."""
    return Field(default_factory=model, json_schema_extra={"default": {}})


# Later booleans have no default in the schema: the API server would fill it in for objects of long ago, and an operator
# that is older than the definition refuses fields that it does not know.
Flag = Annotated[bool, Field(strict=True)]


class Lora(Wire):
    """Low-rank adapters (LoRA) that requests may name."""

    max_adapters: Annotated[int, scalars.whole(1, 1024)] = 1
    """Maximum number of adapters in one batch."""
    max_rank: Annotated[int, scalars.whole(1, HIGHEST_RANK)] = 16
    """Largest rank of an adapter. vLLM accepts 1, 8, 16, 32, 64, 128, 256, 320 and 512."""


class Verifier(Wire):
    """The model whose output clients receive. It checks every draft token."""

    model_config = config_with_rules(*rules.MODEL_RULES)

    model: scalars.ModelUri
    """Address of the weights: hf://ORGANISATION/MODEL, oci://REGISTRY/REPOSITORY:TAG, s3://BUCKET/PREFIX or
    pvc://CLAIM/PATH. An s3:// address needs weights.cache; without it the object reports UnsupportedSource."""
    revision: scalars.Revision | None = None
    """For hf:// only: branch, tag or commit. Default: the repository's main branch."""
    served_name: scalars.ServedName | None = None
    """Name of the model in the API for clients. Default: metadata.name."""
    aliases: Annotated[tuple[scalars.ServedName, ...], Field(min_length=1, max_length=16)] | None = None
    """Further names of the model in the API for clients, by engine.type vLLM alone; metrics bear servedName."""
    tensor_parallel_size: scalars.Parallelism = 1
    """Number of accelerators that share each layer."""
    pipeline_parallel_size: scalars.Parallelism = 1
    """Number of pipeline stages that share the layers."""
    data_parallel_size: scalars.Parallelism = 1
    """Number of copies of the model in one replica. Above 1, the engine uses one K for all loads."""
    max_model_len: Annotated[int, scalars.whole(1, 100_000_000)] | None = None
    """Maximum length of a request in tokens, prompt and output together. Default: the model's configuration."""
    max_num_seqs: Annotated[int, scalars.whole(1, MOST_SEQUENCES)] | None = None
    """Maximum number of requests that one replica runs at once; the table of K ends there. Default: the engine's."""
    dtype: scalars.EngineWord | None = None
    """Number format of weights and activations in the engine's spelling, such as bfloat16. Default: the model's."""
    quantization: scalars.EngineWord | None = None
    """Quantization method in the engine's spelling, such as fp8. Default: the checkpoint's."""
    kv_cache_dtype: scalars.EngineWord | None = None
    """Number format of the KV cache in the engine's spelling, such as fp8. Default: that of the activations."""
    gpu_memory_utilization_percent: Annotated[int, scalars.whole(1, 100)] | None = None
    """Share of accelerator memory, in percent, that the engine uses. Default: the engine's."""
    max_num_batched_tokens: Annotated[int, scalars.whole(1, MOST_BATCHED_TOKENS)] | None = None
    """Maximum number of tokens that one step computes, prompts and drafts of all requests together:
    max_num_batched_tokens of vLLM, chunked_prefill_size of SGLang, max_num_tokens of TensorRT-LLM. Default: the
    engine's; for vLLM the operator adds room for the drafts of a full batch."""
    expert_parallel: Flag | None = None
    """True: the engine distributes the experts of a mixture-of-experts model over the accelerators instead of splitting
    each expert. For vLLM, SGLang and TensorRT-LLM. Default: false."""
    lora: Lora | None = None
    """LoRA adapters that requests may name. For vLLM, SGLang (with some methods only) and TensorRT-LLM. Default:
    none."""


class PromptLookup(Wire):
    """Length of the token sequences that ngram searches in the text so far."""

    model_config = config_with_rules(*rules.LOOKUP_RULES)

    min: Annotated[int, scalars.whole(1, LONGEST_LOOKUP)] | None = None
    """Shortest sequence that counts as a match. For vLLM only. Default: max, or the engine's choice."""
    max: Annotated[int, scalars.whole(1, LONGEST_LOOKUP)] | None = None
    """Longest sequence that ngram searches. For vLLM, and for ngram of TensorRT-LLM. Default: min, or the engine's
    choice."""


class Measure(Wire):
    """Whether other rows of the catalogue are better is measured, one row at a time, on accelerators that nothing else
    uses (docs/pairs.md). The operator creates the object NAME-candidate with one replica and the row's speculator; the
    Service of this object leads a replica's share of the requests to it. A better speculator is kept, by a rollout that
    takes no request away. status.measured shows every verdict. Remove measure to stop."""

    deadline_seconds: Annotated[int, scalars.whole(300, 86_400)] = 1800
    """Seconds for which a candidate is compared at most; if nothing is certain by then, what serves stays."""
    priority_class_name: scalars.ObjectName | None = None
    """PriorityClass of the candidate's pod: one with preemptionPolicy Never and a negative value gives way to all
    others. Default: none, and nothing is measured while pods of this object could displace others by their priority."""


class Speculator(Wire):
    """The speculator, which proposes draft tokens. If the object has none, or if drafts cost more than they gain, the
    engine serves the verifier alone."""

    model_config = config_with_rules(*rules.SPECULATOR_RULES)

    auto: Flag | None = None
    """True: the operator picks a speculator for the verifier from its catalogue of publicly known pairs
    (docs/pairs.md); no other field of speculator may then be set. status.picked and an event show the pick and its
    reason. The pick stays until the verifier or the annotation serving.speculative.dev/repin changes. If the catalogue
    knows none, the engine serves the verifier alone. Default: false."""
    measure: Measure | None = None
    """With auto only: measure the catalogue's next rows beside the pick, and keep the best. Default: the pick stays as
    the catalogue ranks it."""
    method: Method | None = None
    """Method of drafting in the engines' spelling. Without weights: ngram, ngram_gpu, suffix. With separate weights:
    draft_model, eagle, eagle3, medusa, dflash. With weights that may be part of the verifier: mtp, dspark. Required
    unless auto is true."""
    model: scalars.ModelUri | None = None
    """Address of the speculator's weights, as for the verifier. Leave it out for ngram, ngram_gpu and suffix, and if
    the weights are part of the verifier. With vLLM, verifier and speculator may name the same checkpoint in speculators
    format; vLLM then serves the verifier that the checkpoint names."""
    revision: scalars.Revision | None = None
    """For hf:// only: branch, tag or commit. Default: the repository's main branch."""
    tensor_parallel_size: scalars.Parallelism | None = None
    """Number of accelerators that share the speculator's weights: 1 or the verifier's tensorParallelSize; for
    draft_model always the verifier's. Default: the verifier's."""
    quantization: scalars.EngineWord | None = None
    """Quantization method of the speculator's weights in the engine's spelling, such as fp8. For vLLM and SGLang.
    Default: the checkpoint's."""
    parallel_drafting: Flag | None = None
    """True: the speculator drafts all tokens in one pass, as it was trained to (P-EAGLE for eagle and eagle3, PARD for
    draft_model). For vLLM, and for PARD with TensorRT-LLM. Default: false."""
    heterogeneous_vocabulary: Flag | None = None
    """For draft_model with vLLM only. True: the speculator's vocabulary differs from the verifier's, and vLLM maps the
    tokens. Default: false."""
    prompt_lookup: PromptLookup | None = None
    """For ngram and ngram_gpu only: length of the token sequences that the engine searches in the text so far. For vLLM
    and TensorRT-LLM. Default: the engine's choice."""
    options: (
        Annotated[
            dict[str, JsonValue],
            Field(max_length=MOST_OPTIONS, json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}),
        ]
        | None
    ) = None
    """Further keys of vLLM's --speculative-config, spelled as vLLM spells them, such as attention_backend: TRITON_ATTN
    or suffix_decoding_max_tree_depth: 16. The operator passes them on as JSON; vLLM checks names and values when it
    starts. The operator refuses keys that a field of this object sets. Default: none."""


class Objective(Wire):
    """The goal and the latency targets of tuning."""

    goal: Goal = Goal.GOODPUT
    """Goodput: maximum tokens per second within the targets below. Latency: minimum time per token. Throughput: maximum
    tokens per second at any latency. Cost: minimum accelerator-seconds per token. Later releases may add goals."""
    tpot_p99: scalars.Duration | None = Field(default=None, alias="tpotP99")
    """Target for the 99th percentile of the time per output token (TPOT), such as 40ms."""
    ttft_p99: scalars.Duration | None = Field(default=None, alias="ttftP99")
    """Target for the 99th percentile of the time to first token (TTFT), such as 1s."""


Cell = Annotated[int, scalars.whole(0, MOST_SEQUENCES)]
Row = Annotated[tuple[Cell, ...], Field(min_length=3, max_length=3)]


class Speculation(Wire):
    """The number of draft tokens (K), who decides about it, and for which goal."""

    model_config = config_with_rules(*rules.SPECULATION_RULES)

    mode: Mode = Mode.AUTO
    """Auto: the operator measures, decides and acts. Recommend: the operator decides and shows the decision, but does
    not act. Static: K is what this object says. Disabled: the engine serves without the speculator.
    Later releases may add modes."""
    num_speculative_tokens: Annotated[int, scalars.whole(0, MOST_TOKENS)] | None = None
    """Draft tokens per request and step (K). Static: the K in use if schedule is empty. Auto and Recommend: the K to
    start with, or to try first where pods begin without drafts. Default: the operator chooses by method and
    hardware."""
    max_speculative_tokens: Annotated[int, scalars.whole(1, MOST_TOKENS)] = 8
    """Largest K that the engine may use; the engine reserves memory for it."""
    adaptive_verification: Flag | None = None
    """True: K says how many tokens are drafted, and in each step vLLM verifies only those drafts that it estimates to
    be worth their time (enable_adaptive_verification). Outputs do not change. For vLLM 0.32.0 and newer on its V2 model
    runner with full CUDA graphs, and with draft_model, eagle, eagle3, mtp, dflash and dspark. vLLM counts a draft that
    it did not verify like a rejected one. Default: false."""
    schedule: Annotated[tuple[Row, ...], Field(max_length=MOST_BANDS)] | None = None
    """Static only: K by the number of requests that the engine schedules in a step, as rows [first, last, K] with both
    ends included, starting at 1, without gaps. The last row also applies above its end. K 0 drafts nothing. It takes
    precedence over numSpeculativeTokens."""
    off_policy: OffPolicy = OffPolicy.SKIP
    """What the operator may do if drafts cost more than they gain. Never: K is always at least 1. KeepRunning: K may be
    0; the engine still runs the speculator's first pass. Skip: as KeepRunning, but while K stays 0 the steps of vLLM's
    V2 model runner skip the speculator, without a restart; elsewhere it works like KeepRunning. Remove: as KeepRunning,
    and in mode Auto the tuner replaces pods by pods without the speculator if it is useless, which frees its memory for
    the KV cache, and brings the speculator back if it is expected to pay."""
    workload: Workload = Workload.MIXED
    """The kind of text that clients mostly request. The operator uses it only to estimate acceptance before it has
    measurements. Later releases may add kinds."""
    objective: Objective = field_with_defaults(Objective)
    """The goal and the latency targets of tuning."""


_VERSION = (
    "Version of the engine in the image, which determines what the engine can do. Default: "
    + ", ".join(f"{version} for {engine}" for engine, version in DEFAULT_VERSIONS.items())
    + "."
)


class Engine(Wire):
    """The inference engine."""

    type: EngineType = EngineType.VLLM
    """Which inference engine. If it cannot do what the object asks, the object reports UnsupportedByEngine with the
    remedy (docs/engines.md lists what each engine supports)."""
    version: scalars.Version | None = Field(default=None, description=_VERSION)
    image: scalars.ImageReference | None = None
    """Container image of the engine. Default: the engine's public image of that version."""
    args: Annotated[tuple[scalars.Argument, ...], Field(max_length=128)] | None = None
    """Further arguments of the engine, one item each, without a shell. The operator refuses arguments that a field of
    this object covers."""
    env: Annotated[EnvVars, Field(max_length=64)] | None = None
    """Environment variables of the engine."""


class Accelerator(Wire):
    """The accelerators of each replica."""

    resource: scalars.ResourceName = "nvidia.com/gpu"
    """Extended resource that the pods request, as the device plug-in names it."""
    product: scalars.Product | None = None
    """Name of the accelerator, such as H100-SXM. The operator uses it for estimates before it has measurements; it does
    not select nodes."""
    per_replica: Annotated[int, scalars.whole(0, 1024)] | None = None
    """Number of accelerators of one replica. Default: the product of the verifier's three parallel sizes. 0 requests
    none and serves on CPUs."""
    hourly_cost: scalars.Money | None = None
    """Cost of one accelerator per hour, such as "5.00", in any currency, from which status shows the cost per token."""


class Rollout(Wire):
    """How the operator replaces pods."""

    model_config = config_with_rules(*rules.ROLLOUT_RULES)

    strategy: RolloutStrategy = RolloutStrategy.AUTO
    """RollingUpdate starts a new pod beside the old ones, and waits if no node has room for it; Recreate stops the old
    ones first. Auto does as RollingUpdate; if the new pod finds no node for a minute, one old pod stops for it
    (docs/operations.md). Later releases may add strategies."""
    tuning: Tuning | None = None
    """What a rollout that the tuner wants may cost (for another K if that takes a rollout, for offPolicy Remove and for
    the return from it). KeepCapacity: no pod stops before another serves; if a new pod finds no node for a minute, the
    operator takes the rollout back and proposes it in status.rollout with the command that accepts it. Interrupt: pods
    may stop serving for the length of a start. Default: KeepCapacity."""
    window: scalars.DailyWindow | None = None
    """For tuning Interrupt only: daily hours in UTC in which Interrupt applies, such as 02:00-05:00 or 22:30-04:00;
    outside them KeepCapacity applies. Default: at any time."""


class Spec(Wire):
    """The desired state."""

    model_config = config_with_rules(*rules.SPEC_RULES)

    verifier: Verifier
    """The model whose output clients receive. It checks every draft token."""
    speculator: Speculator | None = None
    """The model or lookup that proposes draft tokens for the verifier. If it is left out, the engine serves the
    verifier alone."""
    speculation: Speculation = field_with_defaults(Speculation)
    """The number of draft tokens (K), who decides about it, and for which goal."""
    engine: Engine = field_with_defaults(Engine)
    """The inference engine."""
    accelerator: Accelerator = field_with_defaults(Accelerator)
    """The accelerators of each replica."""
    replicas: Annotated[int, scalars.whole(0, MOST_REPLICAS)] = 1
    """Number of serving pods. Autoscalers change it through the scale subresource: if you use one, leave this field out
    of what you apply."""
    weights: Weights | None = None
    """How weights reach the pods, and whether the pair is checked before pods are created."""
    rollout: Rollout = field_with_defaults(Rollout)
    """How the operator replaces pods."""
    target: Target = Target.DEPLOYMENT
    """Kind of object that runs the pods. InferenceService and LLMInferenceService need KServe or OpenShift AI
    (docs/openshift-ai.md); LeaderWorkerSet, for a verifier that no single node can hold, needs LWS
    (docs/several-nodes.md). It cannot be changed."""
    nodes: Annotated[int, scalars.whole(2, MOST_NODES)] | None = None
    """For target LeaderWorkerSet: number of nodes that share the verifier of one replica. They share the accelerators
    of the replica evenly."""
    inference_service: InferenceService | None = None
    """For targets InferenceService and LLMInferenceService: how KServe and OpenShift AI show and admit the model."""
    route: Route | None = None
    """A way from a Gateway to the Service, for clients outside of the cluster. Default: none."""
    template: Template | None = None
    """A pod template that the operator merges last into its own, for everything without a field in this object."""
