"""The metric families of each engine, read from the bundled records. Used by `metrics` and the dialects.

data/vllm_metric_families.csv holds names, types, labels, buckets and help texts as a real vLLM 0.32.0 exposes them;
the other files hold what the sources of the other engines declare.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from speculative_lab.emulator.errors import ConfigError

PREFIX = "vllm:"
SPECULATIVE = f"{PREFIX}spec_decode_"
"""Families that exist only while a speculator is configured."""
_BY_LENGTH = frozenset(
    {
        "vllm:request_prompt_tokens",
        "vllm:request_generation_tokens",
        "vllm:request_max_num_generation_tokens",
        "vllm:request_params_max_tokens",
        "vllm:request_prefill_kv_computed_tokens",
    }
)
"""Histograms whose buckets run 1, 2, 5, 10, ... up to --max-model-len."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family. `buckets` are upper bounds without +Inf; `values` the values of the label that varies."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str
    label: str = ""
    values: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def families(max_model_len: int, speculates: bool, custom: Mapping[str, tuple[float, ...]]) -> tuple[Family, ...]:
    """Every family that an engine of these settings exposes, in vLLM's order.

    `custom` maps names of --custom-histogram-buckets ("inter_token_latency") to bounds. Raises ConfigError for an
    unknown name.
    """
    unused = dict(custom)
    found = []
    for row in _rows("vllm_metric_families.csv"):
        if row["family"].startswith(SPECULATIVE) and not speculates:
            continue
        found.append(_family(row, max_model_len, unused))
    if unused:
        raise ConfigError(f"--custom-histogram-buckets: unknown histogram {sorted(unused)[0]!r}")
    return tuple(found)


def one_two_five(limit: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, ... up to `limit`."""
    bounds, scale = [], 1
    while scale <= limit:
        bounds += [float(scale * digit) for digit in (1, 2, 5) if scale * digit <= limit]
        scale *= 10
    return tuple(bounds)


def _family(
    row: Mapping[str, str],
    max_model_len: int,
    custom: dict[str, tuple[float, ...]],
    changed: Mapping[str, tuple[float, ...]] | None = None,
) -> Family:
    name = row["family"]
    label, _, values = row["label_values"].partition("=")
    buckets = tuple(float(bound) for bound in row["buckets"].split() if bound != "+Inf")
    if name in _BY_LENGTH:
        buckets = one_two_five(max_model_len)
    buckets = (changed or {}).get(name, buckets)
    short = name.removeprefix(PREFIX)
    for key in (short, short.removesuffix("_seconds")):
        if row["type"] == "histogram" and key in custom:
            buckets = custom.pop(key)
    return Family(
        name=name,
        kind=row["type"],
        labels=tuple(row["labels"].split()),
        help=row["help"],
        label=label,
        values=tuple(values.split("|")) if values else (),
        buckets=buckets,
    )


def recorded(name: str, changed: Mapping[str, tuple[float, ...]] | None = None) -> tuple[Family, ...]:
    """Every family of data/<name>; `changed` gives other buckets to histograms, by family."""
    return tuple(_family(row, 0, {}, changed or {}) for row in _rows(name))


def _rows(name: str) -> list[dict[str, str]]:
    path = resources.files("speculative_lab.emulator").joinpath("data", name)
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
