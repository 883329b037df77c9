"""Refused objects: models, where they come from, and how they draft. Gathered by `refused`."""

from __future__ import annotations

from tests.contract.objects import ABSENT, DRAFT, EAGLE, URI_REMEDY, VERIFIER, Bad

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
    Bad(
        "revision-of-pvc",
        {"verifier.model": "pvc://w/q", "verifier.revision": "main"},
        "spec.verifier.revision",
        '"main" but model is "pvc://w/q"',
        "remove revision, which applies to hf:// only",
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
        "method is not set and auto is not true",
        "set auto: true to let the operator pick a speculator, or set method",
        rule="method-or-auto",
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
        for method in ("draft_model", "eagle", "eagle3", "dflash")
    ),
    *(
        Bad(
            f"{method}-with-model",
            {"speculator.method": method},
            "spec.speculator.model",
            DRAFT,
            f"{method}, which drafts without weights: remove model",
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
        "write 1 or verifier.tensorParallelSize (4)",
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
        "set a smaller model",
        rule="draft-is-another",
    ),
    *(
        Bad(
            f"one-checkpoint-{name}",
            {**EAGLE, "speculator.model": VERIFIER, "speculator.revision": "v2", **verifier},
            "spec.speculator.revision",
            '"v2" but speculator and verifier are one checkpoint',
            "set verifier.revision instead, and remove",
            rule="one-checkpoint-one-revision",
        )
        for name, verifier in {"elsewhere": {}, "twice": {"verifier.revision": "v1"}}.items()
    ),
    *(
        Bad(
            f"{method}-quantization",
            {"speculator": {"method": method, "quantization": "fp8"}},
            "spec.speculator.quantization",
            '"fp8"',
            "drafts without weights: remove quantization",
            rule="draft-free-no-quantization",
        )
        for method in ("ngram", "suffix")
    ),
    *(
        Bad(
            f"{method}-in-one-pass",
            {"speculator.method": method, "speculator.parallelDrafting": True},
            "spec.speculator.parallelDrafting",
            f"parallelDrafting is true but method is {method}",
            "remove it, because it applies to draft_model, eagle and eagle3",
            rule="parallel-drafting-method",
        )
        for method in ("mtp", "dflash", "medusa")
    ),
    Bad(
        "another-vocabulary-of-eagle3",
        {**EAGLE, "speculator.heterogeneousVocabulary": True},
        "spec.speculator.heterogeneousVocabulary",
        "heterogeneousVocabulary is true but method is eagle3",
        "remove it, because it applies to draft_model",
        rule="heterogeneous-vocabulary-method",
    ),
    *(
        Bad(
            f"lookup-of-{method}",
            {"speculator": {"method": method, "promptLookup": {"max": 4}}},
            "spec.speculator.promptLookup",
            f"promptLookup is set but method is {method}",
            "remove it, because it applies to ngram and ngram_gpu",
            rule="prompt-lookup-method",
        )
        for method in ("suffix", "mtp")
    ),
    Bad(
        "options-elsewhere",
        {"speculator.options": {"attention_backend": "TRITON_ATTN"}, "engine.type": "SGLang"},
        "spec.speculator.options",
        "options is set but engine.type is SGLang",
        "remove it, because it applies to vLLM only",
        rule="options-engine",
    ),
    Bad(
        "options-text",
        {"speculator.options": "attention_backend=TRITON_ATTN"},
        "spec.speculator.options",
        "string",
        "must be of type object",
        "use an object with named fields",
    ),
    Bad(
        "lookup-order",
        {"speculator": {"method": "ngram", "promptLookup": {"min": 5, "max": 4}}},
        "spec.speculator.promptLookup.min",
        "min is 5",
        "write at most max (4), or raise max",
        rule="prompt-lookup-order",
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
