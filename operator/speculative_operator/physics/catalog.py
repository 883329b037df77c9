"""Hardware and model tables: names as users and node labels spell them -> shapes that a step can be priced with.

Called by the engine adapters to fill `PairFacts`, by the emulator and by tests. The tables lie in `data/`; every row
names its source. An unknown name is None, never a guess.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import resources

from speculative_operator.domain.models import Accelerator, ModelShape
from speculative_operator.domain.shares import share_of
from speculative_operator.domain.spec import DeploymentSpec

_TERA = 1e12
_GIGA = 1e9
_PARTS = {"A30": 4}
"""Parts of the processors that MIG divides an accelerator into, where they are not seven."""
_ROUNDED_UP = 1.05
"""Names of slices round their memory up."""


def find_accelerator(name: str) -> Accelerator | None:
    """The accelerator called `name`: a short name ("H100-SXM") or a node label ("NVIDIA-H100-80GB-HBM3").

    Case and punctuation do not matter. Labels of slices (MIG) and time-shared accelerators are unknown here (None):
    `accelerator_of` reads them.
    """
    return _accelerators().get(_key(name))


def accelerator_of(spec: DeploymentSpec) -> Accelerator | None:
    """What a pod of `spec` gets of each accelerator: the whole one, or the slice that its name tells the size of. None
    where the product is unknown, or the share.

    A MIG slice has a part of the processors (`3g`: three of seven, of an A30's four) and of the memory (`40gb`), whose
    bandwidth comes with it (NVIDIA Multi-Instance GPU User Guide, "Supported MIG Profiles").
    """
    share = share_of(spec)
    whole = find_accelerator(share.product if share is not None else spec.accelerator.product)
    if share is None or whole is None:
        return whole
    memory, processors = share.gigabytes * _GIGA / whole.memory_bytes, share.parts / _PARTS.get(whole.name, 7)
    if not 0.0 < memory <= _ROUNDED_UP or not 0.0 < processors <= 1.0:
        return None
    return replace(
        whole,
        name=f"{whole.name} {share.name}",
        whole=whole.name,
        bf16_flops=whole.bf16_flops * processors,
        fp8_flops=whole.fp8_flops * processors,
        memory_bytes=min(memory, 1.0) * whole.memory_bytes,
        memory_bandwidth=min(memory, 1.0) * whole.memory_bandwidth,
    )


def find_model(location: str) -> ModelShape | None:
    """The model at `location`: "Qwen/Qwen3-8B", "hf://Qwen/Qwen3-8B", or a path that ends in "Qwen3-8B"; None
    if unknown."""
    plain = location.split("://", 1)[-1].split("@", 1)[0].rstrip("/")
    return _models().get(_key(plain)) or _models().get(_key(plain.rsplit("/", 1)[-1]))


def rows(table: str) -> Iterator[Mapping[str, str]]:
    """Rows of `data/<table>.csv` as column -> text."""
    text = resources.files("speculative_operator.physics").joinpath("data", f"{table}.csv").read_text(encoding="utf-8")
    yield from csv.DictReader(text.splitlines())


@cache
def _accelerators() -> Mapping[str, Accelerator]:
    found: dict[str, Accelerator] = {}
    for row in rows("accelerators"):
        accelerator = Accelerator(
            name=row["name"],
            bf16_flops=float(row["bf16_tflops"]) * _TERA,
            fp8_flops=float(row["fp8_tflops"]) * _TERA,
            memory_bytes=float(row["memory_gb"]) * _GIGA,
            memory_bandwidth=float(row["bandwidth_gb_per_s"]) * _GIGA,
            source=row["source"],
        )
        for alias in (row["name"], *row["aliases"].split("|")):
            found[_key(alias)] = accelerator
    return found


@cache
def _models() -> Mapping[str, ModelShape]:
    found: dict[str, ModelShape] = {}
    for row in rows("models"):
        model = ModelShape(
            name=row["name"],
            parameters=float(row["parameters"]),
            active_parameters=float(row["active_parameters"]),
            layers=int(row["layers"]),
            hidden_size=int(row["hidden_size"]),
            kv_heads=int(row["kv_heads"]),
            head_dim=int(row["head_dim"]),
            experts=int(row["experts"]),
            experts_per_token=int(row["experts_per_token"]),
            max_position=int(row["max_position"]),
        )
        found[_key(row["name"])] = model
        found[_key(row["name"].rsplit("/", 1)[-1])] = model
    return found


def _key(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum() or letter in "./")
