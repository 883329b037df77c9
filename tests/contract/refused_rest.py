"""Refused objects: engine, hardware and the rest. Gathered by `refused`."""

from __future__ import annotations

from tests.contract.objects import Bad, broken

REST: tuple[Bad, ...] = (
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
        broken("reserved-flags", {"engine.args": ["--enforce-eager", argument]}, argument)
        for index, argument in enumerate(
            (
                "--speculative-config",
                "--max-num-seqs=9",
                "--max_num_seqs=9",
                "-tp=2",
                "--speculative-config.method=x",
                "--max-num-batched-tokens=8192",
                "--enable-lora",
                "-ep",
            )
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
    Bad("resource", {"accelerator.resource": "gpu"}, "spec.accelerator.resource", "gpu", "such as nvidia.com/gpu"),
    broken(
        "accelerators-add-up",
        {"verifier.tensorParallelSize": 4, "verifier.pipelineParallelSize": 2, "accelerator.perReplica": 4},
        "perReplica is 4",
        "write 8, the product",
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
    Bad("secret-empty", {"weights.secretName": ""}, "spec.weights.secretName", '""', "lower-case letters"),
    Bad("secret", {"weights.secretName": "HF_TOKEN"}, "spec.weights.secretName", "HF_TOKEN", "lower-case letters"),
    Bad(
        "check",
        {"weights.check": "off"},
        "spec.weights.check",
        '"off"',
        'supported values: "Auto"',
        "use one of 'Auto'",
    ),
    broken("cache-claim", {"weights.cache": {}}, "no claimName and no size"),
    broken("cache-class-of-new", {"weights.cache": {"claimName": "models", "storageClassName": "fast"}}, '"fast"'),
    broken(
        "cache-access-of-new",
        {"weights.cache": {"claimName": "models", "accessMode": "ReadWriteOnce"}},
        "ReadWriteOnce",
    ),
    *(
        Bad(
            f"cache-node-path{index}",
            {"weights.cache": {"nodePath": path}},
            "spec.weights.cache.nodePath",
            path,
            "write an absolute path without '.' and '..', such as /var/lib/speculative-cache",
        )
        for index, path in enumerate(
            (
                "models",
                "/",
                "/var/../etc",
                "/models/.",
                "/models/",
            )
        )
    ),
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
    Bad(
        "cache-reserve-most",
        {"weights.cache": {"nodePath": "/data", "reservePercent": 91}},
        "spec.weights.cache.reservePercent",
        "91",
        "90",
    ),
    Bad(
        "verifier-in-a-cache",
        {"verifier.model": "pvc://models/.speculative-cache/models/0123456789abcdef"},
        "spec.verifier.model",
        ".speculative-cache",
        "write one of",
    ),
    Bad(
        "cache-empty-dir-size",
        {"weights.cache": {"emptyDir": {"sizeLimit": "much"}}},
        "spec.weights.cache.emptyDir.sizeLimit",
        "much",
        "write a quantity above 0",
    ),
    Bad("cache-size", {"weights.cache.size": "500GB"}, "spec.weights.cache.size", "500GB", "write a quantity above 0"),
    Bad(
        "hub",
        {"weights.hubEndpoint": "hub.example.com"},
        "spec.weights.hubEndpoint",
        "hub.example.com",
        "write a URL without credentials",
    ),
    Bad(
        "proxy-password",
        {"weights.proxy": "http://me:secret@proxy:3128"},
        "spec.weights.proxy",
        "me:secret@proxy",
        "write a URL without credentials",
    ),
    Bad("no-proxy", {"weights.noProxy": ["a b"]}, "spec.weights.noProxy[0]", "a b", "such as .svc or 10.0.0.0/8"),
    broken("env-reserved", {"weights.env": [{"name": "SPECULATIVE_X", "value": "x"}]}, "SPECULATIVE_X"),
    Bad(
        "strategy",
        {"rollout.strategy": "Canary"},
        "spec.rollout.strategy",
        '"Canary"',
        'supported values: "Auto"',
        "use one of 'Auto'",
    ),
    Bad(
        "rollout-tuning",
        {"rollout.tuning": "Always"},
        "spec.rollout.tuning",
        '"Always"',
        'supported values: "KeepCapacity"',
        "use one of 'KeepCapacity'",
    ),
    Bad(
        "rollout-window-form",
        {"rollout.tuning": "Interrupt", "rollout.window": "2am-5am"},
        "spec.rollout.window",
        "2am-5am",
        "such as 22:30-04:00",
    ),
    Bad(
        "rollout-window-empty",
        {"rollout.tuning": "Interrupt", "rollout.window": "02:00-02:00"},
        "spec.rollout.window",
        "02:00-02:00",
        "two different times",
    ),
    broken("window-of-interrupt", {"rollout.window": "02:00-05:00"}, "02:00-05:00"),
    Bad(
        "target",
        {"target": "StatefulSet"},
        "spec.target",
        '"StatefulSet"',
        'supported values: "Deployment"',
        "use one of 'Deployment'",
    ),
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
    Bad(
        "canary-of-more-than-all",
        {"route": {"gateway": {"name": "public"}, "canary": {"name": "next", "weight": 101}}},
        "spec.route.canary.weight",
        "101",
        "less than or equal to 100",
        in_python="use 100 or less",
    ),
    Bad(
        "canary-without-weight",
        {"route": {"gateway": {"name": "public"}, "canary": {"name": "next"}}},
        "spec.route.canary.weight",
        "",
        "Required value",
        in_python="it is required",
    ),
    Bad(
        "route-host",
        {"route": {"gateway": {"name": "public"}, "hostnames": ["https://qwen.example.com"]}},
        "spec.route.hostnames[0]",
        "https://qwen.example.com",
        "write a host, such as qwen.example.com",
    ),
    Bad(
        "route-path",
        {"route": {"gateway": {"name": "public"}, "path": "/qwen/"}},
        "spec.route.path",
        "/qwen/",
        "without / at its end",
    ),
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
    Bad(
        "nodes-one",
        {"target": "LeaderWorkerSet", "nodes": 1},
        "spec.nodes",
        "1",
        "greater than or equal to 2",
        "use 2 or more",
    ),
    Bad("template-text", {"template": "x"}, "spec.template", "string", "must be of type object", "use an object"),
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
