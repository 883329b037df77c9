"""Names that appear in the cluster: API group, labels, annotations, children. Used by render, reconcile and shell."""

from __future__ import annotations

GROUP = "serving.speculative.dev"
VERSION = "v1alpha1"
KIND = "SpeculativeDeployment"
PLURAL = "speculativedeployments"
API_VERSION = f"{GROUP}/{VERSION}"
TRAINING_KIND = "SpeculatorTraining"
TRAINING_PLURAL = "speculatortrainings"

OPERATOR = "speculative-operator"
FIELD_MANAGER = "speculative-operator"
INSTALLED_IN = "speculative-system"
"""Namespace of the operator in the install file and the pages: its Lease is read there by who may not list all."""

LABEL_DEPLOYMENT = f"{GROUP}/deployment"
LABEL_VARIANT = f"{GROUP}/variant"
LABEL_PAIR = f"{GROUP}/pair"
LABEL_CANDIDATE = f"{GROUP}/candidate"
"""On pods and children of a candidate: its own name. LABEL_DEPLOYMENT is there that of the object it is measured for,
whose Service therefore leads requests to it."""
LABEL_JOB = f"{GROUP}/job"
"""On Jobs and their pods: what they are for, a value of `domain.jobs.Purpose`."""
LABEL_BENCH = f"{GROUP}/bench"
"""On what `speculative bench` makes: the object that it loads. The operator makes and reads nothing of it."""
LABEL_TRAINING = f"{GROUP}/training"
"""On Jobs of a SpeculatorTraining and their pods: its name. None of them is a child of a SpeculativeDeployment."""
QUEUE = "kueue.x-k8s.io/queue-name"
"""Label by which Kueue admits Jobs: passed on from a training to its Jobs."""
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_VERSION = "app.kubernetes.io/version"
"""On pods: the engine's release that they were made for."""

ANNOTATION_HASH = f"{GROUP}/rendered-hash"
"""On every child: hash of the manifest as rendered, so that an unchanged child costs no call."""
ANNOTATION_MADE_OF = f"{GROUP}/made-of"
"""On the Deployment (the object, never the template): hash of what was asked of its pods, however they are made."""
ANNOTATION_RESOLVED = f"{GROUP}/resolved"
"""On the Deployment (the object, never the template): what the operator found out and its pods were made of
(`render.resolved`)."""
ANNOTATION_POKE = f"{GROUP}/table-version"
"""On serving pods (the object, never the template): makes the kubelet deliver a changed ConfigMap at once."""
ANNOTATION_TABLE = f"{GROUP}/table"
"""On the Deployment (the object, never the template) where the table is part of the pod template: which one that is;
and where the tuner has pods run without a speculator: which one waits."""
ANNOTATION_DEADLINE = f"{GROUP}/progress-deadline"
"""On the ServingRuntime, LLMInferenceService or LeaderWorkerSet: seconds that pods may take to become ready, where no
field tells."""
ANNOTATION_PAUSED = f"{GROUP}/paused"
"""On the SpeculativeDeployment: "true" stops every action and every decision until it is removed."""

ANNOTATION_REPIN = f"{GROUP}/repin"
"""On the SpeculativeDeployment: any new value has branches and tags resolved anew."""
ANNOTATION_ADOPT = f"{GROUP}/adopt"
"""On the SpeculativeDeployment: any new value has pods made as this release of the operator makes them. On the
Deployment: the value that its pods were made for."""
ANNOTATION_ACCEPT = f"{GROUP}/accept"
"""On the SpeculativeDeployment: has the rollout made that `status.rollout.proposal` names by this value."""
ANNOTATION_SUSPEND = f"{GROUP}/drafts-suspended-until"
"""On the SpeculativeDeployment: RFC 3339 time until which K is 0 in pods that re-read their table, so that `speculative
verify` and `speculative bench` can compare."""
ANNOTATION_VERIFIED = f"{GROUP}/outputs-verified"
"""On the SpeculativeDeployment: what `speculative verify` found (`outputs.record`)."""
ANNOTATION_BENCH = f"{GROUP}/bench-step"
"""On Jobs of `speculative bench`: what the step found (`comparing.ladder`)."""
ANNOTATION_WANTED = f"{GROUP}/wanted"
"""On Jobs: hash of what they were made for. A Job for something else is deleted, never changed."""

ANNOTATION_FILE = f"{GROUP}/file."
"""On serving pods, followed by the name of a file: its text, mounted at CONFIG_MOUNT."""

VARIANT_SPECULATIVE = "speculative"
SERVING_PORT = 8000
"""Port of the engine's HTTP server, which serves the API and its metrics."""
SERVING_PORT_NAME = "http"
KSERVE_PORT = 8080
"""Port of the engine in pods that KServe makes: proxies and monitors of OpenShift AI look for the engine there."""
TELEMETRY_PORT = 8001
"""Port on which the payload in the engine's process exports what the engine's own counters hide."""
TELEMETRY_PORT_NAME = "step-metrics"
AMBIENT_PORT = 15008
"""Where Istio's ambient mode delivers what is meant for any port of a pod."""
CONTAINER = "engine"

TABLE_KEY = "table.json"
TABLE_MOUNT = "/etc/speculative/table"
PAYLOAD_MOUNT = "/etc/speculative/payload"
CONFIG_MOUNT = "/etc/speculative/config"
"""Files of the engine that belong to the pod template: each an annotation of the pod, projected by the downward API, so
that a changed file is a new template and no pod ever starts with another one's."""
AUTHORITIES_MOUNT = "/etc/speculative/ca"
AUTHORITIES_KEY = "ca-bundle.crt"
"""Key of the user's ConfigMap of certificate authorities."""
CACHE_MOUNT = "/var/cache/speculative"
CACHE_CLAIM = "speculative-weights"
"""Name of the claim that the operator makes for weights where the user names none."""
CACHE_FOLDER = ".speculative-cache"
"""Folder in the root of a cache below which all lies that the operator's programs keep there (`own_folder`)."""
WEIGHTS_MOUNT = "/mnt/weights"
"""Where an engine finds the weights that its own pod has brought."""
JOB_CONTAINER = "weights"
"""Container that reads or fetches weights: of Jobs, and the init container of pods that fetch them themselves."""
HOLD_CONTAINER = "weights-hold"
"""Container that says as long as its pod lives that a version in a folder of the node is in use."""


def child(name: str, suffix: str = "") -> str:
    """Name of a child of the object `name`: the name itself, or with `-suffix`."""
    return f"{name}-{suffix}" if suffix else name


def notes(name: str) -> str:
    """Name of the ConfigMap in which the operator keeps what only it reads about the object `name`."""
    return child(name, "notes")


def candidate(name: str) -> str:
    """Name of the object with another speculator that is measured beside the object `name`."""
    return child(name, "candidate")


def kserve_deployment(name: str) -> str:
    """Name of the Deployment that KServe makes for the InferenceService `name`."""
    return f"{name}-predictor"


def kserve_llm_deployment(name: str) -> str:
    """Name of the Deployment that KServe makes for the LLMInferenceService `name`."""
    return f"{name}-kserve"


def published(namespace: str, model: str) -> str:
    """Name by which KServe, from release 0.19 on, publishes the model of an LLMInferenceService to clients: the only
    one by which its gateway tells models apart (pkg/controller/v1alpha2/llmisvc/router_discovery_filter.go)."""
    return f"publishers/{namespace}/models/{model}"


def group(name: str) -> str:
    """Name of the LeaderWorkerSet of the object `name`: its controller makes a headless Service of the same name, which
    must not be the one that clients use."""
    return child(name, "group")


def selector(name: str, measured_for: str = "") -> dict[str, str]:
    """Labels that select the serving pods of object `name`; immutable for the life of its Deployment. `measured_for`:
    the object whose candidate it is; empty: it is none."""
    own = {LABEL_CANDIDATE: name} if measured_for else {}
    return {LABEL_DEPLOYMENT: measured_for or name, LABEL_MANAGED_BY: OPERATOR, **own}
