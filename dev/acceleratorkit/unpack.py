"""Verifies and unpacks the kit on the machine that measures, and starts it there. `run.sh` calls it.

It lies in the kit as it is and needs the standard library alone. Parts may come one after another: with `--bring` those
that are here are unpacked and the others are awaited. Everything that can be wrong is told with a remedy, status 2.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import importlib.metadata
import importlib.util
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FORMAT = 1
MANIFEST = "manifest.json"
SITE, TREE, BASE = "site", "tree", "base"
"""Folders of the parts: packages, this project, and packages that a machine may have."""
PYTHON = (3, 12)
ENOUGH = 1.2
"""Free bytes that unpacking needs, over those of the files: blocks are not filled."""
MACHINE = {"torch": "torch 2.11 for CUDA 13", "triton": "the triton that comes with torch"}
"""Modules that the machine brings, and what they are."""
IMPORTED = (
    *("vllm.entrypoints.openai.api_server", "vllm.v1.worker.gpu.model_runner", "vllm.v1.worker.gpu_model_runner"),
    *("vllm.model_executor.models.qwen3", "vllm.model_executor.models.llama_eagle3", "acceleratorkit.program"),
)
"""What a start imports; one that fails is told before engines do."""


class KitError(RuntimeError):
    """The kit cannot run; the message says what to do."""


def manifest(kit: Path) -> dict[str, Any]:
    """What the kit consists of. Raises KitError."""
    try:
        found: dict[str, Any] = json.loads((kit / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        raise KitError(f"{kit / MANIFEST} cannot be read ({error}): copy it from the kit again") from None
    if found.get("format") != FORMAT:
        raise KitError(f"{kit / MANIFEST} has format {found.get('format')}, not {FORMAT}: take all files of one kit")
    return found


def verify(part: Path, wanted: dict[str, Any]) -> None:
    """Raises KitError where a part is not the one that was built."""
    size = part.stat().st_size
    if size != wanted["bytes"]:
        raise KitError(f"{part} has {size} bytes instead of {wanted['bytes']}: it was cut off, copy it again")
    with part.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != wanted["sha256"]:
            raise KitError(f"{part} differs from the one that was built (sha256): copy it again")


def unpack(kit: Path, home: Path, bring: bool = False, all_ours: bool = False) -> None:
    """Verify and unpack the parts that are here and were not unpacked before. Raises KitError.

    With `bring` others may come later. With `all_ours` packages are taken that the machine has, too.
    """
    told, missing = manifest(kit), []
    for wanted in told["parts"]:
        part, done = kit / wanted["file"], home / f".{wanted['sha256'][:16]}"
        if done.exists() or not (all_ours or needed(wanted)):
            continue
        if not part.exists():
            missing.append(wanted["file"])
            continue
        verify(part, wanted)
        extract(part, home, wanted["unpacked"], all_ours)
        done.touch()
        print(f"unpacked {part.name}", flush=True)
    if missing and bring:
        print(f"still to come: {', '.join(missing)}")
    elif missing:
        raise KitError(
            f"missing beside run.sh: {', '.join(missing)}; copy them there. Parts that must come one after another are "
            f"unpacked one after another: ./run.sh --bring --home {home}"
        )


def needed(wanted: dict[str, Any]) -> bool:
    """Whether a part has something that this machine lacks."""
    return not all(map(has, wanted.get("packages", [""])))


def extract(part: Path, home: Path, size: int, all_ours: bool) -> None:
    """Files of one part into `home`; packages of the base only where the machine has none of that name."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(home).free
        if free < ENOUGH * size:
            raise OSError(errno.ENOSPC, f"{free / 2**20:.0f} MiB are free, {ENOUGH * size / 2**20:.0f} are needed")
        with lzma.open(part) as packed, tarfile.open(fileobj=packed, mode="r|") as archive:
            for member in archive:
                if member.name.startswith(f"{BASE}/"):
                    _, name, rest = member.name.split("/", 2)
                    if has(name) and not all_ours:
                        continue
                    member.name = f"{SITE}/{rest}"
                archive.extract(member, home, filter="data")
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise KitError(f"{home} is full ({error.strerror}): free it, or name another folder with --home") from None
        raise KitError(f"{part} cannot be unpacked into {home}: {error}; name another folder with --home") from None
    except (lzma.LZMAError, EOFError, tarfile.TarError) as error:
        raise KitError(f"{part} is broken ({error}): copy it again") from None


def has(name: str) -> bool:
    """Whether this Python has a distribution of that name."""
    try:
        if not name:
            return False
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def environment(home: Path) -> dict[str, str]:
    """Variables with which Python finds what was unpacked, and before what the machine has."""
    tree = home / TREE
    path = [str(home / SITE), *(str(tree / name) for name in ("operator", "lab", "dev")), str(tree)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def wrap(home: Path) -> None:
    """A `python` for engines: it finds what was unpacked, after what they are given themselves."""
    folder = home / "bin"
    folder.mkdir(exist_ok=True)
    path = '"${PYTHONPATH:+$PYTHONPATH:}' + f'{home / SITE}"'
    (folder / "python").write_text(f'#!/bin/sh\nPYTHONPATH={path} exec "{sys.executable}" "$@"\n')
    (folder / "python").chmod(0o755)


def machine() -> None:
    """Raises KitError where the machine lacks what the kit does not bring."""
    if sys.version_info[:2] != PYTHON:
        here = ".".join(map(str, sys.version_info[:2]))
        raise KitError(
            f"{sys.executable} is Python {here}; the kit's packages are for 3.12: PYTHON=python3.12 ./run.sh"
        )
    for name, what in MACHINE.items():
        if importlib.util.find_spec(name) is None:
            raise KitError(
                f"{sys.executable} has no {name}: the machine must bring {what}, or name one that does with PYTHON="
            )


def imports(home: Path) -> None:
    """Raises KitError where vLLM cannot be imported, with what is missing."""
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    ran = subprocess.run(
        [sys.executable, "-c", code, *IMPORTED], env=environment(home), cwd=home, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if ran.returncode:
        why = ran.stderr.strip().splitlines()[-1:] or ["no message"]
        raise KitError(
            f"vLLM cannot be imported: {why[0]}. A package of the machine may be too old or too new for it: empty "
            f"{home} and take all of the kit's own with --all-ours\n{ran.stderr[-2000:]}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="run.sh", description="Measures on this machine's accelerator what speculation gains and costs.",
        epilog="All other options are those of the measurement: run.sh -- --help",
    )  # fmt: skip
    parser.add_argument("--home", type=Path, default=Path(tempfile.gettempdir()) / "accelerator-kit")
    parser.add_argument("--bring", action="store_true", help="unpack the parts that are here, and measure nothing yet")
    parser.add_argument("--all-ours", action="store_true", help="take no package of this machine but torch and triton")
    parser.add_argument("--self-test", action="store_true", help="everything that needs no accelerator")
    options, rest = parser.parse_known_args(arguments)
    home, began = options.home.resolve(), time.monotonic()
    try:
        machine()
        kit = Path(__file__).resolve().parent
        unpack(kit, home, options.bring, options.all_ours)
        shutil.copy(kit / MANIFEST, home)
        if options.bring:
            return 0
        wrap(home)
        imports(home)
    except KitError as error:
        print(f"the kit cannot run: {error}", file=sys.stderr)
        return 2
    ours = [*(["--self-test"] if options.self_test else []), *(one for one in rest if one != "--")]
    spent = f"{time.monotonic() - began:.0f}"
    argv = [sys.executable, "-m", "acceleratorkit.program", "--home", str(home), "--spent", spent, *ours]
    os.execve(sys.executable, argv, environment(home))  # noqa: S606  (signals reach it)
    raise AssertionError("execve does not return")


if __name__ == "__main__":
    sys.exit(main())
