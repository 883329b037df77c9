"""Refused objects: how many tokens are drafted. Gathered by `refused`."""

from __future__ import annotations

from tests.contract.objects import DRAFT, STATIC, Bad, broken, scheduled, wrong

SPECULATION: tuple[Bad, ...] = (
    # how many tokens
    wrong("speculation.mode", "auto"),
    wrong("speculation.mode", False),
    broken("k-not-zero", {"speculation.numSpeculativeTokens": 0}, "numSpeculativeTokens is 0"),
    wrong("speculation.numSpeculativeTokens", -1),
    broken(
        "k-within-max",
        {"speculation.numSpeculativeTokens": 12},
        "numSpeculativeTokens is 12",
        "write at most maxSpeculativeTokens (8), or raise maxSpeculativeTokens",
    ),
    wrong("speculation.maxSpeculativeTokens", 65),
    wrong("speculation.numSpeculativeTokens", "4"),
    broken("static-needs-k", STATIC, "is not set but speculation.mode is Static"),
    broken("static-needs-k", scheduled(), "is not set"),
    *(
        broken(
            "schedule-static",
            {"speculation.mode": mode, "speculation.schedule": [[1, 256, 3]]},
            f"schedule has 1 row(s) but mode is {mode}",
        )
        for mode in ("Auto", "Recommend", "Disabled")
    ),
    broken("schedule-starts-at-1", scheduled([5, 256, 3]), "schedule starts at 5"),
    broken("schedule-starts-at-1", scheduled([0, 256, 3]), "schedule starts at 0"),
    broken("schedule-contiguous", scheduled([1, 16, 4], [18, 256, 2]), "[18, 256, 2]"),
    broken("schedule-contiguous", scheduled([1, 16, 4], [16, 256, 2]), "[16, 256, 2]"),
    broken("schedule-ascending", scheduled([1, 16, 4], [65, 256, 0], [17, 64, 2]), "3 row(s)"),
    broken("schedule-ascending", scheduled([1, 16, 4], [17, 64, 2], [17, 256, 2]), "3 row(s)"),
    broken("schedule-forward", scheduled([1, 16, 4], [17, 10, 2]), "[17, 10, 2]"),
    broken(
        "schedule-within-max",
        scheduled([1, 16, 9], [17, 256, 2]),
        "[1, 16, 9]",
        "write a K of at most maxSpeculativeTokens (8), or raise maxSpeculativeTokens",
    ),
    broken("schedule-drafts", scheduled([1, 256, 0]), "K 0 in all of its 1 row(s)"),
    broken(
        "schedule-never-off",
        scheduled([1, 16, 4], [17, 256, 0], speculation__offPolicy="Never"),
        "[17, 256, 0] but offPolicy is Never",
    ),
    Bad(
        "schedule-two-numbers",
        scheduled([1, 256]),
        "spec.speculation.schedule[0]",
        "2",
        "should have at least 3 items",
        "use at least 3 items, not 2",
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
        "use at most 64 items, not 65",
    ),
    wrong("speculation.offPolicy", "Always"),
    wrong("speculation.adaptiveVerification", "yes"),
    broken(
        "adaptive-verification-engine",
        {"speculation.adaptiveVerification": True, "engine.type": "SGLang"},
        "adaptiveVerification is true but engine.type is SGLang",
    ),
    *(
        broken(
            "adaptive-verification-method",
            {"speculator": {"method": method, **model}, "speculation.adaptiveVerification": True},
            f"adaptiveVerification is true but speculator.method is {method}",
        )
        for method, model in (("ngram", {}), ("suffix", {}), ("medusa", {"model": DRAFT}))
    ),
    wrong("speculation.objective.goal", "Speed"),
    *(wrong("speculation.objective.tpotP99", value) for value in ("40", "0ms", "11m", "-5ms", "fast")),
)
