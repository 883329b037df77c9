"""For which numbers of tokens per step an engine of vLLM 0.32 would capture CUDA graphs (pure).

Called by `config`. `timing` pads each step to the next of these sizes, and runs a step above the largest eagerly. The
rules are those of vllm/config/vllm.py (`_set_cudagraph_sizes`) and vllm/config/compilation.py
(`adjust_cudagraph_sizes_for_spec_decode`), release 0.32.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from speculative_lab.emulator.errors import ConfigError

LIMIT = 512
LIMIT_BLACKWELL = 1024
"""On data-center Blackwell (compute capability 10.x)."""
_COARSE_FROM = 256
"""Sizes are 8 apart below, 16 from there on."""


@dataclass(frozen=True, slots=True)
class CaptureFlags:
    """What the command line says of graphs."""

    eager: bool = False
    sizes: tuple[int, ...] = ()
    """--cudagraph-capture-sizes."""
    largest: int | None = None
    """--max-cudagraph-capture-size."""


@dataclass(frozen=True, slots=True)
class DecodeShape:
    """What decides the sizes of decoding steps."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_k: int
    lookup: tuple[int, ...] = ()
    """K for each number of scheduled requests (index 0 unused); empty when K is constant."""
    limit: int = LIMIT
    whole_multiples: bool = False
    """The V1 runner with full decode graphs: sizes are rounded up to multiples of K + 1."""


def capture_sizes(flags: CaptureFlags, shape: DecodeShape) -> tuple[int, ...]:
    """Captured sizes in tokens, ascending; empty without graphs. Raises ConfigError where both flags disagree.

    Of its own accord the engine takes 1, 2, 4, every 8th below 256 and every 16th from there, up to
    min(max_num_seqs * (K + 1) * 2, limit), and the sizes of decoding steps at each K that may occur.
    """
    if flags.eager:
        return ()
    budget = shape.max_num_batched_tokens
    if flags.sizes:
        sizes = sorted({size for size in flags.sizes if size <= budget})
        if flags.largest is not None and flags.largest != max(sizes, default=0):
            raise ConfigError(
                f"customized max_cudagraph_capture_size(={flags.largest}) should be consistent with the max value of"
                f" cudagraph_capture_sizes(={max(sizes, default=0)})"
            )
    else:
        sizes = _own(flags.largest, shape)
    return _whole_multiples(sizes, shape.max_k + 1) if shape.whole_multiples else tuple(sizes)


def _own(largest: int | None, shape: DecodeShape) -> list[int]:
    """The sizes that the engine chooses: a grid of tokens and, unless a largest size is given, one for each K."""
    budget = shape.max_num_batched_tokens
    limit = largest if largest is not None else min(shape.max_num_seqs * (shape.max_k + 1) * 2, shape.limit)
    decoding = [] if largest is not None else _decoding(shape, limit)
    limit = min(limit, budget)
    sizes = {*_grid(limit), *(size for size in decoding if size <= budget)}
    return sorted(sizes | ({budget} if budget <= limit else set()))


def _grid(limit: int) -> list[int]:
    fine, coarse = range(8, _COARSE_FROM, 8), range(_COARSE_FROM, limit + 1, 16)
    return [size for size in (1, 2, 4, *fine, *coarse) if size <= limit]


def _decoding(shape: DecodeShape, limit: int) -> list[int]:
    """Tokens of decoding steps: requests on the grid times K + 1, for each K up to the widest batch it occurs at."""
    if not shape.max_k:
        return [shape.max_num_seqs] if shape.max_num_seqs <= limit else []
    widest = {shape.max_k: shape.max_num_seqs}
    if shape.lookup:
        widest = {k: requests for requests, k in enumerate(shape.lookup) if requests}
    found = []
    for k, requests in widest.items():
        most = min(requests, shape.limit)
        found += [count * (k + 1) for count in (*_grid(most), most)]
    return [size for size in found if size <= limit]


def _whole_multiples(sizes: Sequence[int], query: int) -> tuple[int, ...]:
    """The sizes rounded up to multiples of `query` tokens, as far as the largest allows."""
    if not sizes or query <= 1:
        return tuple(sizes)
    largest = max(sizes)
    rounded = {size for size in _rounded(sizes, query) if size <= largest}
    if not rounded and query > largest:
        raise ConfigError(
            f"No valid cudagraph sizes after rounding to multiple of {query} (num_speculative_tokens + 1) please adjust"
            f" num_speculative_tokens ({query - 1}) or max_cudagraph_capture_size ({largest}) or"
            f" cudagraph_capture_sizes ({list(sizes)})"
        )
    return tuple(sorted(rounded or {query}))


def _rounded(sizes: Iterable[int], query: int) -> list[int]:
    return [-(-size // query) * query for size in sizes]
