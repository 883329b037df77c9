"""The metric families of each engine, read from the bundled records. Used by `metrics` and the dialects.

data/vllm_metric_families.csv holds names, types, labels, buckets and help texts as a real vLLM 0.32.0 exposes them;
the other files hold what the sources of the other engines declare.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from speculative_lab.emulator import rows

SPECULATIVE = "vllm:spec_decode_"
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


def families(max_model_len: int, speculates: bool) -> tuple[Family, ...]:
    """Every family that a vLLM of these settings exposes, in its order."""
    found = rows("vllm_metric_families.csv")
    return tuple(
        _family(row, max_model_len) for row in found if speculates or not row["family"].startswith(SPECULATIVE)
    )


def one_two_five(limit: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, ... up to `limit`."""
    bounds, scale = [], 1
    while scale <= limit:
        bounds += [float(scale * digit) for digit in (1, 2, 5) if scale * digit <= limit]
        scale *= 10
    return tuple(bounds)


def _family(row: Mapping[str, str], max_model_len: int = 0) -> Family:
    name = row["family"]
    label, _, values = row["label_values"].partition("=")
    buckets = tuple(float(bound) for bound in row["buckets"].split() if bound != "+Inf")
    if name in _BY_LENGTH:
        buckets = one_two_five(max_model_len)
    return Family(
        name=name,
        kind=row["type"],
        labels=tuple(row["labels"].split()),
        help=row["help"],
        label=label,
        values=tuple(values.split("|")) if values else (),
        buckets=buckets,
    )


def recorded(name: str) -> tuple[Family, ...]:
    """Every family of data/<name>."""
    return tuple(map(_family, rows(name)))
