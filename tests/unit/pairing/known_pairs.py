"""Models and pairs of tests/fixtures/pairs as facts and specs."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from speculative_operator.domain.models import ModelFacts, Pin, TokenizerFacts, WeightFacts
from speculative_operator.domain.spec import (
    AcceleratorRequest,
    DeploymentSpec,
    EngineSettings,
    Method,
    Mode,
    ModelSource,
    Scheme,
    Speculation,
    Speculator,
    Verifier,
)

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "pairs"


@dataclass(frozen=True)
class Known:
    """A row of pairs.csv."""

    verifier: str
    speculator: str
    method: Method
    options: Mapping[str, str]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    kind: str
    truth: str

    @property
    def title(self) -> str:
        options = ",".join(f"{key}={value}" if value else key for key, value in self.options.items())
        return f"{self.verifier}+{self.speculator or '-'}:{self.method}" + (f"[{options}]" if options else "")


@cache
def models() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads((FOLDER / "models.json").read_text(encoding="utf-8"))
    return found


def pairs() -> list[Known]:
    with (FOLDER / "pairs.csv").open(encoding="utf-8", newline="") as text:
        return [_known(row) for row in csv.DictReader(text)]


def facts(name: str, scheme: Scheme = Scheme.HF, **changed: Any) -> ModelFacts:
    """Facts of a model of models.json; `changed` are fields of ModelFacts in place of what is told there."""
    told = models()[name]
    vocabulary, added = told.get("vocabulary", ""), told.get("added", "")
    tokenizer = TokenizerFacts(
        "BPE", told["config"].get("vocab_size", 0), _label(vocabulary), _label(added or vocabulary)
    ) if vocabulary else TokenizerFacts()  # fmt: skip
    shapes = {key: tuple(shape) for key, shape in told.get("shapes", {}).items()}
    made: dict[str, Any] = {
        "pin": Pin(scheme, name if scheme is Scheme.HF else "models/one", "", "0" * 40),
        "config": told["config"],
        "tokenizer": tokenizer,
        "weights": WeightFacts(files=1 if shapes else 0, shapes=shapes, format="safetensors" if shapes else ""),
        "base_models": tuple(told.get("base_models", ())),
        "relation": told.get("relation", ""),
    }
    return ModelFacts(**{**made, **changed})


def spec_of(known: Known) -> DeploymentSpec:
    options = known.options
    source = ModelSource(Scheme.HF, known.speculator) if known.speculator else None
    speculator = Speculator(
        known.method,
        source,
        parallel_drafting="parallel" in options,
        heterogeneous_vocabulary="heterogeneous" in options,
        quantization=options.get("quantization", ""),
    )
    verifier = Verifier(
        ModelSource(Scheme.HF, known.verifier),
        "served",
        tensor_parallel_size=int(options.get("tp", 1)),
        max_model_len=int(options["len"]) if "len" in options else None,
    )
    return DeploymentSpec(
        "pair", "llm", "uid", 1, verifier, speculator,
        Speculation(Mode.STATIC, num_speculative_tokens=int(options.get("k", 3))),
        EngineSettings(version=options.get("version", "0.32.0")),
        AcceleratorRequest(per_replica=verifier.tensor_parallel_size),
    )  # fmt: skip


def _known(row: Mapping[str, str]) -> Known:
    options = (part.partition("=") for part in row["options"].split(";") if part)
    errors, warnings = (tuple(part for part in row[column].split("|") if part) for column in ("errors", "warnings"))
    return Known(
        row["verifier"],
        row["speculator"],
        Method(row["method"]),
        {name: value for name, _, value in options},
        errors,
        warnings,
        row["kind"],
        row["truth"],
    )


def _label(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""
