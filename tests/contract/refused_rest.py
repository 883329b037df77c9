"""Refused objects: engine, hardware and the rest. Gathered by `refused`."""

from __future__ import annotations

from typing import Any

from tests.contract.objects import Bad, broken, wrong


def _canary(**fields: Any) -> dict[str, Any]:
    """A route with a canary."""
    return {"route": {"gateway": {"name": "public"}, "canary": {"name": "next", **fields}}}


REST: tuple[Bad, ...] = (
    # engine and hardware
    wrong("engine.type", "vllm"),
    wrong("engine.type", "TGI"),
    wrong("engine.version", "latest"),
    wrong("engine.image", "docker://x"),
    Bad("argument-empty", {"engine.args": [""]}, "spec.engine.args[0]", '""', "remove it"),
    Bad(
        "env-name",
        {"engine.env": [{"name": "1A", "value": "x"}]},
        "spec.engine.env[0].name",
        "1A",
        "not beginning with a digit",
    ),
    broken(
        "env-reserved", {"engine.env": [{"name": "SPECULATIVE_TABLE_FILE", "value": "x"}]}, "SPECULATIVE_TABLE_FILE"
    ),
    broken(
        "env-one-value",
        {"engine.env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
        '"x"',
    ),
    broken("env-source-one", {"engine.env": [{"name": "A", "valueFrom": {}}]}, "0 sources"),
    Bad(
        "env-twice",
        {"engine.env": [{"name": "A", "value": "x"}, {"name": "A", "value": "y"}]},
        "spec.engine.env[1]",
        '"A"',
        "Duplicate value",
        "set each once",
    ),
    wrong("accelerator.resource", "gpu"),
    broken(
        "accelerators-add-up",
        {"verifier.tensorParallelSize": 4, "verifier.pipelineParallelSize": 2, "accelerator.perReplica": 4},
        "perReplica is 4",
        "write 8, the product",
    ),
    wrong("accelerator.hourlyCost", 5.0),
    wrong("accelerator.hourlyCost", "$5"),
    wrong("verifier.gpuMemoryUtilizationPercent", 101),
    wrong("verifier.tensorParallelSize", 0),
    # the rest
    wrong("replicas", -1),
    wrong("replicas", 1001),
    wrong("replicas", 1.5),
    *(
        Bad(
            f"quantity-{name}",
            {
                "engine.env": [
                    {"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": value}}}
                ]
            },
            "spec.engine.env[0].valueFrom.resourceFieldRef.divisor",
            str(value),
            "write a quantity above 0, such as 1Mi",
        )
        for name, value in {"unit": "200GB", "zero": "0Gi", "none": 0, "negative": -1, "words": "big"}.items()
    ),
    wrong("weights.secretName", ""),
    wrong("weights.secretName", "HF_TOKEN"),
    wrong("weights.check", "off"),
    broken("cache-claim", {"weights.cache": {}}, "no claimName and no size"),
    broken("cache-class-of-new", {"weights.cache": {"claimName": "models", "storageClassName": "fast"}}, '"fast"'),
    broken(
        "cache-access-of-new",
        {"weights.cache": {"claimName": "models", "accessMode": "ReadWriteOnce"}},
        "ReadWriteOnce",
    ),
    *(wrong("weights.cache.nodePath", path) for path in ("models", "/", "/var/../etc", "/models/.", "/models/")),
    broken("cache-node-path-alone", {"weights.cache": {"nodePath": "/data", "claimName": "models"}}, '"/data"'),
    broken(
        "cache-node-path-alone", {"weights.cache": {"nodePath": "/data", "emptyDir": {"sizeLimit": "1Gi"}}}, '"/data"'
    ),
    broken(
        "cache-empty-dir-alone", {"weights.cache": {"size": "1Gi", "emptyDir": {"sizeLimit": "1Gi"}}}, "emptyDir is set"
    ),
    broken(
        "cache-collect-shared",
        {"weights.cache": {"emptyDir": {"sizeLimit": "1Gi"}, "collect": True}},
        "collect is true",
    ),
    broken("cache-reserve-of-node", {"weights.cache": {"claimName": "models", "reservePercent": 10}}, "10"),
    wrong("weights.cache.reservePercent", 91, {"weights.cache.nodePath": "/data"}),
    wrong("verifier.model", "pvc://models/.speculative-cache/models/0123456789abcdef"),
    wrong("weights.cache.emptyDir.sizeLimit", "much"),
    wrong("weights.cache.size", "500GB"),
    wrong("weights.hubEndpoint", "hub.example.com"),
    wrong("weights.proxy", "http://me:secret@proxy:3128"),
    Bad("no-proxy", {"weights.noProxy": ["a b"]}, "spec.weights.noProxy[0]", "a b", "such as .svc or 10.0.0.0/8"),
    broken("env-reserved", {"weights.env": [{"name": "SPECULATIVE_X", "value": "x"}]}, "SPECULATIVE_X"),
    wrong("rollout.strategy", "Canary"),
    wrong("rollout.tuning", "Always"),
    wrong("rollout.window", "2am-5am", {"rollout.tuning": "Interrupt"}),
    wrong("rollout.window", "02:00-02:00", {"rollout.tuning": "Interrupt"}),
    broken("window-of-interrupt", {"rollout.window": "02:00-05:00"}, "02:00-05:00"),
    wrong("target", "StatefulSet"),
    broken("inference-service-target", {"inferenceService": {"exposed": True}}, "Deployment"),
    broken(
        "certificate-of-kserve", {"target": "InferenceService", "inferenceService": {"tls": True}}, "InferenceService"
    ),
    broken(
        "certificate-of-kserve",
        {"target": "LLMInferenceService", "inferenceService": {"tls": True}, "engine.type": "SGLang"},
        "SGLang",
    ),
    broken(
        "route-of-kserve", {"target": "InferenceService", "route": {"gateway": {"name": "public"}}}, "InferenceService"
    ),
    broken(
        "canary-of-another",
        {"route": {"gateway": {"name": "public"}, "canary": {"name": "pair", "weight": 10}}},
        "pair",
    ),
    wrong("route.canary.weight", 101, {"route": {"gateway": {"name": "public"}, "canary": {"name": "next"}}}),
    broken("weight-or-analysis", _canary(weight=5, analysis={}), "set weight for a share that stays"),
    broken("steps-ascend", _canary(analysis={"steps": [25, 5]}), "[5, 25, 50]"),
    broken("deadline-after-step", _canary(analysis={"stepSeconds": 900, "deadlineSeconds": 600}), "is 600"),
    wrong("route.canary.analysis.stepSeconds", 5, _canary(analysis={})),
    wrong("route.canary.analysis.promotion", "Never", _canary(analysis={})),
    Bad(
        "route-host",
        {"route": {"gateway": {"name": "public"}, "hostnames": ["https://qwen.example.com"]}},
        "spec.route.hostnames[0]",
        "https://qwen.example.com",
        "write a host, such as qwen.example.com",
    ),
    wrong("route.path", "/qwen/", {"route": {"gateway": {"name": "public"}}}),
    broken("nodes-target", {"nodes": 2}, "nodes is 2 but target is Deployment"),
    broken("target-nodes", {"target": "LeaderWorkerSet"}, "target is LeaderWorkerSet"),
    broken(
        "nodes-share-evenly",
        {"target": "LeaderWorkerSet", "nodes": 3, "verifier.tensorParallelSize": 4, "verifier.pipelineParallelSize": 2},
        "3",
        "write a number that divides 8",
    ),
    broken(
        "nodes-data-parallel",
        {
            "target": "LeaderWorkerSet",
            "nodes": 2,
            "verifier.tensorParallelSize": 4,
            "verifier.dataParallelSize": 2,
        },
        "2",
    ),
    wrong("nodes", 1, {"target": "LeaderWorkerSet"}),
    wrong("template", "x"),
    Bad(
        "template-label-value",
        {"template.metadata.labels": {"team": "a b"}},
        "spec.template.metadata.labels",
        "a b",
        "use letters, digits and . _ -",
    ),
    broken("key-form", {"template.metadata.annotations": {"a b": "x"}}, '"a b"'),
    broken(
        "label-reserved",
        {"template.metadata.labels": {"serving.speculative.dev/deployment": "x"}},
        '"serving.speculative.dev/deployment"',
    ),
)
