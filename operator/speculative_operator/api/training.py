"""The kind SpeculatorTraining: the wire types of its spec and status, its rules, and how the operator reads it.

Docstrings of the types are what users read; `crd` makes the definition of them. `shell.trainings` calls `to_training`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationError

from speculative_operator.api import rules, scalars
from speculative_operator.api.pod import EnvVars
from speculative_operator.api.status import Condition
from speculative_operator.api.v1alpha1 import field_with_defaults
from speculative_operator.api.wire import Rule, SpecError, Wire, config_with_rules
from speculative_operator.domain import names, training
from speculative_operator.domain.reading import mapping, text, whole
from speculative_operator.domain.spec import ModelSource, Scheme

NAME_LIMIT = 50
"""Characters of metadata.name: names of Jobs add six and names of their pods six more, and labels end at 63."""

VERIFIER_RULE = Rule(
    "training-verifier-source",
    "self.model.startsWith('hf://') || self.model.startsWith('pvc://')",
    'model is "{self.model}": write hf://ORGANISATION/MODEL or pvc://CLAIM/PATH, which the Jobs can read',
    "model",
)
PROMPTS_RULES = (
    Rule(
        "training-prompts-source",
        "self.prompts.matches('^(pvc://[^/]+|hf://datasets/[^/]+/[^/]+)/.+[.]jsonl$')",
        'prompts is "{self.prompts}": write pvc://CLAIM/FILE.jsonl, a file of a claim of this namespace, or '
        "hf://datasets/ORGANISATION/NAME/FILE.jsonl, a file of a data set; other formats, such as Parquet, are not "
        "read, so write them as JSON lines first",
        "prompts",
    ),
    Rule(
        "training-prompts-revision",
        "!has(self.revision) || self.prompts.startsWith('hf://')",
        'revision is "{self.revision}" but prompts is "{self.prompts}": remove revision, which applies to hf:// only',
        "revision",
        "FieldValueForbidden",
    ),
)
NAME_RULES = (
    Rule(
        "training-name",
        f"size(self.metadata.name) <= {NAME_LIMIT} && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        'metadata.name is "{self.metadata.name}": use at most '
        f"{NAME_LIMIT} lower-case letters, digits and -, beginning with a letter, because Jobs carry the name",
        "metadata.name",
    ),
)
TRAINING_STAYS = Rule(
    "training-stays",
    "self == oldSelf",
    "spec cannot be changed, because its Jobs may run: delete this object and create another; it goes on from what the "
    "first has written to output if verifier, method, data, sequenceLength and epochs are the same",
)
TRAINING_RULES = (
    TRAINING_STAYS,
    Rule(
        "training-output",
        "self.output.startsWith('pvc://')",
        'output is "{self.output}": write pvc://CLAIM/PATH, a folder of a claim of this namespace, for checkpoints; '
        "copyTo may have s3://BUCKET/PATH, to which the result is copied",
        "output",
    ),
    Rule(
        "training-copy-to",
        "!has(self.copyTo) || self.copyTo.matches('^s3://[^/]+/.+')",
        'copyTo is "{self.copyTo}": write s3://BUCKET/PATH, a folder of a bucket; output has the result on a claim',
        "copyTo",
    ),
    Rule(
        "training-output-folder",
        "!self.output.startsWith('pvc://') || self.output.matches('^pvc://[^/]+/.+')",
        'output is "{self.output}": add a folder, as in pvc://CLAIM/PATH, because the claim may hold other files',
        "output",
    ),
    Rule(
        "training-output-apart",
        "[self.verifier.model, self.data.prompts].all(one, !(one + '/').startsWith(self.output + '/') "
        "&& !(self.output + '/').startsWith(one + '/'))",
        'output is "{self.output}", which holds the verifier or the prompts or lies in them: write another folder',
        "output",
    ),
    Rule(
        "training-one-pass",
        "self.method != 'peagle' || !has(self.maxSpeculativeTokens) || self.maxSpeculativeTokens > 1",
        "maxSpeculativeTokens is 1 but method is peagle, which drafts several tokens in one pass: write a larger "
        "number, or method eagle3",
        "maxSpeculativeTokens",
    ),
    Rule(
        "training-accelerators",
        "self.budget.accelerators == 0 || self.budget.accelerators > self.verifier.tensorParallelSize",
        "accelerators is {#self.budget.accelerators} but verifier.tensorParallelSize is "
        "{#self.verifier.tensorParallelSize}: write a larger number, because the others train",
        "budget.accelerators",
    ),
)


class TrainedVerifier(Wire):
    """The model whose output clients receive, and for which the speculator is trained."""

    model_config = config_with_rules(*rules.MODEL_RULES, VERIFIER_RULE)

    model: scalars.ModelUri
    """Address of the weights: hf://ORGANISATION/MODEL or pvc://CLAIM/PATH. Train for the checkpoint that you serve."""
    revision: scalars.Revision | None = None
    """For hf:// only: branch, tag or commit. Default: the repository's main branch."""
    tensor_parallel_size: scalars.Parallelism = 1
    """Number of accelerators that serve the verifier, out of budget.accelerators. The others train."""


class Data(Wire):
    """The prompts from which the speculator learns. Whether they may be used for it is yours to know."""

    model_config = config_with_rules(*PROMPTS_RULES)

    prompts: scalars.PromptsUri
    """Address of a file with the prompts: pvc://CLAIM/FILE.jsonl, or hf://datasets/ORGANISATION/NAME/FILE.jsonl. A line
    is an object with messages or conversations (a chat), or prompt (a text) (docs/training.md)."""
    revision: scalars.Revision | None = None
    """For hf:// only: branch, tag or commit of the data set. Default: its main branch."""
    answers: training.Answers = training.Answers.REGENERATE
    """Regenerate: the verifier answers every prompt anew, because the speculator must guess what the verifier would
    say. Keep: the conversations have answers that this verifier wrote, which saves their time."""
    max_samples: Annotated[int, scalars.whole(1, 10_000_000)] | None = None
    """Largest number of prompts that are read. Default: all."""


class Budget(Wire):
    """What the training may take. Nothing is used beyond it."""

    accelerators: Annotated[int, scalars.whole(0, 64)]
    """Number of accelerators of the one pod that trains: those that serve the verifier and those that train, so at
    least 2. 0 requests none and trains on CPUs, for tests."""
    hours: Annotated[int, scalars.whole(1, 720)]
    """Hours after which the training is stopped, from the start of its Job on; waiting for a node counts."""


class TrainingAccelerator(Wire):
    """The accelerators of the pod that trains."""

    resource: scalars.ResourceName = "nvidia.com/gpu"
    """Extended resource that the pod requests, as the device plug-in names it."""
    product: scalars.Product | None = None
    """Name of the accelerator, such as H100-SXM, by which the operator asks before the start whether the memory
    suffices; it does not select nodes. Default: the memory is not checked."""
    hourly_cost: scalars.Money | None = None
    """Cost of one accelerator per hour, such as "5.00", in any currency, from which status shows the cost so far."""


class TrainingWeights(Wire):
    """How the Jobs reach hub and bucket."""

    secret_name: scalars.ObjectName | None = None
    """Secret in the same namespace with the key HF_TOKEN for hf://, and AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
    AWS_REGION for copyTo."""
    env: Annotated[EnvVars, Field(max_length=32)] | None = None
    """Environment variables of all containers, such as HTTPS_PROXY, HF_ENDPOINT or AWS_ENDPOINT_URL."""


_Words = Annotated[dict[str, Annotated[str, Field(max_length=317)]], Field(max_length=16)]


class Placement(Wire):
    """Where the pods run."""

    node_selector: _Words | None = None
    """Labels of the nodes."""
    tolerations: Annotated[tuple[_Words, ...], Field(max_length=16)] | None = None
    """Taints of the nodes, each with key, operator, value and effect as in every pod."""
    image_pull_secrets: Annotated[tuple[scalars.ObjectName, ...], Field(max_length=8)] | None = None
    """Names of Secrets for registries."""


class TrainingSpec(Wire):
    """The training that is asked for. It cannot be changed."""

    model_config = config_with_rules(*TRAINING_RULES)

    verifier: TrainedVerifier
    """The model for which the speculator is trained."""
    method: training.Trained = training.Trained.EAGLE3
    """Method of drafting: eagle3, peagle (EAGLE-3 that drafts all tokens in one pass) or dflash (a block in one pass)
    (docs/training.md). Later releases may add methods."""
    max_speculative_tokens: Annotated[int, scalars.whole(1, 31)] | None = None
    """Largest K that the speculator learns to draft. Default: 3 with eagle3, 8 with peagle, 15 with dflash."""
    data: Data
    """The prompts from which it learns."""
    budget: Budget
    """What the training may take."""
    output: scalars.ModelUri
    """Folder for checkpoints and result: pvc://CLAIM/PATH, on a claim that exists. The operator never removes it. A
    folder with other files, or another training, is refused (OutputForeign)."""
    copy_to: scalars.ModelUri | None = None
    """Folder in S3, s3://BUCKET/PATH, to which the result is copied from output at the end; status.speculator then has
    this address. A folder with other files is refused (OutputForeign)."""
    sequence_length: Annotated[int, scalars.whole(64, 131_072)] = 4096
    """Largest number of tokens of a prompt with its answer; longer ones are cut."""
    epochs: Annotated[int, scalars.whole(1, 100)] = 10
    """How often the training goes through the data. Each epoch ends with a checkpoint."""
    accelerator: TrainingAccelerator = field_with_defaults(TrainingAccelerator)
    """The accelerators of the pod that trains."""
    image: scalars.ImageReference | None = None
    """Image with vLLM and the library speculators. Default: the operator's setting TRAINER_IMAGE, which belongs to this
    release."""
    weights: TrainingWeights | None = None
    """How the Jobs reach the hub."""
    pod: Placement | None = None
    """Where the pods run."""
    try_on: scalars.ObjectName | None = None
    """Name of a SpeculativeDeployment of this namespace that serves the verifier. status.tryWith then has the canary
    that puts the result beside it. Nothing is started by itself."""


class TrainingStatus(Wire):
    """The observed state."""

    observed_generation: scalars.Long | None = None
    """Generation of the spec that the operator last looked at."""
    stage: scalars.Line | None = None
    """Preparing, Answering, Training, Checking, Done or Failed."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=4)] = ()
    """Trained: True at the end, False with its reason if the training failed, Unknown while it runs. AcceptanceHolds:
    False if acceptance in service was below 90 % of what was expected for a week."""
    step: scalars.Count | None = None
    """Steps of the stage that are done."""
    steps: scalars.Count | None = None
    """Steps of the stage."""
    progress: scalars.Line | None = None
    """Progress of the stage in short form, such as 61%."""
    loss: scalars.Line | None = None
    """Loss of the training at its last report."""
    expected_acceptance: scalars.Line | None = None
    """Acceptance length that the held-out part of the data lets expect, in tokens per step of the verifier."""
    expected_acceptance_by_k: Annotated[tuple[scalars.Line, ...], Field(max_length=64)] = ()
    """The same for K = 1, 2 and so on."""
    time_left: scalars.Line | None = None
    """Time until the end of the stage at its present pace."""
    cost: scalars.Line | None = None
    """Cost of the accelerators so far, from the start of the pod on, if accelerator.hourlyCost is set."""
    job_started_at: scalars.Time | None = None
    """Start of the Job that trains: the budget's hours count from here."""
    running_since: scalars.Time | None = None
    """Start of the first pod that had accelerators."""
    stage_since: scalars.Time | None = None
    """Time of the first report of the stage, from whose step on the pace is reckoned."""
    stage_step: scalars.Count | None = None
    """Step of that report."""
    ended_at: scalars.Time | None = None
    """End of the training; accelerators are free from then on."""
    speculator: Annotated[str, Field(max_length=1024)] | None = None
    """Address of the trained speculator, for speculator.model of a SpeculativeDeployment."""
    data_digest: scalars.Line | None = None
    """Digest of the prompts, as in the model card."""
    samples: scalars.Long | None = None
    """Number of prompts."""
    verifier_version: scalars.Line | None = None
    """Version of the verifier for which the speculator is trained: a commit of hf://, a hash over all files of pvc://."""
    data_version: scalars.Line | None = None
    """Commit of the data set with the prompts, if they are of a hub."""
    verifier_layers: scalars.Count | None = None
    """Number of its layers."""
    try_with: scalars.Sentence | None = None
    """The command that starts the canary, if tryOn is set."""
    acceptance_below_since: scalars.Time | None = None
    """Time since which every look found the speculator's acceptance in service below 90 % of what was expected."""
    retrain_with: scalars.Sentence | None = None
    """The command that trains another speculator on new prompts, if acceptance fell."""


def to_training(body: Mapping[str, Any], image: str) -> training.Training:
    """The training that an object asks for. `image`: of objects that name none. Raises SpecError."""
    meta = mapping(body, "metadata")
    try:
        wanted = TrainingSpec.model_validate(body.get("spec"))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise SpecError(".".join(map(str, ("spec", *first["loc"]))), first["input"], first["msg"]) from None
    weights, pod, accelerator = wanted.weights or TrainingWeights(), wanted.pod or Placement(), wanted.accelerator
    return training.Training(
        name=text(meta, "name"),
        namespace=text(meta, "namespace"),
        uid=text(meta, "uid"),
        generation=whole(meta, "generation"),
        verifier=_source(wanted.verifier.model, wanted.verifier.revision),
        prompts=_source(wanted.data.prompts, wanted.data.revision),
        output=_source(wanted.output, None),
        copy_to=_source(wanted.copy_to, None) if wanted.copy_to else None,
        accelerators=wanted.budget.accelerators,
        hours=wanted.budget.hours,
        method=wanted.method,
        k=wanted.max_speculative_tokens or training.USUAL_K[wanted.method],
        answers=wanted.data.answers,
        serving=min(wanted.verifier.tensor_parallel_size, wanted.budget.accelerators),
        samples=wanted.data.max_samples or 0,
        sequence=wanted.sequence_length,
        epochs=wanted.epochs,
        resource=accelerator.resource,
        product=accelerator.product or "",
        hourly_cost=float(accelerator.hourly_cost) if accelerator.hourly_cost else None,
        image=wanted.image or image,
        secret_name=weights.secret_name or "",
        env=tuple(one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in weights.env or ()),
        node_selector=pod.node_selector or {},
        tolerations=pod.tolerations or (),
        pull_secrets=pod.image_pull_secrets or (),
        try_on=wanted.try_on or "",
        queue=text(mapping(meta, "labels"), names.QUEUE),
    )


def _source(uri: str, revision: str | None) -> ModelSource:
    scheme, _, location = uri.partition("://")
    if scheme == Scheme.HF and not revision:  # as speculative-weights reads it, which fetches
        location, _, revision = location.partition("@")
    return ModelSource(Scheme(scheme), location.rstrip("/"), revision or "")
