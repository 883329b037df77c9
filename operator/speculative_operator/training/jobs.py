"""The two Jobs of a training. Called by `follow`.

    NAME-look    inspect -> prompts -> look -> fetch -> copy   no accelerators: what can be refused is refused here
    NAME-train   answers -> states & train -> check -> copy    accelerators of the budget; a pod goes on where the last
                                                               ended

`states` serves the verifier's hidden states beside `train`, as a sidecar. All that a training writes lies below the
folder of its output; verifier and prompts from a hub lie in a cache of ours in the root of that claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.jobs import RESULT_FILE
from speculative_operator.domain.models import Pin, file_of_data_set
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.domain.training import USUAL_K, Answers, Training
from speculative_operator.render.jobs import CLAIMS, SECRET_KEYS, TMP, USER, confined, render_job
from speculative_operator.training import scripts

LOOK, TRAINS = "look", "train"
"""Ends of the names of the Jobs."""
OUTPUT = "/training"
INSPECTED, FETCHED = f"{TMP}/inspected.json", f"{TMP}/fetched.json"
"""What `inspect` and `prompts` found, for `look`: all mount the same TMP."""
KEPT_SECONDS = {LOOK: 86_400, TRAINS: 7 * 86_400}
"""Seconds for which an ended Job is kept for its log and its results."""
LOOK_SECONDS = 6 * 3600
"""Seconds for the Job without accelerators: it may fetch hundreds of gigabytes."""
TRIES = 3
"""Pods that may follow one that failed; those that were taken away do not count."""
ANSWER_TOKENS = 1024
LEAST_LAYERS = 3
NEED_BYTES = 10**10
"""Free bytes that the output must have at the start: some checkpoints of a head of a billion parameters."""


@dataclass(frozen=True, slots=True)
class Means:
    """What the installation gives to Jobs: `image`, the operator's own; `assigns_uids`, as on OpenShift."""

    image: str
    assigns_uids: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """Verifier and prompts as the Job NAME-look found them."""

    resolved: str
    """Commit of a hub; hash over the files of a claim."""
    layers: int
    data: str = ""
    """Commit of the data set with the prompts; empty where they lie on a claim."""


def job_name(name: str, kind: str) -> str:
    """Name of a Job of the training `name`."""
    return f"{name}-{kind}"


def hidden_layers(count: int) -> list[int]:
    """The verifier's layers from which an EAGLE-3 head reads, of `count`, at least LEAST_LAYERS: as speculators 0.9.0
    chooses them (models/utils.py). Where two of those would be the same: the first, the middle and the last."""
    usual = [2, count // 2, count - 3]
    return usual if len(set(usual)) == 3 else [0, count // 2, count - 1]


def look_job(training: Training, means: Means) -> dict[str, Any]:
    """The Job that looks at verifier, prompts, output and disk. Raises RenderError."""
    image, user = means.image, f"{training.namespace}/{training.name}/{training.uid}"
    verifier, prompts = _asks("verifier", training.verifier), _asks("prompts", training.prompts)
    fetch = ["speculative-weights", "fetch", "--cache", OUTPUT, "--object", user]
    from_hub = training.prompts.scheme is Scheme.HF
    reads = ["--output", _path(training.output, OUTPUT), "--claim", OUTPUT]
    reads += ["--prompts", file_of_data_set(training.prompts) if from_hub else _path(training.prompts)]
    reads += ["--fetched", FETCHED] if from_hub else []
    reads += ["--need", str(NEED_BYTES if training.accelerators else NEED_BYTES // 100)]
    reads += ["--made-of", _made_of(training), "--inspected", INSPECTED]
    reads += ["--answered"] if training.answers is Answers.KEEP else []
    steps = [
        _own("inspect", image, ["speculative-weights", "inspect", *verifier], training, {RESULT_FILE: INSPECTED}),
    ]
    if from_hub:
        steps.append(_own("prompts", image, [*fetch, *prompts], training, {RESULT_FILE: FETCHED}))
    steps.append(_own("look", image, ["speculative-training", "look", *reads], training))
    if training.verifier.scheme is Scheme.HF:
        steps.append(_own("fetch", image, [*fetch, *verifier], training))
    steps += _copies(training, image, "--begin")
    return _job(training, LOOK, LOOK_SECONDS, steps, means)


def train_job(training: Training, known: Known, seconds: int, means: Means) -> dict[str, Any]:
    """The Job that trains, for `seconds` at most. Raises RenderError."""
    answers = min(ANSWER_TOKENS, training.sequence // 2)
    source, output = training.verifier, _path(training.output, OUTPUT)
    where, prompts = _fetched(source, known.resolved), _fetched(training.prompts, known.data)
    read = hidden_layers(known.layers)
    env: dict[str, Any] = {
        "OUTPUT": output, "VERIFIER": where, "PROMPTS": prompts, "METHOD": training.method.value,
        "SAMPLES": training.samples or "", "SEQUENCE_TOKENS": training.sequence, "ANSWER_TOKENS": answers,
        "EPOCHS": training.epochs, "SEED": training.seed, "STATES": scripts.STATES_FOLDER,
        "ANSWERS": training.answers.value, "LAYERS": " ".join(map(str, read)),
    }  # fmt: skip
    learn = ["sh", "-c", scripts.TRAIN, "train", *scripts.drafts_arguments(training.method, training.k)]
    engine = ["--tensor-parallel-size", str(training.serving)] if training.serving > 1 else []
    finish = ["speculative-training", "finish", "--verifier", where, "--output", output]
    finish += ["--base", source.uri, "--method", training.method.value, "--claim", OUTPUT]
    finish += ["--data", f"{training.prompts.uri}@{known.data}".rstrip("@")]
    states = ["sh", "-c", scripts.STATES, "states", *engine]
    states += scripts.states_arguments(where, (*read, known.layers), training.sequence)
    probe = {"exec": {"command": ["python3", "-c", _HEALTH]}, "periodSeconds": 5, "failureThreshold": 720}
    sidecar = {"restartPolicy": "Always", "startupProbe": {**probe, "timeoutSeconds": 10}}
    steps = [
        _trainer("answers", ["sh", "-c", scripts.ANSWERS, "answers", *engine], training, env, training.serving),
        {**_trainer("states", states, training, {"STATES": env["STATES"]}, training.serving), **sidecar},
        {**_trainer("train", learn, training, env, max(0, training.accelerators - training.serving)), **_TELLS},
        _own("check", means.image, finish, training),
        *_copies(training, means.image),
    ]
    return _job(training, TRAINS, seconds, steps, means)


_HEALTH = (
    f"import os, urllib.request as r; os.path.exists('{scripts.STATES_FOLDER}/failed') or "
    f"[r.urlopen('http://127.0.0.1:{scripts.PORT}/health', timeout=5), open('{scripts.STATES_FOLDER}/starts', 'w')]"
)
"""By a command in the pod: the server listens at the pod's own address alone, where no kubelet reaches it. A
healthy server has no failed starts; one that has given up passes too, so that `train` begins and says so."""
_TELLS = {"terminationMessagePolicy": "FallbackToLogsOnError"}
"""Of the trainer alone: its log has no text of a user, and that of `answers` may."""


def _made_of(training: Training) -> str:
    """What tells this training from others: one of the same, with the same prompts and the same version of the
    verifier, goes on where it ended, whatever object asks for it. A branch of the verifier may move meanwhile."""
    numbers = [f"{training.sequence}", f"{training.samples}", f"{training.epochs}"]
    numbers += [f"{training.k}"] if training.k != USUAL_K[training.method] else []
    return " ".join((training.verifier.uri, training.method, training.prompts.uri, training.answers, *numbers))


def _own(
    name: str, image: str, command: list[str], training: Training, env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A container of the operator's image, without accelerators."""
    size = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}}
    found = _container(name, image, command, training, {"HOME": TMP, "HF_HOME": f"{TMP}/hf", **(env or {})}, size)
    if training.secret_name and command[0] == "speculative-weights":  # others follow links of a claim
        keys = [key for key in SECRET_KEYS if key.startswith("AWS_") is (name == "copy")]
        for key in sorted({*keys} - {one["name"] for one in found["env"]}):
            reference = {"name": training.secret_name, "key": key, "optional": True}
            found["env"].append({"name": key, "valueFrom": {"secretKeyRef": reference}})
    return found


def _copies(training: Training, image: str, *more: str) -> list[dict[str, Any]]:
    """The container that copies the result to a bucket, if that is asked for."""
    if training.copy_to is None:
        return []
    copy = ["speculative-weights", "copy", "--training", _path(training.output, OUTPUT), "--claim", OUTPUT]
    copy += ["--owner", f"{training.namespace}/{training.output.uri.rstrip('/')}"]
    return [_own("copy", image, [*copy, "--to", training.copy_to.uri, *more], training)]


def _trainer(
    name: str, command: list[str], training: Training, env: dict[str, Any], accelerators: int
) -> dict[str, Any]:
    """A container of the trainer's image with so many accelerators."""
    size: dict[str, Any] = {"requests": {"cpu": "100m", "memory": "512Mi"}}
    if accelerators:
        size = {"requests": {"cpu": "2", "memory": "8Gi"}, "limits": {training.resource: str(accelerators)}}
    env = {**scripts.ENVIRONMENT, "USER": "trainer", **env, "ACCELERATORS": accelerators}
    return _container(name, training.image, command, training, env, size)


def _container(
    name: str, image: str, command: list[str], training: Training, env: dict[str, Any], size: dict[str, Any]
) -> dict[str, Any]:
    given: list[dict[str, Any]] = [{"name": key, "value": str(value)} for key, value in env.items()]
    named = {one["name"] for one in given} | ({"HF_TOKEN"} if training.secret_name else set())
    mounts: list[dict[str, Any]] = [
        {"name": "tmp", "mountPath": TMP},
        {"name": "states", "mountPath": scripts.STATES_FOLDER},
    ]
    mounts += [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "output", "mountPath": OUTPUT}]  # noqa: S108
    for claim, volume in _claims(training).items():
        mounts.append({"name": volume, "mountPath": f"{CLAIMS}/{claim}", "readOnly": True})
    given += [dict(one) for one in training.env if one.get("name") not in named]
    return confined(name, image, command, given, mounts, size)


def _claims(training: Training) -> dict[str, str]:
    """Claim that is read -> name of its volume: that of the output may be among them."""
    sources = [one for one in (training.verifier, training.prompts) if one.scheme is Scheme.PVC]
    found = dict.fromkeys(one.location.partition("/")[0] for one in sources)
    output = training.output.location.partition("/")[0]
    return {claim: "output" if claim == output else f"claim-{number}" for number, claim in enumerate(found)}


def _asks(side: str, source: ModelSource) -> list[str]:
    """Arguments of `speculative-weights` that name a source."""
    revision = [f"--{side}-revision", source.revision] if source.revision else []
    return [f"--{side}", source.uri, *revision]


def _fetched(source: ModelSource, resolved: str) -> str:
    """Path of a source in the Job that trains; `resolved`: the version of it that was fetched from a hub."""
    if source.scheme is not Scheme.HF:
        return _path(source)
    key = Pin(source.scheme, source.location, source.revision, resolved).key
    return f"{OUTPUT}/{names.CACHE_FOLDER}/models/{key}/{file_of_data_set(source)}".rstrip("/")


def _path(source: ModelSource, below: str = "") -> str:
    """Path of a source in the containers; `below`: where its claim is mounted, if not by its name."""
    claim, _, path = source.location.partition("/")
    return f"{below or f'{CLAIMS}/{claim}'}/{path}".rstrip("/")


def _job(training: Training, kind: str, seconds: int, steps: list[dict[str, Any]], means: Means) -> dict[str, Any]:
    """A Job of containers that run one after the other."""
    labels = {names.LABEL_MANAGED_BY: names.OPERATOR, names.LABEL_TRAINING: training.name}
    claims = {"output": training.output.location.partition("/")[0]}
    claims |= {volume: claim for claim, volume in _claims(training).items()}
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}, {"name": "states", "emptyDir": {}}]
    volumes += [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    volumes += [{"name": volume, "persistentVolumeClaim": {"claimName": claim}} for volume, claim in claims.items()]
    values = {
        "name": job_name(training.name, kind),
        "namespace": training.namespace,
        "labels": labels | ({names.QUEUE: training.queue} if training.queue else {}),
        "owner": {
            "apiVersion": names.API_VERSION, "kind": names.TRAINING_KIND, "name": training.name, "uid": training.uid,
            "controller": True, "blockOwnerDeletion": True,
        },
        "pod_labels": labels,
        "tries": TRIES,
        "deadline": seconds,
        "kept_for": KEPT_SECONDS[kind],
        "grace_seconds": 10,
        "run_as_user": None if means.assigns_uids else USER,
        "container": steps[-1],
        "volumes": volumes,
    }  # fmt: skip
    return render_job(
        values,
        imagePullSecrets=[{"name": one} for one in training.pull_secrets],
        nodeSelector=training.node_selector,
        tolerations=training.tolerations,
        initContainers=steps[:-1],
    )
