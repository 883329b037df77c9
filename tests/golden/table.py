"""The tables of docs/manifests.md: golden cases by what they render, public images, needs of vendors' pods."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import takewhile

from tests.golden.case import Case

from speculative_operator.domain.spec import Verifier
from speculative_operator.engines import images
from speculative_operator.engines.matrix.version import show

IMAGES_BEGIN, IMAGES_END = "<!-- images: begin -->", "<!-- images: end -->"
BEGIN, END = "<!-- cases: begin -->", "<!-- cases: end -->"
_EVERYWHERE = frozenset(
    {
        "--served-model-name", "--host", "--port", "--revision", "--max-num-seqs", "--shutdown-timeout",
        "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size", "--enable-expert-parallel",
        "--speculative-config", "--scheduler-cls", "--model-path", "--model", "--model-id", "--tp-size", "--dp-size",
        "--tp",
    }
)  # fmt: skip
"""Flags that every row would have, or that another column tells."""
_HEAD = "| Case | Engine | Method | Accelerators | Layout | Image | K changed by | K | Beside that |"


def rows(cases: Iterable[Case]) -> Iterator[str]:
    """Lines of the table, its head first."""
    yield _HEAD
    yield "|" + "---|" * (_HEAD.count("|") - 1)
    for case in cases:
        yield "| " + " | ".join(_cells(case)) + " |"


def image_rows() -> Iterator[str]:
    """Lines of the table of public images, then of what each vendor's pods need, each with its head."""
    yield "| Engine | Accelerators | Releases | Image | Documented in |"
    yield "|---|---|---|---|---|"
    for row in images.IMAGES:
        releases = f"from {show(row.since)}" if any(row.since) else "all"
        releases += f", before {show(row.before)}" if row.before is not None else ""
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
    spec, knobs, made = case.spec, case.knobs, case.container
    yield f"`{case.name}`"
    yield f"{spec.engine.type} {spec.engine.version}"
    yield f"`{spec.speculator.method}`" if spec.speculator and spec.speculates else "none"
    yield f"{spec.accelerator.product or spec.accelerator.vendor} x {spec.accelerator.per_replica}"
    yield _layout(spec.verifier)
    yield f"`{made.image}`"
    yield str(knobs.actuator)
    yield " ".join(map(str, knobs.ks))
    yield ", ".join([*_flags(made.args), *_drafting(made.args), *_pod(case)]) or "nothing"


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
    if made.payload:
        yield "mounted scheduler"
    yield from (f"file `{name}`" for name in sorted(made.files))
    if made.command:
        yield f"command `{' '.join(made.command[:4])}`"
    yield from (f"limit `{name}: {size}`" for name, size in made.limits.items())
