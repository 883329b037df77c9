"""Refused objects: models, where they come from, and how they draft. Gathered by `refused`."""

from __future__ import annotations

from tests.contract.objects import ABSENT, DRAFT, EAGLE, VERIFIER, Bad, broken, wrong

PAIR: tuple[Bad, ...] = (
    # models and where they come from
    Bad("no-verifier", {"verifier": ABSENT}, "spec.verifier", "", "Required value", "it is required"),
    Bad("no-model", {"verifier": {}}, "spec.verifier.model", "", "Required value", "it is required"),
    wrong("verifier.model", "Qwen/Qwen3-8B"),
    wrong("verifier.model", "https://x.y/z"),
    wrong("verifier.model", "hf://a/b/c"),
    wrong("verifier.model", "hf://a/b "),
    wrong("verifier.model", "pvc://w/../x"),
    wrong("verifier.model", "pvc://We_ights/x"),
    wrong("verifier.model", "oci://registry"),
    wrong("verifier.model", 8),
    wrong("speculator.model", "./d"),
    broken(
        "revision-of-hf",
        {"verifier.model": "pvc://w/q", "verifier.revision": "main"},
        '"main" but model is "pvc://w/q"',
    ),
    broken(
        "revision-needs-model", {"speculator": {"method": "mtp", "revision": "main"}}, '"main" but model is not set'
    ),
    wrong("verifier.revision", "a b"),
    wrong("verifier.servedName", "-x"),
    broken("aliases-engine", {"engine.type": "SGLang", "verifier.aliases": ["chat"]}, "engine.type is SGLang"),
    wrong("verifier.dtype", "bfloat 16"),
    # the speculator
    broken("method-or-auto", {"speculator": {"model": DRAFT}}, "method is not set and auto is not true"),
    wrong("speculator.method", "eagle2"),
    *(
        broken("method-needs-model", {"speculator": {"method": method}}, f"method is {method}")
        for method in ("draft_model", "eagle", "eagle3", "medusa", "dflash")
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
    wrong("speculator.options", "attention_backend=TRITON_ATTN"),
    broken(
        "prompt-lookup-order",
        {"speculator": {"method": "ngram", "promptLookup": {"min": 5, "max": 4}}},
        "min is 5",
        "write at most max (4), or raise max",
    ),
    wrong("speculator.promptLookup.min", 0, {"speculator.method": "ngram", "speculator.model": ABSENT}),
    wrong("speculator.quantization", "8 bit"),
    wrong("speculator.parallelDrafting", "yes"),
    wrong("verifier.expertParallel", 1),
    wrong("verifier.maxNumBatchedTokens", 0),
    wrong("verifier.lora.maxRank", 5000),
    wrong("verifier.lora.maxAdapters", 0),
)
