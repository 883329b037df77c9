"""The Job with which `speculative bench` sends requests at one rate, and the ConfigMap of its prompts.

The load generator is GuideLLM. To count the tokens of prompts that it writes it would read the verifier's tokenizer
from a hub. Here it gets a tokenizer of single characters, and needs no hub and no token; the engine tells how many
tokens a prompt had.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from speculative_operator.domain import names
from speculative_operator.domain.spec import DeploymentSpec
from speculative_operator.render.environment import render_manifest
from speculative_operator.render.jobs import TMP, confined, pull_secrets, render_job
from speculative_operator.render.podspec import volume_at

IMAGE = "ghcr.io/vllm-project/guidellm:v0.8.1"
MARK = "speculative-bench-result"
"""Line of the log after which the table of results stands."""
CHARACTERS = 4
"""Of a token of English text, about."""
START_SECONDS = 240
"""Seconds that the load generator may take to start and to end, beside those in which it sends."""
PULL_SECONDS = 900
"""Seconds that a Job may take on top to have its image pulled."""
KEPT_SECONDS = 86_400
_DATA = "/etc/speculative-bench"
_FILE = "prompts-{}.jsonl"
_RESULT = f"{TMP}/result.csv"
_SCRIPT = f'PATH=/opt/app-root/bin:$PATH; guidellm run "$@" && echo {MARK} && cat {_RESULT}'
"""The first folder is that of GuideLLM's own image."""
_RESOURCES = {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "4", "memory": "4Gi"}}
_ENV = {"HOME": TMP, "HF_HOME": f"{TMP}/huggingface", "HF_HUB_OFFLINE": "1", "GUIDELLM__MAX_WORKER_PROCESSES": "2"}
"""Each worker process loads libraries of some hundred MB, and one sends some hundred requests a second."""


@dataclass(frozen=True, slots=True)
class Load:
    """Requests that Jobs send to one object. `url`, `model`, `path`: of its API; `key`: Secret and key of its API key.
    `data`: name of the ConfigMap; `owner`: uid of the object that owns all of it."""

    spec: DeploymentSpec
    owner: str
    url: str
    data: str
    seconds: int
    prompt_tokens: int
    output_tokens: int
    own_prompts: bool
    image: str
    model: str
    path: str
    key: tuple[str, str] | None


def load_job(load: Load, rate: str, number: int, node: str, *, pulls: bool) -> dict[str, Any]:
    """A Job that sends `rate` requests per second. `number`: each has a name and prompts of its own, so that none meets
    another one's in the engine's prefix cache; `node`: where it runs if there is room; `pulls`: it is the first, and
    may wait for its image. Raises RenderError."""
    found, env, args = _metadata(load, f"{load.data}-{number}"), _environment(load), _arguments(load, rate, number)
    tmp = volume_at("tmp", {"emptyDir": {"sizeLimit": "1Gi"}}, TMP, read_only=False)
    volumes, mounts = zip(tmp, volume_at("data", {"configMap": {"name": load.data}}, _DATA), strict=True)
    container = confined("load", load.image, ["sh", "-c", _SCRIPT, "guidellm"], env, mounts, _RESOURCES, args)
    values = {
        **found,
        "pod_labels": found["labels"],
        "tries": 0,
        "deadline": load.seconds + START_SECONDS + (PULL_SECONDS if pulls else 0),
        "kept_for": KEPT_SECONDS,
        "grace_seconds": 2,
        "container": {**container, "imagePullPolicy": "IfNotPresent"},
        "volumes": volumes,
    }
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    prefers = [{"weight": 100, "preference": {"matchExpressions": [here]}}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": prefers}} if node else {}
    return render_job(values, imagePullSecrets=pull_secrets(load.spec), affinity=affinity)


def prompts_map(load: Load, own: Sequence[str], steps: int) -> dict[str, Any]:
    """The ConfigMap that the Jobs read: the tokenizer, and for each step a share of the user's prompts, all of them
    where there are fewer than steps. Raises RenderError."""
    files = _tokenizer()
    for number in range(steps if own else 0):
        share = own[number::steps] or own
        files[_FILE.format(number)] = "".join(f"{json.dumps({'prompt': one})}\n" for one in share)
    return render_manifest("configmap", {**_metadata(load, load.data), "data": files, "immutable": True})


def _metadata(load: Load, name: str) -> dict[str, Any]:
    """No label by which the operator knows its own; an owner that blocks no deletion, for which users of some clusters
    lack the right."""
    return {
        "name": name,
        "namespace": load.spec.namespace,
        "labels": {names.LABEL_BENCH: load.spec.name},
        "owner": {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": load.spec.name, "uid": load.owner},
    }


def _tokenizer() -> dict[str, str]:
    """Files of a tokenizer as `transformers` reads it, each of whose tokens is a printable ASCII character."""
    letters = {chr(code): place for place, code in enumerate(range(33, 127))} | {"\u0120": 94}  # U+0120: a blank
    bytewise = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    model = {"type": "BPE", "vocab": letters, "merges": []}
    tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": bytewise, "decoder": bytewise, "model": model}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 10**9}
    return {"tokenizer.json": json.dumps(tokenizer), "tokenizer_config.json": json.dumps(config)}


def _arguments(load: Load, rate: str, number: int) -> list[str]:
    words = {"prompt_tokens": load.prompt_tokens * CHARACTERS, "output_tokens": load.output_tokens}
    own = {"kind": "json_file", "path": f"{_DATA}/{_FILE.format(number)}"}
    parts: dict[str, dict[str, Any]] = {
        "backend": {
            "kind": "openai_http", "target": load.url, "request_format": load.path, "max_tokens": load.output_tokens,
            **({"model": load.model} if load.model else {}),
        },
        "profile": {"kind": "constant", "rate": rate},
        "constraint": {"kind": "max_duration", "seconds": load.seconds},
        "data": own if load.own_prompts else {"kind": "synthetic_text", **words},
        "tokenizer": {"kind": "huggingface_auto", "model": _DATA},
        "seed": {"kind": "static", "value": number},
        "metrics": {"kind": "generative", "sample_size": 0},
        "output": {"kind": "csv", "path": _RESULT},
    }  # fmt: skip
    given = ["--disable-console-interactive"]
    for option, fields in parts.items():
        given += [f"--{option}", ",".join(f"{name}={value}" for name, value in fields.items())]
    return given


def _environment(load: Load) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in _ENV.items()]
    if load.key is not None:
        reference = {"secretKeyRef": {"name": load.key[0], "key": load.key[1]}}
        found.append({"name": "GUIDELLM__SPEC__BACKEND__API_KEY", "valueFrom": reference})
    return found
