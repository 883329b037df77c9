"""Objects that are accepted, and objects that are refused with what the refusal must say.

Shared by tests/contract/test_spec_constraints.py (a real API server) and tests/unit/api (the same constraints in
Python).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VERIFIER = "hf://Qwen/Qwen3-8B"
DRAFT = "hf://Qwen/Qwen3-0.6B"
ABSENT = object()

NO_ARGUMENT = "remove it, a field of the spec says it"
URI_REMEDY = "write one of hf://ORGANISATION/MODEL"
DURATION_REMEDY = "write a duration above 0 and up to 10m"
FIXED_K = "set speculation.numSpeculativeTokens in its place"


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
            node = node.setdefault(key, {})
        if value is ABSENT:
            del node[last]
        else:
            node[last] = copy.deepcopy(value)
    return {
        "apiVersion": "serving.speculative.dev/v1alpha1",
        "kind": "SpeculativeDeployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


@dataclass(frozen=True)
class Bad:
    """A refused object. `field`, `value` and `remedy` must be in what the API server says about one cause."""

    name: str
    changes: Mapping[str, Any]
    field: str
    value: str
    remedy: str
    in_python: str = ""
    """Remedy as `to_domain` words it, where it differs."""
    rule: str = ""
    """Id of the CEL rule of `api.rules` that refuses it; empty: the schema does."""

    def body(self) -> dict[str, Any]:
        return specdep(self.changes)


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
    "off": {"speculation.mode": "Off"},
    "recommend": {"speculation.mode": "Recommend", "speculation.offPolicy": "Hard"},
    "ngram": {"speculator": {"method": "ngram"}},
    "suffix": {"speculator": {"method": "suffix"}},
    "ngram-gpu": {"speculator": {"method": "ngram_gpu"}},
    "suffix-static": {**STATIC, "speculator": {"method": "suffix"}, "speculation.numSpeculativeTokens": 4},
    "mtp-within": {"speculator": {"method": "mtp"}},
    "mtp-same-model": {"speculator": {"method": "mtp", "model": VERIFIER}},
    "dspark-apart": {"speculator": {"method": "dspark", "model": DRAFT}},
    "medusa-heads": {"speculator": {"method": "medusa", "model": DRAFT}},
    "eagle": {"speculator.method": "eagle"},
    "dflash": {"speculator.method": "dflash"},
    "mlp": {"speculator.method": "mlp_speculator"},
    "eagle3-tp1": {**EAGLE, "verifier.tensorParallelSize": 4, "speculator.tensorParallelSize": 1},
    "eagle3-tp-same": {**EAGLE, "verifier.tensorParallelSize": 4, "speculator.tensorParallelSize": 4},
    "draft-model-tp-same": {"verifier.tensorParallelSize": 2, "speculator.tensorParallelSize": 2},
    "data-parallel": {"verifier.dataParallelSize": 2},
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
        "engine.args": ["--enable-prefix-caching", "--max-num-batched-tokens=8192", "x"],
    },
    "engine-other": {"engine.type": "SGLang", "engine.version": "0.5.9", "engine.args": ["--port=1"]},
    "env": {
        "engine.env": [
            {"name": "A", "value": ""},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "D", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            {"name": "E", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
        ]
    },
    "accelerator-all": {
        "accelerator": {"resource": "amd.com/gpu", "product": "MI300X", "perReplica": 1, "hourlyCost": "4.25"}
    },
    "weights": {"weights": {"secretName": "hf", "cache": {"size": "200Gi", "accessMode": "ReadWriteOnce"}}},
    "weights-bytes": {"weights.cache": {"size": 1000000000, "storageClassName": "fast"}},
    "rollout": {"rollout.strategy": "Recreate"},
    "target": {"target": "InferenceService"},
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

BAD: tuple[Bad, ...] = (
    # models and where they come from
    Bad("no-verifier", {"verifier": ABSENT}, "spec.verifier", "", "Required value", "it is required"),
    Bad("no-model", {"verifier": {}}, "spec.verifier.model", "", "Required value", "it is required"),
    Bad("model-no-scheme", {"verifier.model": "Qwen/Qwen3-8B"}, "spec.verifier.model", "Qwen/Qwen3-8B", URI_REMEDY),
    Bad("model-http", {"verifier.model": "https://x.y/z"}, "spec.verifier.model", "https://x.y/z", URI_REMEDY),
    Bad("model-two", {"verifier.model": "hf://a/b/c"}, "spec.verifier.model", "hf://a/b/c", URI_REMEDY),
    Bad("model-space", {"verifier.model": "hf://a/b "}, "spec.verifier.model", '"hf://a/b "', URI_REMEDY),
    Bad("model-climbs", {"verifier.model": "pvc://w/../x"}, "spec.verifier.model", "pvc://w/../x", URI_REMEDY),
    Bad(
        "model-pvc-name", {"verifier.model": "pvc://We_ights/x"}, "spec.verifier.model", "pvc://We_ights/x", URI_REMEDY
    ),
    Bad("model-oci-bare", {"verifier.model": "oci://registry"}, "spec.verifier.model", "oci://registry", URI_REMEDY),
    Bad(
        "model-number",
        {"verifier.model": 8},
        "spec.verifier.model",
        "integer",
        "must be of type string",
        "use a string",
    ),
    Bad("draft-uri", {"speculator.model": "./d"}, "spec.speculator.model", "./d", URI_REMEDY),
    Bad(
        "revision-of-pvc",
        {"verifier.model": "pvc://w/q", "verifier.revision": "main"},
        "spec.verifier.revision",
        '"main" but model is "pvc://w/q"',
        "remove revision, it applies to hf:// only",
        rule="revision-of-hf",
    ),
    Bad(
        "revision-of-nothing",
        {"speculator": {"method": "mtp", "revision": "main"}},
        "spec.speculator.revision",
        '"main" but model is not set',
        "set model, or remove revision",
        rule="revision-needs-model",
    ),
    Bad(
        "revision-form",
        {"verifier.revision": "a b"},
        "spec.verifier.revision",
        "a b",
        "write a branch, a tag or a commit",
    ),
    Bad(
        "served-name",
        {"verifier.servedName": "-x"},
        "spec.verifier.servedName",
        "-x",
        "beginning with a letter or digit",
    ),
    Bad("dtype", {"verifier.dtype": "bfloat 16"}, "spec.verifier.dtype", "bfloat 16", "as the engine spells it"),
    # the speculator
    Bad(
        "no-method",
        {"speculator": {"model": DRAFT}},
        "spec.speculator.method",
        "",
        "Required value",
        "it is required",
    ),
    Bad(
        "method-unknown",
        {"speculator.method": "eagle2"},
        "spec.speculator.method",
        '"eagle2"',
        'supported values: "ngram"',
        "use one of 'ngram'",
    ),
    *(
        Bad(
            f"{method}-without-model",
            {"speculator": {"method": method}},
            "spec.speculator.model",
            f"method is {method}",
            "set model, such as hf://ORGANISATION/MODEL",
            rule="method-needs-model",
        )
        for method in ("draft_model", "eagle", "eagle3", "dflash", "mlp_speculator")
    ),
    *(
        Bad(
            f"{method}-with-model",
            {"speculator.method": method},
            "spec.speculator.model",
            DRAFT,
            f"{method}, which drafts without weights: remove model",
            f"{method} drafts without weights: remove model",
            rule="draft-free-no-model",
        )
        for method in ("ngram", "ngram_gpu", "suffix")
    ),
    Bad(
        "ngram-tp",
        {"speculator": {"method": "ngram", "tensorParallelSize": 1}},
        "spec.speculator.tensorParallelSize",
        "tensorParallelSize is 1",
        "drafts without weights: remove tensorParallelSize",
        rule="draft-free-no-tp",
    ),
    Bad(
        "draft-tp",
        {**EAGLE, "verifier.tensorParallelSize": 4, "speculator.tensorParallelSize": 2},
        "spec.speculator.tensorParallelSize",
        "tensorParallelSize is 2",
        "write 1 or verifier.tensorParallelSize, 4",
        rule="draft-tp",
    ),
    Bad(
        "draft-model-tp",
        {"verifier.tensorParallelSize": 4, "speculator.tensorParallelSize": 1},
        "spec.speculator.tensorParallelSize",
        "tensorParallelSize is 1",
        "write 4, or remove it",
        rule="draft-model-tp",
    ),
    Bad(
        "drafts-for-itself",
        {"speculator.model": VERIFIER},
        "spec.speculator.model",
        f'"{VERIFIER}"',
        "name a smaller model or a head made for it, not the verifier itself",
        rule="draft-is-another",
    ),
    # how many tokens
    Bad(
        "mode-case",
        {"speculation.mode": "auto"},
        "spec.speculation.mode",
        '"auto"',
        'supported values: "Auto", "Recommend", "Static", "Off"',
        "use one of 'Auto', 'Recommend', 'Static' or 'Off'",
    ),
    Bad(
        "mode-bare-off",
        {"speculation.mode": False},
        "spec.speculation.mode",
        "false",
        'supported values: "Auto", "Recommend", "Static", "Off"',
        "use one of 'Auto', 'Recommend', 'Static' or 'Off'",
    ),
    Bad(
        "k-zero",
        {"speculation.numSpeculativeTokens": 0},
        "spec.speculation.numSpeculativeTokens",
        "numSpeculativeTokens is 0",
        "write 1 or more, or set mode: Off",
        rule="k-not-zero",
    ),
    Bad(
        "k-negative",
        {"speculation.numSpeculativeTokens": -1},
        "spec.speculation.numSpeculativeTokens",
        "-1",
        "should be greater than or equal to 0",
        "use 0 or more",
    ),
    Bad(
        "k-above-max",
        {"speculation.numSpeculativeTokens": 12},
        "spec.speculation.numSpeculativeTokens",
        "numSpeculativeTokens is 12",
        "write at most maxSpeculativeTokens, 8, or raise that",
        rule="k-within-max",
    ),
    Bad(
        "max-huge",
        {"speculation.maxSpeculativeTokens": 65},
        "spec.speculation.maxSpeculativeTokens",
        "65",
        "should be less than or equal to 64",
        "use 64 or less",
    ),
    Bad(
        "k-text",
        {"speculation.numSpeculativeTokens": "4"},
        "spec.speculation.numSpeculativeTokens",
        "string",
        "must be of type integer",
        "use a whole number",
    ),
    Bad(
        "static-without-k",
        STATIC,
        "spec.speculation.numSpeculativeTokens",
        "is not set but speculation.mode is Static",
        "set it, or give a schedule",
        rule="static-needs-k",
    ),
    Bad(
        "static-empty-schedule",
        scheduled(),
        "spec.speculation.numSpeculativeTokens",
        "is not set",
        "set it, or give a schedule",
        rule="static-needs-k",
    ),
    *(
        Bad(
            f"schedule-{mode}",
            {"speculation.mode": mode, "speculation.schedule": [[1, 256, 3]]},
            "spec.speculation.schedule",
            f"schedule has 1 bands but mode is {mode}",
            "set mode: Static, or remove schedule",
            rule="schedule-static",
        )
        for mode in ("Auto", "Recommend", "Off")
    ),
    Bad(
        "schedule-starts-late",
        scheduled([5, 256, 3]),
        "spec.speculation.schedule",
        "schedule starts at 5",
        "let its first band start at 1",
        rule="schedule-starts-at-1",
    ),
    Bad(
        "schedule-starts-at-zero",
        scheduled([0, 256, 3]),
        "spec.speculation.schedule",
        "schedule starts at 0",
        "let its first band start at 1",
        rule="schedule-starts-at-1",
    ),
    Bad(
        "schedule-gap",
        scheduled([1, 16, 4], [18, 256, 2]),
        "spec.speculation.schedule",
        "[18, 256, 2]",
        "let each band start one above the end of the one before",
        rule="schedule-contiguous",
    ),
    Bad(
        "schedule-overlap",
        scheduled([1, 16, 4], [16, 256, 2]),
        "spec.speculation.schedule",
        "[16, 256, 2]",
        "let each band start one above the end of the one before",
        rule="schedule-contiguous",
    ),
    Bad(
        "schedule-disordered",
        scheduled([1, 16, 4], [65, 256, 0], [17, 64, 2]),
        "spec.speculation.schedule",
        "3 bands",
        "sort them by their first number, each band once",
        "let each band start one above the end of the one before",
        rule="schedule-ascending",
    ),
    Bad(
        "schedule-twice",
        scheduled([1, 16, 4], [17, 64, 2], [17, 256, 2]),
        "spec.speculation.schedule",
        "3 bands",
        "sort them by their first number, each band once",
        "let each band start one above the end of the one before",
        rule="schedule-ascending",
    ),
    Bad(
        "schedule-backward",
        scheduled([1, 16, 4], [17, 10, 2]),
        "spec.speculation.schedule",
        "[17, 10, 2]",
        "write [first, last, K]",
        rule="schedule-forward",
    ),
    Bad(
        "schedule-too-deep",
        scheduled([1, 16, 9], [17, 256, 2]),
        "spec.speculation.schedule",
        "[1, 16, 9]",
        "let its K be at most maxSpeculativeTokens, 8, or raise that",
        rule="schedule-within-max",
    ),
    Bad(
        "schedule-no-drafts",
        scheduled([1, 256, 0]),
        "spec.speculation.schedule",
        "K 0 in all of its 1 bands",
        "or set mode: Off",
        rule="schedule-drafts",
    ),
    Bad(
        "schedule-never-off",
        scheduled([1, 16, 4], [17, 256, 0], speculation__offPolicy="Never"),
        "spec.speculation.schedule",
        "[17, 256, 0] but offPolicy is Never",
        "or set offPolicy: Soft",
        rule="schedule-never-off",
    ),
    Bad(
        "schedule-two-numbers",
        scheduled([1, 256]),
        "spec.speculation.schedule[0]",
        "2",
        "should have at least 3 items",
        "give at least 3 items, not 2",
    ),
    Bad(
        "schedule-text",
        {**STATIC, "speculation.schedule": ["1-256:3"]},
        "spec.speculation.schedule[0]",
        "string",
        "must be of type array",
        "valid tuple",
    ),
    Bad(
        "schedule-long",
        scheduled(*([n, n, 1] for n in range(1, 66))),
        "spec.speculation.schedule",
        "65",
        "must have at most 64 items",
        "give at most 64 items, not 65",
    ),
    *(
        Bad(
            f"schedule-{method}",
            scheduled([1, 256, 3], speculator={"method": method}),
            "spec.speculation.schedule",
            f"1 bands but K of {method}",
            FIXED_K,
            rule="schedule-method",
        )
        for method in ("suffix", "ngram_gpu", "medusa")
    ),
    Bad(
        "schedule-mlp",
        scheduled([1, 256, 3], speculator__method="mlp_speculator"),
        "spec.speculation.schedule",
        "1 bands but K of mlp_speculator",
        FIXED_K,
        rule="schedule-method",
    ),
    Bad(
        "schedule-data-parallel",
        scheduled([1, 256, 3], verifier__dataParallelSize=2),
        "spec.speculation.schedule",
        "verifier.dataParallelSize is 2",
        FIXED_K,
        rule="schedule-data-parallel",
    ),
    Bad(
        "off-policy",
        {"speculation.offPolicy": "Always"},
        "spec.speculation.offPolicy",
        '"Always"',
        'supported values: "Never", "Soft", "Hard"',
        "use one of 'Never'",
    ),
    Bad(
        "goal",
        {"speculation.objective.goal": "Speed"},
        "spec.speculation.objective.goal",
        '"Speed"',
        'supported values: "Goodput"',
        "use one of 'Goodput'",
    ),
    *(
        Bad(
            f"duration-{name}",
            {"speculation.objective.tpotP99": value},
            "spec.speculation.objective.tpotP99",
            value,
            DURATION_REMEDY,
        )
        for name, value in {"bare": "40", "zero": "0ms", "long": "11m", "negative": "-5ms", "words": "fast"}.items()
    ),
    # engine and hardware
    Bad(
        "engine", {"engine.type": "vllm"}, "spec.engine.type", '"vllm"', 'supported values: "vLLM"', "use one of 'vLLM'"
    ),
    Bad(
        "version",
        {"engine.version": "latest"},
        "spec.engine.version",
        "latest",
        "write the engine's version, such as 0.32.0",
    ),
    Bad("image", {"engine.image": "docker://x"}, "spec.engine.image", "docker://x", "without a scheme"),
    *(
        Bad(
            f"argument{index}",
            {"engine.args": ["--enforce-eager", argument]},
            "spec.engine.args",
            argument,
            NO_ARGUMENT,
            rule="reserved-flags",
        )
        for index, argument in enumerate(
            ("--speculative-config", "--max-num-seqs=9", "--max_num_seqs=9", "-tp=2", "--speculative-config.method=x")
        )
    ),
    Bad("argument-empty", {"engine.args": [""]}, "spec.engine.args[0]", '""', "remove it"),
    Bad(
        "env-name",
        {"engine.env": [{"name": "1A", "value": "x"}]},
        "spec.engine.env[0].name",
        "1A",
        "not beginning with a digit",
    ),
    Bad(
        "env-reserved",
        {"engine.env": [{"name": "SPECULATIVE_TABLE_FILE", "value": "x"}]},
        "spec.engine.env[0].name",
        "SPECULATIVE_TABLE_FILE",
        "the operator sets these: use another name",
        rule="env-reserved",
    ),
    Bad(
        "env-two-values",
        {"engine.env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
        "spec.engine.env[0].value",
        '"x"',
        "keep one of them",
        rule="env-one-value",
    ),
    Bad(
        "env-no-source",
        {"engine.env": [{"name": "A", "valueFrom": {}}]},
        "spec.engine.env[0].valueFrom",
        "0 sources",
        "name exactly one of configMapKeyRef",
        rule="env-source-one",
    ),
    Bad(
        "env-twice",
        {"engine.env": [{"name": "A", "value": "x"}, {"name": "A", "value": "y"}]},
        "spec.engine.env[1]",
        '"A"',
        "Duplicate value",
        "name each variable once",
    ),
    Bad("resource", {"accelerator.resource": "gpu"}, "spec.accelerator.resource", "gpu", "such as nvidia.com/gpu"),
    Bad(
        "accelerators-short",
        {"verifier.tensorParallelSize": 4, "verifier.pipelineParallelSize": 2, "accelerator.perReplica": 4},
        "spec.accelerator.perReplica",
        "perReplica is 4",
        "write 8, the product",
        rule="accelerators-add-up",
    ),
    Bad(
        "cost-number",
        {"accelerator.hourlyCost": 5.0},
        "spec.accelerator.hourlyCost",
        "",
        "must be of type string",
        "use a string",
    ),
    Bad("cost-currency", {"accelerator.hourlyCost": "$5"}, "spec.accelerator.hourlyCost", "$5", 'such as "5.00"'),
    Bad(
        "utilization",
        {"verifier.gpuMemoryUtilizationPercent": 101},
        "spec.verifier.gpuMemoryUtilizationPercent",
        "101",
        "should be less than or equal to 100",
        "use 100 or less",
    ),
    Bad(
        "tp-zero",
        {"verifier.tensorParallelSize": 0},
        "spec.verifier.tensorParallelSize",
        "0",
        "should be greater than or equal to 1",
        "use 1 or more",
    ),
    # the rest
    Bad(
        "replicas-negative",
        {"replicas": -1},
        "spec.replicas",
        "-1",
        "should be greater than or equal to 0",
        "use 0 or more",
    ),
    Bad(
        "replicas-many",
        {"replicas": 1001},
        "spec.replicas",
        "1001",
        "should be less than or equal to 1000",
        "use 1000 or less",
    ),
    Bad("replicas-half", {"replicas": 1.5}, "spec.replicas", "", "must be of type int32", "use a whole number"),
    *(
        Bad(
            f"size-{name}",
            {"weights.cache": {"size": value}},
            "spec.weights.cache.size",
            str(value),
            "write a size above 0, such as 200Gi",
        )
        for name, value in {"unit": "200GB", "zero": "0Gi", "none": 0, "negative": -1, "words": "big"}.items()
    ),
    Bad(
        "access-mode",
        {"weights.cache": {"size": "1Gi", "accessMode": "Shared"}},
        "spec.weights.cache.accessMode",
        '"Shared"',
        'supported values: "ReadWriteMany"',
        "use one of 'ReadWriteMany'",
    ),
    Bad("secret", {"weights.secretName": "HF_TOKEN"}, "spec.weights.secretName", "HF_TOKEN", "lower-case letters"),
    Bad(
        "strategy",
        {"rollout.strategy": "Canary"},
        "spec.rollout.strategy",
        '"Canary"',
        'supported values: "Auto"',
        "use one of 'Auto'",
    ),
    Bad(
        "target",
        {"target": "StatefulSet"},
        "spec.target",
        '"StatefulSet"',
        'supported values: "Deployment"',
        "use one of 'Deployment'",
    ),
    Bad("template-text", {"template": "x"}, "spec.template", "string", "must be of type object", "use an object"),
    Bad(
        "template-label-value",
        {"template.metadata.labels": {"team": "a b"}},
        "spec.template.metadata.labels",
        "a b",
        "use letters, digits and . _ -",
    ),
    Bad(
        "template-key",
        {"template.metadata.annotations": {"a b": "x"}},
        "spec.template.metadata.annotations",
        '"a b"',
        "write NAME or DOMAIN/NAME",
        rule="key-form",
    ),
    Bad(
        "template-label",
        {"template.metadata.labels": {"serving.speculative.dev/deployment": "x"}},
        "spec.template.metadata.labels",
        '"serving.speculative.dev/deployment"',
        "which selects its pods by it: remove it",
        rule="label-reserved",
    ),
)

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
}
"""Misspelt or misplaced fields, and how the refusal names them."""
