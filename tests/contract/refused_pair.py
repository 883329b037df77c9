"""Refused objects: models, where they come from, and how they draft. Gathered by `refused`."""

from __future__ import annotations

from tests.contract.objects import ABSENT, DRAFT, EAGLE, URI_REMEDY, VERIFIER, Bad, broken

PAIR: tuple[Bad, ...] = (
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
    broken(
        "revision-of-hf",
        {"verifier.model": "pvc://w/q", "verifier.revision": "main"},
        '"main" but model is "pvc://w/q"',
    ),
    broken(
        "revision-needs-model", {"speculator": {"method": "mtp", "revision": "main"}}, '"main" but model is not set'
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
    broken("method-or-auto", {"speculator": {"model": DRAFT}}, "method is not set and auto is not true"),
    Bad(
        "method-unknown",
        {"speculator.method": "eagle2"},
        "spec.speculator.method",
        '"eagle2"',
        'supported values: "ngram"',
        "use one of 'ngram'",
    ),
    *(
        broken("method-needs-model", {"speculator": {"method": method}}, f"method is {method}")
        for method in ("draft_model", "eagle", "eagle3", "dflash")
    ),
    *(
        broken(
            "draft-free-no-model",
            {"speculator.method": method},
            DRAFT,
            f"{method}, which drafts without weights: remove model",
        )
        for method in ("ngram", "ngram_gpu", "suffix")
    ),
    broken("draft-free-no-tp", {"speculator": {"method": "ngram", "tensorParallelSize": 1}}, "tensorParallelSize is 1"),
    broken(
        "draft-tp",
        {**EAGLE, "verifier.tensorParallelSize": 4, "speculator.tensorParallelSize": 2},
        "tensorParallelSize is 2",
        "write 1 or verifier.tensorParallelSize (4)",
    ),
    broken(
        "draft-model-tp",
        {"verifier.tensorParallelSize": 4, "speculator.tensorParallelSize": 1},
        "tensorParallelSize is 1",
        "write 4, or remove it",
    ),
    broken("draft-is-another", {"speculator.model": VERIFIER}, f'"{VERIFIER}"'),
    *(
        broken(
            "one-checkpoint-one-revision",
            {**EAGLE, "speculator.model": VERIFIER, "speculator.revision": "v2", **verifier},
            '"v2" but speculator and verifier are one checkpoint',
        )
        for name, verifier in {"elsewhere": {}, "twice": {"verifier.revision": "v1"}}.items()
    ),
    *(
        broken("draft-free-no-quantization", {"speculator": {"method": method, "quantization": "fp8"}}, '"fp8"')
        for method in ("ngram", "suffix")
    ),
    *(
        broken(
            "parallel-drafting-method",
            {"speculator.method": method, "speculator.parallelDrafting": True},
            f"parallelDrafting is true but method is {method}",
        )
        for method in ("mtp", "dflash", "medusa")
    ),
    broken(
        "heterogeneous-vocabulary-method",
        {**EAGLE, "speculator.heterogeneousVocabulary": True},
        "heterogeneousVocabulary is true but method is eagle3",
    ),
    *(
        broken(
            "prompt-lookup-method",
            {"speculator": {"method": method, "promptLookup": {"max": 4}}},
            f"promptLookup is set but method is {method}",
        )
        for method in ("suffix", "mtp")
    ),
    broken(
        "options-engine",
        {"speculator.options": {"attention_backend": "TRITON_ATTN"}, "engine.type": "SGLang"},
        "options is set but engine.type is SGLang",
    ),
    Bad(
        "options-text",
        {"speculator.options": "attention_backend=TRITON_ATTN"},
        "spec.speculator.options",
        "string",
        "must be of type object",
        "use an object with named fields",
    ),
    broken(
        "prompt-lookup-order",
        {"speculator": {"method": "ngram", "promptLookup": {"min": 5, "max": 4}}},
        "min is 5",
        "write at most max (4), or raise max",
    ),
    Bad(
        "lookup-zero",
        {"speculator": {"method": "ngram", "promptLookup": {"min": 0}}},
        "spec.speculator.promptLookup.min",
        "0",
        "should be greater than or equal to 1",
        "use 1 or more",
    ),
    Bad(
        "draft-quantization",
        {"speculator.quantization": "8 bit"},
        "spec.speculator.quantization",
        "8 bit",
        "as the engine spells it",
    ),
    Bad(
        "in-one-pass-words",
        {"speculator.parallelDrafting": "yes"},
        "spec.speculator.parallelDrafting",
        "string",
        "must be of type boolean",
        "use true or false",
    ),
    Bad(
        "experts-number",
        {"verifier.expertParallel": 1},
        "spec.verifier.expertParallel",
        "integer",
        "must be of type boolean",
        "use true or false",
    ),
    Bad(
        "batched-tokens",
        {"verifier.maxNumBatchedTokens": 0},
        "spec.verifier.maxNumBatchedTokens",
        "0",
        "should be greater than or equal to 1",
        "use 1 or more",
    ),
    Bad(
        "lora-rank",
        {"verifier.lora": {"maxRank": 5000}},
        "spec.verifier.lora.maxRank",
        "5000",
        "should be less than or equal to 4096",
        "use 4096 or less",
    ),
    Bad(
        "lora-adapters",
        {"verifier.lora": {"maxAdapters": 0}},
        "spec.verifier.lora.maxAdapters",
        "0",
        "should be greater than or equal to 1",
        "use 1 or more",
    ),
)
