"""Refused objects: a speculator to be picked, beside what only a given method has. Gathered by `refused`."""

from __future__ import annotations

from typing import Any

from tests.contract.objects import DRAFT, Bad

BESIDE: tuple[tuple[str, Any, str], ...] = (
    ("model", DRAFT, f'is "{DRAFT}"'),
    ("revision", "main", 'is "main"'),
    ("tensorParallelSize", 1, "is 1"),
    ("quantization", "fp8", 'is "fp8"'),
    ("parallelDrafting", False, "is set"),
    ("heterogeneousVocabulary", True, "is set"),
    ("promptLookup", {"max": 4}, "is set"),
    ("options", {"attention_backend": "TRITON_ATTN"}, "is set"),
)

AUTO: tuple[Bad, ...] = (
    Bad(
        "nothing-said",
        {"speculator": {}},
        "spec.speculator.method",
        "method is not set",
        "set auto: true to let the operator pick a speculator, or set method",
        rule="method-or-auto",
    ),
    Bad(
        "auto-declined",
        {"speculator": {"auto": False}},
        "spec.speculator.method",
        "auto is not true",
        "set auto: true to let the operator pick a speculator, or set method",
        rule="method-or-auto",
    ),
    Bad(
        "auto-and-method",
        {"speculator.auto": True},
        "spec.speculator.method",
        "method is draft_model but auto is true",
        "remove one of the two",
        rule="method-without-auto",
    ),
    Bad(
        "auto-word",
        {"speculator": {"auto": "yes", "method": "ngram"}},
        "spec.speculator.auto",
        "string",
        "must be of type boolean",
        "use true or false",
    ),
    *(
        Bad(
            f"auto-and-{field}",
            {"speculator": {"auto": True, field: value}},
            f"spec.speculator.{field}",
            f"{field} {shown} but auto is true",
            f"remove {field}, which the catalogue sets",
            rule=f"auto-without-{field.lower()}",
        )
        for field, value, shown in BESIDE
    ),
    Bad(
        "auto-static-without-k",
        {"speculator": {"auto": True}, "speculation.mode": "Static"},
        "spec.speculation.numSpeculativeTokens",
        "is not set but speculation.mode is Static",
        "set it, or set a schedule",
        rule="static-needs-k",
    ),
)
