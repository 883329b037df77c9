"""The spec that users write: its wire types, from which the CRD's schema, docs/api.md and `kubectl explain` are made.

Docstrings below are what users read. `convert` turns a validated object into `domain.spec.DeploymentSpec`.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import Field

from speculative_operator.api import rules, scalars
from speculative_operator.api.compiled import CompileCache
from speculative_operator.api.pod import EnvVar, Template
from speculative_operator.api.rollout_rules import ROLLOUT_RULES
from speculative_operator.api.weights import Weights
from speculative_operator.api.wire import Wire, ruled
from speculative_operator.domain.spec import (
    DEFAULT_VERSIONS,
    EngineType,
    Goal,
    Method,
    Mode,
    OffPolicy,
    PerRequest,
    RolloutStrategy,
    Target,
    Tuning,
    Workload,
)

MOST_REPLICAS = 1000
MOST_TOKENS = 64
MOST_SEQUENCES = 65536
MOST_BANDS = 64
MOST_BATCHED_TOKENS = 16_777_216
HIGHEST_RANK = 4096
LONGEST_LOOKUP = 1024

Model = TypeVar("Model", bound=Wire)


def defaulted(model: type[Model]) -> Any:
    """A field whose object is there with its own defaults when the user leaves it out."""
    return Field(default_factory=model, json_schema_extra={"default": {}})


# Later booleans have no default in the schema: the API server would fill it in for objects of long ago, and an operator
# that is older than the definition refuses fields that it does not know.
Flag = Annotated[bool, Field(strict=True)]


class Lora(Wire):
    """Low-rank adapters that requests may name."""

    max_adapters: Annotated[int, scalars.whole(1, 1024)] = 1
    """Most adapters in one batch."""
    max_rank: Annotated[int, scalars.whole(1, HIGHEST_RANK)] = 16
    """Largest rank of an adapter. vLLM takes 1, 8, 16, 32, 64, 128, 256, 320 and 512."""


class Verifier(Wire):
    """The model that is served. It checks every drafted token: its output is what clients get."""

    model_config = ruled(*rules.MODEL_RULES)

    model: scalars.ModelUri
    """Where the weights are: hf://ORGANISATION/MODEL, oci://REGISTRY/REPOSITORY:TAG, s3://BUCKET/PREFIX or
    pvc://CLAIM/PATH. s3:// needs weights.cache; without it, it is reported as UnsupportedSource."""
    revision: scalars.Revision | None = None
    """hf:// only: branch, tag or commit. Default: the repository's main branch."""
    served_name: scalars.ServedName | None = None
    """Name of the model in the API that clients use. Default: metadata.name."""
    tensor_parallel_size: scalars.Parallelism = 1
    """Accelerators that each layer is split over."""
    pipeline_parallel_size: scalars.Parallelism = 1
    """Stages that the layers are split into."""
    data_parallel_size: scalars.Parallelism = 1
    """Copies of the model within one replica. Above 1, engines hold one K for all loads."""
    max_model_len: Annotated[int, scalars.whole(1, 100_000_000)] | None = None
    """Most tokens of one request, prompt and output together. Default: what the model's configuration says."""
    max_num_seqs: Annotated[int, scalars.whole(1, MOST_SEQUENCES)] | None = None
    """Most requests of one replica that run at once; the table of K ends there. Default: the engine's."""
    dtype: scalars.EngineWord | None = None
    """Number format of weights and activations, as the engine spells it, such as bfloat16. Default: the model's."""
    quantization: scalars.EngineWord | None = None
    """Quantization method, as the engine spells it, such as fp8. Default: what the checkpoint says."""
    kv_cache_dtype: scalars.EngineWord | None = None
    """Number format of the KV cache, as the engine spells it, such as fp8. Default: that of the activations."""
    gpu_memory_utilization_percent: Annotated[int, scalars.whole(1, 100)] | None = None
    """Share of accelerator memory that the engine takes. Default: the engine's."""
    max_num_batched_tokens: Annotated[int, scalars.whole(1, MOST_BATCHED_TOKENS)] | None = None
    """Most tokens that one step computes, prompts and drafts of all requests together: max_num_batched_tokens of vLLM,
    chunked_prefill_size of SGLang, max_num_tokens of TensorRT-LLM, max_batch_prefill_tokens of TGI. Default: the
    engine's, for vLLM with room for every draft."""
    expert_parallel: Flag | None = None
    """True: the experts of a mixture-of-experts model are spread over the accelerators instead of each being split.
    vLLM, SGLang and TensorRT-LLM. Default: false."""
    lora: Lora | None = None
    """Adapters that requests may name. vLLM, SGLang (beside some methods only) and TensorRT-LLM. Left out: none."""


class PromptLookup(Wire):
    """Which runs of tokens ngram looks up in the text so far."""

    model_config = ruled(*rules.LOOKUP_RULES)

    min: Annotated[int, scalars.whole(1, LONGEST_LOOKUP)] | None = None
    """Shortest run that counts as found. vLLM only. Default: max, or the engine's own choice."""
    max: Annotated[int, scalars.whole(1, LONGEST_LOOKUP)] | None = None
    """Longest run looked for. vLLM, and TensorRT-LLM for ngram. Default: min, or the engine's own choice."""


class Speculator(Wire):
    """What drafts. Left out, or without drafts worth their cost, the verifier is served alone."""

    model_config = ruled(*rules.SPECULATOR_RULES)

    auto: Flag | None = None
    """True, in place of method and all else here: the operator picks what is publicly known for the verifier from its
    catalogue (docs/catalogue.md), tells what and why in status.picked and an event, and keeps to it until the verifier
    changes or the annotation serving.speculative.dev/repin has a new value. Where nothing is known the verifier is
    served alone. Default: false."""
    method: Method | None = None
    """How tokens are drafted, as engines spell it. By looking up the text: ngram, ngram_gpu, suffix. By weights of
    their own: draft_model, eagle, eagle3, dflash, mlp_speculator. By weights that may sit in the verifier: mtp,
    dspark, medusa. Needed unless auto is true."""
    model: scalars.ModelUri | None = None
    """Where the drafting weights are, written as for the verifier. Left out for ngram, ngram_gpu and suffix, and
    where the weights sit in the verifier. With vLLM, verifier and speculator may name one and the same checkpoint of
    the speculators format: it says itself which verifier it was made for, and that one is served."""
    revision: scalars.Revision | None = None
    """hf:// only: branch, tag or commit. Default: the repository's main branch."""
    tensor_parallel_size: scalars.Parallelism | None = None
    """Accelerators that the drafting weights are split over: 1 or as the verifier's, for draft_model always as the
    verifier's. Default: the verifier's."""
    quantization: scalars.EngineWord | None = None
    """Quantization method of the drafting weights, as the engine spells it, such as fp8. vLLM and SGLang. Default: what
    their checkpoint says."""
    parallel_drafting: Flag | None = None
    """True: the weights were trained to draft all tokens in one pass (P-EAGLE for eagle and eagle3, PARD for
    draft_model). vLLM, and PARD with TensorRT-LLM. Default: false."""
    heterogeneous_vocabulary: Flag | None = None
    """draft_model only, with vLLM. True: its vocabulary differs from the verifier's, and tokens are translated.
    Default: false."""
    prompt_lookup: PromptLookup | None = None
    """ngram and ngram_gpu only: which runs of tokens are looked up in the text so far. vLLM and TensorRT-LLM. Default:
    the engine's choice."""


class Objective(Wire):
    """What speculation is tuned for."""

    goal: Goal = Goal.GOODPUT
    """Goodput: most tokens per second within the bounds below. Latency: least time per token. Throughput: most tokens
    per second whatever the latency. Cost: fewest accelerator-seconds per token. More may be added."""
    tpot_p99: scalars.Duration | None = Field(default=None, alias="tpotP99")
    """Bound on the time per output token that 99 % of requests should keep, such as 40ms."""
    ttft_p99: scalars.Duration | None = Field(default=None, alias="ttftP99")
    """Bound on the time to the first token that 99 % of requests should keep, such as 1s."""


Cell = Annotated[int, scalars.whole(0, MOST_SEQUENCES)]
Row = Annotated[tuple[Cell, ...], Field(min_length=3, max_length=3)]


class Speculation(Wire):
    """How many tokens are drafted (K), who decides, and for what."""

    model_config = ruled(*rules.SPECULATION_RULES)

    mode: Mode = Mode.AUTO
    """Auto: the operator measures and decides. Recommend: it decides and shows what it would do, and does nothing.
    Static: K is as written here. "Off": serve without the speculator; in YAML it needs the quotes, a bare Off is read
    as false. More may be added."""
    num_speculative_tokens: Annotated[int, scalars.whole(0, MOST_TOKENS)] | None = None
    """Tokens drafted per step (K). Static: what is in force where schedule is empty. Auto and Recommend: where to
    start. Default: chosen from what is known of method and hardware."""
    max_speculative_tokens: Annotated[int, scalars.whole(1, MOST_TOKENS)] = 8
    """Largest K ever used. The engine reserves memory for it."""
    schedule: Annotated[tuple[Row, ...], Field(max_length=MOST_BANDS)] | None = None
    """Static: K by number of requests that the engine schedules in a step, as bands [first, last, K] with both ends
    included, from 1 on without gap. The last band holds above its end too. K 0 drafts nothing. Takes precedence over
    numSpeculativeTokens."""
    off_policy: OffPolicy = OffPolicy.SOFT
    """What the operator may do where drafts cost more than they give. Never: at least one token is drafted. Soft: K
    0, the speculator stays loaded. Live: as Soft, and where K 0 lasts vLLM leaves the speculator out of its steps,
    with no restart, until K rises; where pods cannot do so it is reported, and they do as with Soft. Hard: as Soft,
    and in mode Auto pods are rolled without the speculator where it is dead weight, which gives its memory to the
    KV cache, and with it again when it is expected to pay."""
    per_request: PerRequest | None = None
    """Whether the drafts of single requests may be withheld. Auto: a request whose drafts keep being rejected gets none
    to verify until one that is tried now and then is accepted; with 8 or more requests in a step. Outputs stay the
    verifier's. In force with ngram on vLLM where K changes live, in every mode but "Off"; elsewhere it is reported as
    PerRequestUnused. By the cost model it gives nothing where requests are alike, and 3 to 9 % more tokens per second
    at 32 and more requests where drafts hardly ever hit for a tenth to a quarter of them. Default: Never."""
    workload: Workload = Workload.MIXED
    """What clients mostly ask for: where to expect acceptance before it was measured, nothing more. More may be
    added."""
    objective: Objective = defaulted(Objective)
    """What speculation is tuned for."""


_VERSION = (
    "Version of the engine in the image: what it can do is decided by it. Default: "
    + ", ".join(f"{version} for {engine}" for engine, version in DEFAULT_VERSIONS.items())
    + "."
)


class Engine(Wire):
    """The program that serves."""

    model_config = ruled(*rules.ENGINE_RULES)

    type: EngineType = EngineType.VLLM
    """Which engine. What an engine cannot do for a spec is reported as UnsupportedByEngine, with the remedy
    (docs/engines.md lists what each can)."""
    version: scalars.Version | None = Field(default=None, description=_VERSION)
    image: scalars.ImageReference | None = None
    """Image. Default: the engine's public image of that version."""
    args: Annotated[tuple[scalars.Argument, ...], Field(max_length=128)] | None = None
    """Further arguments of the engine, each an item of its own, never through a shell. Those that fields here stand
    for are refused."""
    env: (
        Annotated[
            tuple[EnvVar, ...],
            Field(
                max_length=64,
                json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            ),
        ]
        | None
    ) = None
    """Environment variables of the engine."""
    compile_cache: CompileCache | None = None
    """Where what the engine compiles at its start is kept, so that restarted and further pods of the same pair, image,
    arguments and kind of node need not compile it again (docs/startup.md). vLLM and SGLang; elsewhere it is reported as
    CompileCacheUnused. Left out: every pod compiles."""


class Accelerator(Wire):
    """What each replica runs on."""

    resource: scalars.ResourceName = "nvidia.com/gpu"
    """Extended resource to ask for, as the device plug-in names it."""
    product: scalars.Product | None = None
    """Name of the accelerator, such as H100-SXM: for estimates before anything was measured. It does not select
    nodes."""
    per_replica: Annotated[int, scalars.whole(0, 1024)] | None = None
    """Accelerators of one replica: the product of the verifier's three parallel sizes, which is the default. 0 asks
    for none, to serve on CPUs."""
    hourly_cost: scalars.Money | None = None
    """Cost of one accelerator for one hour, such as "5.00", in any currency: for the cost per token in status."""


class Rollout(Wire):
    """How a change of the pods is carried out."""

    model_config = ruled(*ROLLOUT_RULES)

    strategy: RolloutStrategy = RolloutStrategy.AUTO
    """RollingUpdate starts a new pod beside the old ones, Recreate ends the old ones first. Auto looks: beside the old
    ones where a spare replica is proven to fit on a node (docs/operations.md); else one after the other; a single
    replica is recreated. More may be added."""
    tuning: Tuning | None = None
    """What a rollout that nobody asked for may cost: of the tuner, for another K where that takes a rollout, for
    offPolicy Hard and the return from it. KeepCapacity: it is made only where a new pod is proven to fit beside the old
    ones, so that none goes before another serves; elsewhere it is proposed in status.rollout, with the command that
    accepts it. Interrupt: it is made at once, also where pods stop serving for the length of a start. Default:
    KeepCapacity."""
    window: scalars.DailyWindow | None = None
    """tuning Interrupt only: hours of the day, in UTC, in which it applies, such as 02:00-05:00 or 22:30-04:00; outside
    them it is as KeepCapacity. Left out: at any time."""


class Spec(Wire):
    """What is wanted."""

    model_config = ruled(*rules.SPEC_RULES)

    verifier: Verifier
    """The model that is served. It checks every drafted token: its output is what clients get."""
    speculator: Speculator | None = None
    """What drafts tokens for the verifier. Left out, the verifier is served alone."""
    speculation: Speculation = defaulted(Speculation)
    """How many tokens are drafted (K), who decides, and for what."""
    engine: Engine = defaulted(Engine)
    """The program that serves."""
    accelerator: Accelerator = defaulted(Accelerator)
    """What each replica runs on."""
    replicas: Annotated[int, scalars.whole(0, MOST_REPLICAS)] = 1
    """Serving pods wanted. Autoscalers change it through the scale subresource: leave it out of what is applied
    then."""
    weights: Weights | None = None
    """How weights reach the pods, and what is looked at before any pod is made."""
    rollout: Rollout = defaulted(Rollout)
    """How a change of the pods is carried out."""
    target: Target = Target.DEPLOYMENT
    """What kind of object runs the pods. This release makes a Deployment; the others are reported as
    UnsupportedTarget."""
    template: Template | None = None
    """A pod template, merged last into the one that the operator makes: the way to what has no field here."""
