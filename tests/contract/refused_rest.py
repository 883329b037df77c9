"""Refused objects: engine, hardware and the rest. Gathered by `refused`."""

from __future__ import annotations

from tests.contract.objects import NO_ARGUMENT, Bad

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
        Bad(
            f"argument{index}",
            {"engine.args": ["--enforce-eager", argument]},
            "spec.engine.args",
            argument,
            NO_ARGUMENT,
            rule="reserved-flags",
        )
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
    Bad(
        "cache-nowhere",
        {"weights.cache": {}},
        "spec.weights.cache.size",
        "no claimName and no size",
        "name a claim that exists, or give the size of one to be made",
        rule="cache-claim",
    ),
    Bad(
        "cache-class",
        {"weights.cache": {"claimName": "models", "storageClassName": "fast"}},
        "spec.weights.cache.storageClassName",
        '"fast"',
        "set size, or remove it, the claim exists",
        rule="cache-class-of-new",
    ),
    Bad(
        "cache-access",
        {"weights.cache": {"claimName": "models", "accessMode": "ReadWriteOnce"}},
        "spec.weights.cache.accessMode",
        "ReadWriteOnce",
        "set size, or remove it, the claim exists",
        rule="cache-access-of-new",
    ),
    *(
        Bad(
            f"cache-node-path{index}",
            {"weights.cache": {"nodePath": path}},
            "spec.weights.cache.nodePath",
            path,
            "write an absolute path without '.' and '..' that is no folder of the system",
        )
        for index, path in enumerate(
            (
                "models",
                "/",
                "/var/../etc",
                "/models/.",
                "/models/",
                "/etc",
                "/etc/models",
                "/var/lib",
                "/var/lib/kubelet/pods",
                "/run/models",
                "/usr",
                "/proc/1",
            )
        )
    ),
    Bad(
        "cache-node-path-and-claim",
        {"weights.cache": {"nodePath": "/data", "claimName": "models"}},
        "spec.weights.cache.nodePath",
        '"/data"',
        "keep one of the three",
        rule="cache-node-path-alone",
    ),
    Bad(
        "cache-node-path-and-empty-dir",
        {"weights.cache": {"nodePath": "/data", "emptyDir": {"sizeLimit": "1Gi"}}},
        "spec.weights.cache.nodePath",
        '"/data"',
        "keep one of the three",
        rule="cache-node-path-alone",
    ),
    Bad(
        "cache-empty-dir-and-claim",
        {"weights.cache": {"size": "1Gi", "emptyDir": {"sizeLimit": "1Gi"}}},
        "spec.weights.cache.emptyDir",
        "emptyDir is set",
        "keep one of the two",
        rule="cache-empty-dir-alone",
    ),
    Bad(
        "cache-empty-dir-size",
        {"weights.cache": {"emptyDir": {"sizeLimit": "much"}}},
        "spec.weights.cache.emptyDir.sizeLimit",
        "much",
        "write a quantity above 0",
    ),
    Bad(
        "compile-cache-empty",
        {"engine.compileCache": {}},
        "spec.engine.compileCache.size",
        "no claimName and no size",
        "name a claim that exists, or give the size of one to be made",
        rule="compile-cache-claim",
    ),
    Bad(
        "compile-cache-class",
        {"engine.compileCache": {"claimName": "code", "storageClassName": "fast"}},
        "spec.engine.compileCache.storageClassName",
        '"fast"',
        "set size, or remove it, the claim exists",
        rule="compile-cache-class-of-new",
    ),
    Bad(
        "compile-cache-access",
        {"engine.compileCache": {"claimName": "code", "accessMode": "ReadWriteOnce"}},
        "spec.engine.compileCache.accessMode",
        "ReadWriteOnce",
        "set size, or remove it, the claim exists",
        rule="compile-cache-access-of-new",
    ),
    Bad(
        "compile-cache-of-weights",
        {"engine.compileCache": {"claimName": "models"}, "weights.cache": {"claimName": "models"}},
        "spec.engine.compileCache.claimName",
        '"models"',
        "name another one, pods write to it",
        rule="compile-cache-apart",
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
    Bad(
        "weights-env-reserved",
        {"weights.env": [{"name": "SPECULATIVE_X", "value": "x"}]},
        "spec.weights.env[0].name",
        "SPECULATIVE_X",
        "the operator sets these: use another name",
        rule="env-reserved",
    ),
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
