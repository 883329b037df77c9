"""Which model and accelerator shapes price the steps and fill the memory of an emulated engine (pure).

Called by `config`. Weights are never read: shapes come from the physics catalogue by name, or from a generic shape
where the name says nothing (a path).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from speculative_lab.emulator.errors import ConfigError
from speculative_lab.emulator.settings import Settings
from speculative_lab.emulator.speculative import Speculative
from speculative_operator.domain.models import Accelerator, ModelShape
from speculative_operator.physics.catalog import find_accelerator, find_model

GENERIC = ModelShape(
    name="generic-8b",
    parameters=8e9,
    active_parameters=8e9,
    layers=36,
    hidden_size=4096,
    kv_heads=8,
    head_dim=128,
    max_position=32768,
)
"""Prices a verifier of unknown name: a dense model of the 8B class."""

_OWN_MODEL = frozenset({"draft_model"})
_WEIGHTLESS = frozenset({"ngram", "ngram_gpu", "suffix"})
_BYTES_BY_QUANTIZATION = {"fp8": 1.0, "modelopt": 1.0, "compressed-tensors": 1.0, "awq": 0.5, "gptq": 0.5, "mxfp4": 0.5}


@dataclass(frozen=True, slots=True)
class Shapes:
    """Verifier, speculator (None: nothing of its own in memory) and accelerator of one engine."""

    verifier: ModelShape
    speculator: ModelShape | None
    accelerator: Accelerator
    tensor_parallel_size: int
    notes: tuple[str, ...] = ()
    """What had to be assumed; logged at start."""


def shapes(
    model: str,
    speculative: Speculative | None,
    settings: Settings,
    *,
    tensor_parallel_size: int = 1,
    quantization: str = "",
    kv_cache_dtype: str = "auto",
) -> Shapes:
    """Shapes by name. Raises ConfigError for an unknown accelerator; assumes, with a note, an unknown model."""
    accelerator = find_accelerator(settings.accelerator)
    if accelerator is None:
        raise ConfigError(f"EMULATOR_ACCELERATOR={settings.accelerator!r} is not in the accelerator catalogue")
    notes: list[str] = []
    verifier = find_model(model)
    if verifier is None:
        notes.append(f"model {model!r} is not in the catalogue: priced as a dense 8B model")
        verifier = GENERIC
    verifier = replace(
        verifier,
        bytes_per_parameter=_BYTES_BY_QUANTIZATION.get(quantization.partition("_")[0], verifier.bytes_per_parameter),
        kv_bytes_per_value=1.0 if kv_cache_dtype.startswith("fp8") else verifier.kv_bytes_per_value,
    )
    speculator = _speculator(speculative, verifier, notes) if speculative else None
    return Shapes(verifier, speculator, accelerator, tensor_parallel_size, tuple(notes))


def _speculator(speculative: Speculative, verifier: ModelShape, notes: list[str]) -> ModelShape | None:
    if speculative.method in _WEIGHTLESS:
        return None
    name = speculative.model or ""
    found = find_model(name) if name else None
    if found is None and speculative.method in _OWN_MODEL:
        found = replace(
            GENERIC, name="generic-draft", parameters=0.6e9, active_parameters=0.6e9, layers=28, hidden_size=1024
        )
        notes.append(f"speculator {name!r} is not in the catalogue: priced as a 0.6B model")
    if found is None:
        return _head(verifier)
    return replace(found, kv_bytes_per_value=verifier.kv_bytes_per_value)


def _head(verifier: ModelShape) -> ModelShape:
    """One more layer of the verifier and its output head: EAGLE, MTP and their like."""
    parameters = verifier.active_parameters * 0.12
    return replace(verifier, name="head", parameters=parameters, active_parameters=parameters, layers=1, experts=0)
