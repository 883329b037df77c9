"""A vLLM plug-in for the CPU build of 0.32: corrects one kernel, adds synthetic acceptance. Tests only.

Laid into the real engine's environment by `realengine.install`; vLLM finds it by the entry point group
`vllm.general_plugins` and calls `register` in every process before it registers its CPU kernels. On any other platform
it does nothing.

- `_expand_kernel_impl` of `vllm/utils/cpu_triton_utils.py` (0.32.0) converts its output to a copy and drops the copy:
  in a speculative batch that is not all greedy, draft rows get wrong temperature, top-k and top-p.
- `rejection_sample_method: synthetic` asserts out in the two rejection kernels of the same file. What they should do is
  told by the Triton kernels of `vllm/v1/sample/rejection_sampler.py`, which are followed here.
- `vllm/platforms/cpu.py` has the engine's core spawned, which imports everything anew, for as long as the first import
  took. Where REALENGINE_FORK is set the core is forked from the server instead, as vLLM's `LLM` does by default
  elsewhere (`VLLM_WORKER_MULTIPROC_METHOD`): with one thread an engine there are no threads of OpenMP that a fork would
  lose.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Mapping
from typing import Any

import torch  # type: ignore[import-not-found]  # only in the engine's environment

_DONE = "_speculative_cpu"
FORK = "REALENGINE_FORK"
_GREEDY = (
    *("output", "cumulative", "drafts", "argmax", "bonus", "is_greedy", "max_spec_len"),
    *("uniform", "rates", "synthetic"),
)
_RANDOM = (
    *("output", "cumulative", "drafts", "draft_probs", "target_probs", "bonus", "recovered", "uniform", "is_greedy"),
    *("max_spec_len", "vocab_size", "rates", "no_draft_probs", "synthetic"),
)
"""Arguments of the two kernels, in the order in which `vllm/triton_utils/dispatcher.py` gives them."""


def register() -> None:
    """Called by vLLM, more than once."""
    from vllm.platforms import current_platform  # type: ignore[import-not-found]

    if not current_platform.is_cpu():
        return
    from vllm.utils import cpu_triton_utils as kernels  # type: ignore[import-not-found]

    if getattr(kernels, _DONE, False):
        return
    setattr(kernels, _DONE, True)
    kernels._expand_kernel_impl = expand
    kernels._rejection_greedy_sample_kernel_impl = _greedy(kernels._rejection_greedy_sample_kernel_impl)
    kernels._rejection_random_sample_kernel_impl = _random(kernels._rejection_random_sample_kernel_impl)

    if os.environ.get(FORK):
        from vllm.v1.engine import utils  # type: ignore[import-not-found]

        utils.get_mp_context = lambda: multiprocessing.get_context("fork")


def expand(
    output: Any, values: Any, cumulative: Any, replace_from: int, replace_to: int, _most_tokens: int | None = None
) -> None:
    """Repeat each request's value for each of its draft tokens, into `output` itself."""
    counts = torch.diff(cumulative, prepend=cumulative.new_zeros(1)).to(torch.int64)
    replaced = values.clone()
    replaced[replaced == replace_from] = replace_to
    output.copy_(torch.repeat_interleave(replaced, counts))


def _greedy(original: Any) -> Any:
    """Rows with `is_greedy`, all rows where it is None; a rejection writes the verifier's best token."""

    def kernel(*given: Any) -> None:
        named = dict(zip(_GREEDY, given, strict=False))
        if not named.get("synthetic"):
            original(*given)
            return
        chosen = named["is_greedy"]
        rows = range(named["output"].shape[0]) if chosen is None else chosen.nonzero().flatten().tolist()
        synthesize(named, named["argmax"], rows)

    return kernel


def _random(original: Any) -> Any:
    """Rows that are not greedy; a rejection writes the recovered token."""

    def kernel(*given: Any) -> None:
        named = dict(zip(_RANDOM, given, strict=False))
        if not named.get("synthetic"):
            original(*given)
            return
        synthesize(named, named["recovered"], (~named["is_greedy"]).nonzero().flatten().tolist())

    return kernel


def synthesize(named: Mapping[str, Any], fallback: Any, rows: Iterable[int]) -> None:
    """Accept draft n of a row while its uniform number is below `rates[n]` (conditional on its forerunners).

    `output` is (requests, K + 1), `cumulative` the running count of drafts by request, the rest flat over all drafts.
    At the first rejection the fallback token ends the row; a row without one ends with the bonus token. -1 is a padded
    draft, never accepted.
    """
    ends, drafted, instead = named["cumulative"].tolist(), named["drafts"].tolist(), fallback.tolist()
    extra, chances, limits = named["bonus"].flatten().tolist(), named["uniform"].tolist(), named["rates"].tolist()
    output = named["output"]
    for row in rows:
        start = ends[row - 1] if row else 0
        tokens: list[int] = []
        for place, token in enumerate(drafted[start : ends[row]]):
            if token < 0 or chances[start + place] >= limits[place]:
                tokens.append(instead[start + place])
                break
            tokens.append(token)
        else:
            tokens.append(extra[row])
        output[row, : len(tokens)] = torch.tensor(tokens, dtype=output.dtype)
