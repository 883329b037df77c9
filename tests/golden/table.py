"""The tables of docs/manifests.md: golden cases by what they render, public images, needs of vendors' pods."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby, takewhile

from tests.golden.case import Case

from speculative_operator.domain.spec import Verifier
from speculative_operator.engines import images
from speculative_operator.engines.matrix.cell import show_version

IMAGES_BEGIN, IMAGES_END = "<!-- images: begin -->", "<!-- images: end -->"
BEGIN, END = "<!-- cases: begin -->", "<!-- cases: end -->"
_EVERYWHERE = frozenset(
    {
        "--served-model-name", "--host", "--port", "--revision", "--max-num-seqs", "--shutdown-timeout",
        "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size", "--enable-expert-parallel",
        "--speculative-config", "--scheduler-cls", "--model-path", "--model", "--model-id", "--tp-size", "--dp-size",
        "--tp", "--pp-size", "--ep-size", "--tp_size", "--pp_size", "--ep_size", "--num-shard", "--hostname",
        "--max-running-requests", "--max_batch_size", "--max-batch-size", "--max-concurrent-requests",
        "--speculative-draft-model-path", "--worker-extension-cls",
    }
)  # fmt: skip
"""Flags that every row would have, or that another column tells."""
_SHARED_HEAD = "| Engine | K changed by | Every pod has |"
_HEAD = "| Case | Engine | Method | Accelerators | Layout | K changed by | K | Beside that |"


def rows(cases: Iterable[Case]) -> Iterator[str]:
    """Lines of the two tables: what pods of an engine have in common, then the cases, each with its head first."""
    found = [(case, [*_beside(case)]) for case in cases]
    shared: dict[tuple[str, str], list[str]] = {}
    for case, beside in found:
        common = shared.setdefault(_kind(case), beside)
        shared[_kind(case)] = [one for one in common if one in beside]
    yield from _lines(_SHARED_HEAD, [(*kind, ", ".join(common) or "nothing more") for kind, common in shared.items()])
    yield ""
    same: dict[tuple[str, ...], list[str]] = {}
    for case, beside in found:
        own = [one for one in beside if one not in shared[_kind(case)]]
        same.setdefault((*_cells(case), ", ".join(own) or "nothing"), []).append(f"`{case.name}`")
    yield from _lines(_HEAD, [(", ".join(named), *cells) for cells, named in same.items()])


def _lines(head: str, cells: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield head
    yield "|" + "---|" * (head.count("|") - 1)
    for row in cells:
        yield "| " + " | ".join(row) + " |"


def _kind(case: Case) -> tuple[str, str]:
    return str(case.spec.engine.type), str(case.knobs.actuator)


def image_rows() -> Iterator[str]:
    """Lines of the table of public images, then of what each vendor's pods need, each with its head."""
    yield "| Engine | Accelerators | Releases | Image | Documented in |"
    yield "|---|---|---|---|---|"
    for row in images.IMAGES:
        releases = f"from {show_version(row.since)}" if any(row.since) else "all"
        releases += f", before {show_version(row.before)}" if row.before is not None else ""
        yield f"| {row.engine} | {row.vendor} | {releases} | `{row.reference}` | {row.source} |"
    yield ""
    yield "| Accelerators | Limits of each | /dev/shm | Environment | Entry point | To add in spec.template |"
    yield "|---|---|---|---|---|---|"
    for vendor, needs in images.NEEDS.items():
        limits = ", ".join(f"`{name}: {size}Mi`" for name, size in needs.limits_per_accelerator.items())
        variables = ", ".join(f"`{name}={value}`" for name, value in {**needs.env, **needs.parallel_env}.items())
        commands = ", ".join(f"{engine}: `{' '.join(words)}`" for engine, words in needs.command.items())
        shared = "always" if needs.shared_memory else "when several serve together"
        cells = (
            vendor,
            limits or "none",
            shared,
            variables or "none",
            commands or "the image's",
            needs.note or "nothing",
        )
        yield "| " + " | ".join(cells) + " |"


def _cells(case: Case) -> Iterator[str]:
    spec, knobs = case.spec, case.knobs
    yield f"{spec.engine.type} {spec.engine.version}"
    yield f"`{spec.speculator.method}`" if spec.speculator and spec.speculates else "none"
    yield f"{spec.accelerator.product or spec.accelerator.vendor} x {spec.accelerator.per_replica}"
    yield _layout(spec.verifier)
    yield str(knobs.actuator)
    yield " ".join(_runs(knobs.ks))


def _beside(case: Case) -> Iterator[str]:
    """What the pods of a case have beside what another column tells."""
    yield from (*_flags(case.container.args), *_drafting(case.container.args), *_pod(case))


def _runs(ks: Iterable[int]) -> Iterator[str]:
    """Numbers in their order; three and more that follow each other as `first-last`."""
    for _, run in groupby(enumerate(ks), lambda pair: pair[1] - pair[0]):
        found = [k for _, k in run]
        yield from (f"{found[0]}-{found[-1]}",) if len(found) > 2 else map(str, found)


def _layout(verifier: Verifier) -> str:
    sizes = (
        ("TP", verifier.tensor_parallel_size),
        ("PP", verifier.pipeline_parallel_size),
        ("DP", verifier.data_parallel_size),
    )
    found = [f"{name} {size}" for name, size in sizes if size > 1] + (["experts"] if verifier.expert_parallel else [])
    return ", ".join(found) or "1"


def _flags(args: tuple[str, ...]) -> Iterator[str]:
    """Flags that are particular, with their value where it is one word."""
    for place, word in enumerate(args):
        if not word.startswith("-") or word.partition("=")[0] in _EVERYWHERE:
            continue
        values = list(takewhile(lambda one: not one.startswith("-"), args[place + 1 :]))
        single = len(values) == 1 and re.fullmatch(r"[\w.-]+", values[0])
        yield f"`{word} {values[0]}`" if single else f"`{word}`"


def _drafting(args: tuple[str, ...]) -> Iterator[str]:
    """Options of drafting within vLLM's JSON."""
    text = args[args.index("--speculative-config") + 1] if "--speculative-config" in args else "{}"
    told = ("method", "model", "revision", "num_speculative_tokens")
    for key, value in json.loads(text).items():
        if key == "num_speculative_tokens_per_batch_size":
            yield "schedule"
        elif key not in told:
            yield f"`{key}: {json.dumps(value)}`"


def _pod(case: Case) -> Iterator[str]:
    made = case.container
    if case.spec.engine.image:
        yield f"image `{made.image}`"
    if made.payload:
        yield "mounted scheduler"
    yield from (f"file `{name}`" for name in sorted(made.files))
    if made.command:
        yield f"command `{' '.join(made.command[:4])}`"
    yield from (f"limit `{name}: {size}`" for name, size in made.limits.items())
