"""Objects that are accepted, and objects that are refused with what the refusal must say.

Shared by tests/contract/test_spec_constraints.py (a real API server) and tests/unit/api (the same constraints in
Python).
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speculative_operator.api.crd import schema
from speculative_operator.api.rules import ALL_RULES
from speculative_operator.api.wire import VALIDATIONS

VERIFIER = "hf://Qwen/Qwen3-8B"
DRAFT = "hf://Qwen/Qwen3-0.6B"
ABSENT = object()


def specdep(changes: Mapping[str, Any] | None = None, name: str = "pair") -> dict[str, Any]:
    """A small accepted object with fields set (dotted path from spec to value) or, by ABSENT, taken out."""
    spec: dict[str, Any] = {
        "verifier": {"model": VERIFIER},
        "speculator": {"method": "draft_model", "model": DRAFT},
    }
    for path, value in (changes or {}).items():
        *parents, last = path.split(".")
        node = spec
        for key in parents:
            if not isinstance(node.get(key), dict):  # another change has taken it out, or put a plain value there
                node[key] = {}
            node = node[key]
        if value is ABSENT:
            node.pop(last, None)
        else:
            node[last] = copy.deepcopy(value)
    return {
        "apiVersion": "serving.speculative.dev/v1alpha1",
        "kind": "SpeculativeDeployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


RULES = {rule.id: rule for rule in ALL_RULES}


@dataclass(frozen=True)
class Bad:
    """A refused object. `field`, `value` and `remedy` must be in what the API server says about one cause."""

    name: str
    changes: Mapping[str, Any]
    field: str
    value: str
    remedy: str
    in_python: str = ""
    """Remedy as `to_domain` words it, where it differs: for what the schema refuses."""
    rule: str = ""
    """Id of the CEL rule of `api.rules` that refuses it; empty: the schema does."""
    said: tuple[str, ...] = ()
    """What a rule's message must say beside the words that stand in the rule."""

    def body(self) -> dict[str, Any]:
        return specdep(self.changes)

    def is_told_by(self, field: str, message: str) -> bool:
        """Whether a refusal names the field, and says what it must."""
        if not self.rule:
            return field.startswith(self.field) and self.value in message and self.remedy in message
        rule = RULES[self.rule]
        words = (*re.split(r"[{}]", rule.text)[::2], *self.said)
        return field.endswith(rule.field) and all(one in message for one in words)


def broken(rule: str, changes: Mapping[str, Any], *said: str) -> Bad:
    """An object that breaks a rule of the API."""
    return Bad(rule, changes, "", "", "", rule=rule, said=said)


TYPES = {str: "string", int: "integer", bool: "boolean", dict: "object", list: "array"}
REMEDIES = {
    "string": "use a string", "integer": "use a whole number", "boolean": "use true or false",
    "object": "use an object",
}  # fmt: skip
"""Type of a field -> the operator's remedy for a value of another type."""


SCHEMA = schema()


def wrong(path: str, value: Any, beside: Mapping[str, Any] | None = None) -> Bad:
    """An object with a value that its field itself does not take, beside other changes."""
    node = SCHEMA["properties"]["spec"]
    for part in path.split("."):
        node = node["properties"][part]
    return Bad(f"{path}={value}", {**(beside or {}), path: value}, f"spec.{path}", *_refusal(node, value))


def _refusal(node: Mapping[str, Any], value: Any) -> tuple[str, str, str]:
    """Value and remedy as the API server words them by the schema of the field, and the operator's remedy."""
    kind, given = node.get("type"), TYPES.get(type(value), "")
    if "enum" in node:
        first = node["enum"][0]
        return json.dumps(value), f'supported values: "{first}"', f"use one of '{first}'"
    if kind in REMEDIES and kind != given:
        return given, f"must be of type {kind[:3]}", REMEDIES[kind]
    if kind == "integer" and value < node["minimum"]:
        return str(value), f"greater than or equal to {node['minimum']}", f"use {node['minimum']} or more"
    if kind == "integer":
        return str(value), f"less than or equal to {node['maximum']}", f"use {node['maximum']} or less"
    message = node[VALIDATIONS][0]["message"]
    return str(value), message, message


STATIC = {"speculation.mode": "Static"}
EAGLE = {"speculator.method": "eagle3"}


def scheduled(*rows: list[int], **others: Any) -> dict[str, Any]:
    return {**STATIC, "speculation.schedule": list(rows), **{k.replace("__", "."): v for k, v in others.items()}}


GOOD: dict[str, dict[str, Any]] = {
    "minimal": {"speculator": ABSENT},
    "draft-model": {},
    "static": {**STATIC, "speculation.numSpeculativeTokens": 5},
    "static-schedule": scheduled([1, 16, 4], [17, 64, 2], [65, 256, 0]),
    "static-schedule-one": scheduled([1, 1, 8]),
    "static-both": scheduled([1, 256, 3], speculation__numSpeculativeTokens=4),
    "static-alone": {**STATIC, "speculator": ABSENT},
    "empty-schedule": {"speculation.schedule": []},
    "k-at-most": {"speculation.numSpeculativeTokens": 8},
    "k-raised": {"speculation.numSpeculativeTokens": 16, "speculation.maxSpeculativeTokens": 16},
    "never-off": scheduled([1, 8, 4], [9, 256, 1], speculation__offPolicy="Never"),
    "adaptive-verification": {**EAGLE, "speculation.adaptiveVerification": True},
    "adaptive-verification-auto": {"speculator": {"auto": True}, "speculation.adaptiveVerification": True},
    "adaptive-verification-false": {
        "speculator": {"method": "ngram"},
        "engine.type": "TensorRTLLM",
        "engine.version": "1.3.0",
        "speculation.adaptiveVerification": False,
    },
    "further-options": {
        "speculator.options": {
            "attention_backend": "TRITON_ATTN",
            "disable_eagle_block_drop": True,
            "dspark_draft_topk": 4,
            "suffix_decoding_min_token_prob": 0.1,
            "draft_load_config": {"load_format": "safetensors"},
        }
    },
    "no-further-options": {"speculator.options": {}},
    "off": {"speculation.mode": "Disabled"},
    "recommend": {"speculation.mode": "Recommend", "speculation.offPolicy": "Remove"},
    "ngram": {"speculator": {"method": "ngram"}},
    "suffix": {"speculator": {"method": "suffix"}},
    "auto": {"speculator": {"auto": True}},
    "auto-off": {"speculator": {"auto": True}, "speculation.mode": "Disabled"},
    "auto-k": {"speculator": {"auto": True}, "speculation.numSpeculativeTokens": 3},
    "auto-schedule": scheduled([1, 16, 4], [17, 256, 0], speculator={"auto": True}),
    "auto-false": {"speculator": {"auto": False, "method": "ngram"}},
    "ngram-gpu": {"speculator": {"method": "ngram_gpu"}},
    "suffix-schedule-elsewhere": {
        **scheduled([1, 256, 3], speculator={"method": "suffix"}),
        "engine.type": "TensorRTLLM",
        "engine.version": "1.3.0rc15",
    },
    "suffix-static": {**STATIC, "speculator": {"method": "suffix"}, "speculation.numSpeculativeTokens": 4},
    "mtp-within": {"speculator": {"method": "mtp"}},
    "mtp-same-model": {"speculator": {"method": "mtp", "model": VERIFIER}},
    "one-checkpoint": {**EAGLE, "speculator.model": VERIFIER},
    "one-checkpoint-revision": {
        **EAGLE,
        "speculator.model": VERIFIER,
        "verifier.revision": "main",
        "speculator.revision": "main",
    },
    "one-checkpoint-verifiers-revision": {**EAGLE, "speculator.model": VERIFIER, "verifier.revision": "main"},
    "eagle3-in-one-pass": {**EAGLE, "speculator.parallelDrafting": True, "speculator.quantization": "fp8"},
    "draft-model-in-one-pass": {"speculator.parallelDrafting": True},
    "another-vocabulary": {"speculator.heterogeneousVocabulary": True},
    "options-off": {
        "speculator": {"method": "suffix", "parallelDrafting": False, "heterogeneousVocabulary": False},
        "verifier.expertParallel": False,
    },
    "ngram-lookup": {"speculator": {"method": "ngram", "promptLookup": {"min": 2, "max": 5}}},
    "ngram-lookup-one": {"speculator": {"method": "ngram_gpu", "promptLookup": {"min": 3}}},
    "ngram-lookup-equal": {"speculator": {"method": "ngram", "promptLookup": {"min": 4, "max": 4}}},
    "experts": {"verifier.expertParallel": True, "verifier.maxNumBatchedTokens": 8192},
    "lora": {"verifier.lora": {"maxAdapters": 4, "maxRank": 64}},
    "lora-plain": {"verifier.lora": {}},
    "dspark-apart": {"speculator": {"method": "dspark", "model": DRAFT}},
    "medusa-heads": {"speculator": {"method": "medusa", "model": DRAFT}},
    "eagle": {"speculator.method": "eagle"},
    "dflash": {"speculator.method": "dflash"},
    "eagle3-tp1": {**EAGLE, "verifier.tensorParallelSize": 4, "speculator.tensorParallelSize": 1},
    "eagle3-tp-same": {**EAGLE, "verifier.tensorParallelSize": 4, "speculator.tensorParallelSize": 4},
    "draft-model-tp-same": {"verifier.tensorParallelSize": 2, "speculator.tensorParallelSize": 2},
    "data-parallel": {"verifier.dataParallelSize": 2},
    "data-parallel-schedule-elsewhere": {
        **scheduled([1, 256, 3], verifier__dataParallelSize=2),
        "engine.type": "SGLang",
    },
    "data-parallel-static": {"verifier.dataParallelSize": 2, **STATIC, "speculation.numSpeculativeTokens": 2},
    "accelerators": {"verifier.tensorParallelSize": 4, "verifier.pipelineParallelSize": 2, "accelerator.perReplica": 8},
    "accelerators-none": {"accelerator.perReplica": 0},
    "zero-replicas": {"replicas": 0},
    "most-replicas": {"replicas": 1000},
    "oci": {"verifier.model": "oci://registry.example.com:5000/models/qwen3-8b:v1"},
    "oci-digest": {"verifier.model": "oci://quay.io/m/q@sha256:" + "0" * 64},
    "s3": {"verifier.model": "s3://my-bucket/models/qwen3-8b/"},
    "pvc": {"verifier.model": "pvc://weights/qwen3-8b"},
    "revision": {"verifier.revision": "main", "speculator.revision": "c1899de289a04d12100db370d81485cdf75e47ca"},
    "verifier-all": {
        "verifier.servedName": "Qwen/Qwen3-8B",
        "verifier.aliases": ["gpt-4", "publishers/models/models/qwen"],
        "verifier.maxModelLen": 8192,
        "verifier.maxNumSeqs": 256,
        "verifier.dtype": "bfloat16",
        "verifier.quantization": "fp8",
        "verifier.kvCacheDtype": "fp8_e5m2",
        "verifier.gpuMemoryUtilizationPercent": 90,
    },
    "objective": {"speculation.objective": {"goal": "Latency", "tpotP99": "40ms", "ttftP99": "1m30.5s"}},
    "engine": {
        "engine.version": "0.11.0+rhai5",
        "engine.image": "vllm/vllm-openai:v0.32.0",
        "engine.args": ["--enable-prefix-caching", "--swap-space=4", "x"],
    },
    "engine-no-version": {"engine.type": "TensorRTLLM"},
    "engine-other": {"engine.type": "SGLang", "engine.version": "0.5.9", "engine.args": ["--port=1"]},
    "env": {
        "engine.env": [
            {"name": "A", "value": ""},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "D", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            {"name": "E", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
            {"name": "F", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": 1}}},
        ]
    },
    "accelerator-all": {
        "accelerator": {"resource": "amd.com/gpu", "product": "MI300X", "perReplica": 1, "hourlyCost": "4.25"}
    },
    "weights": {"weights": {"secretName": "hf.token"}},
    "weights-empty": {"weights": {}},
    "weights-all": {
        "weights": {
            "secretName": "sources",
            "check": "Disabled",
            "cache": {"claimName": "models"},
            "hubEndpoint": "https://hub.example.com/mirror",
            "s3Endpoint": "http://minio.storage.svc:9000",
            "proxy": "http://proxy.example.com:3128",
            "noProxy": [".svc", "10.0.0.0/8", "localhost", "*.example.com"],
            "caConfigMap": "trusted",
            "env": [{"name": "HF_HUB_DOWNLOAD_TIMEOUT", "value": "60"}],
        }
    },
    "cache-made": {"weights.cache": {"size": "500Gi", "storageClassName": "fast", "accessMode": "ReadWriteOnce"}},
    "cache-of-node": {"weights.cache": {"nodePath": "/var/lib/models"}},
    "cache-of-node-collects": {"weights.cache": {"nodePath": "/var/lib/models", "collect": True, "reservePercent": 0}},
    "cache-collects": {"weights.cache": {"claimName": "models", "collect": True}},
    "cache-beside-the-model": {"verifier.model": "pvc://models/qwen", "weights.cache": {"claimName": "models"}},
    "cache-of-node-of-one-folder": {"weights.cache": {"nodePath": "/data"}},
    "cache-of-node-with-dots": {"weights.cache": {"nodePath": "/mnt/nvme0/a..b/.models"}},
    "cache-of-pod": {"weights.cache": {"emptyDir": {"sizeLimit": "100Gi"}}},
    "cache-of-pod-in-memory": {"weights.cache": {"emptyDir": {"sizeLimit": "100Gi", "medium": "Memory"}}},
    "cache-made-by-name": {"weights.cache": {"claimName": "models", "size": "1.5Ti"}},
    "weights-check": {"weights.check": "Auto"},
    "rollout": {"rollout.strategy": "Recreate"},
    "rollout-tuning": {"rollout.tuning": "Interrupt"},
    "rollout-window": {"rollout.tuning": "Interrupt", "rollout.window": "22:30-04:00"},
    "rollout-capacity": {"rollout.tuning": "KeepCapacity"},
    "target": {"target": "InferenceService"},
    "target-llm": {"target": "LLMInferenceService", "inferenceService": {"authenticated": False}},
    "target-llm-tls": {"target": "LLMInferenceService", "inferenceService": {"tls": True}},
    "target-several-nodes": {"target": "LeaderWorkerSet", "nodes": 2, "verifier.tensorParallelSize": 16},
    "target-stages-on-nodes": {
        "target": "LeaderWorkerSet",
        "nodes": 2,
        "verifier.pipelineParallelSize": 2,
        "speculation.mode": "Disabled",
    },
    "target-settings": {
        "target": "InferenceService",
        "inferenceService": {
            "displayName": "Granite with EAGLE-3",
            "description": "Answers for the support desk",
            "exposed": True,
            "authenticated": True,
            "connection": "registry",
            "hardwareProfile": {"name": "gpu", "namespace": "redhat-ods-applications"},
            "queue": "team-a",
        },
    },
    "route-canary": {"route": {"gateway": {"name": "public"}, "canary": {"name": "next", "weight": 0}}},
    "route-canary-alone": {"route": {"gateway": {"name": "public"}, "canary": {"name": "next", "weight": 100}}},
    "route-canary-analysis": {"route": {"gateway": {"name": "public"}, "canary": {"name": "next", "analysis": {}}}},
    "route-canary-steps": {
        "route": {
            "gateway": {"name": "public"},
            "canary": {
                "name": "next",
                "analysis": {
                    "steps": [1, 100],
                    "stepSeconds": 60,
                    "deadlineSeconds": 60,
                    "worseByPercent": 10,
                    "ttftWorseByPercent": 100,
                    "leastAcceptancePercent": 0,
                    "promotion": "Approve",
                },
            },
        }
    },
    "template": {
        "template": {
            "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
            "spec": {
                "nodeSelector": {"zone": "a"},
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "x": {"y": 1},
            },
        }
    },
    "template-empty": {"template": {}},
}

BAD_NAMES = ("8b-model", "has.dots", "a" * 54, "9")
GOOD_NAMES = ("a", "qwen3-8b", "a" * 53)

UNKNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "spec": ({"verifer": {"model": VERIFIER}}, "spec.verifer"),
    "verifier": ({"verifier.tensorParallel": 2}, "spec.verifier.tensorParallel"),
    "speculation": ({"speculation.k": 2}, "spec.speculation.k"),
    "objective": ({"speculation.objective.tpotP50": "1ms"}, "spec.speculation.objective.tpotP50"),
    "env": ({"engine.env": [{"name": "A", "val": "x"}]}, "spec.engine.env[0].val"),
    "template": ({"template.containers": []}, "spec.template.containers"),
    "rollout": ({"rollout.canary": {}}, "spec.rollout.canary"),
    "weights": ({"weights.mirror": "x"}, "spec.weights.mirror"),
    "cache": ({"weights.cache": {"size": "1Gi", "path": "/mnt"}}, "spec.weights.cache.path"),
}
"""Misspelt or misplaced fields, and how the refusal names them."""
