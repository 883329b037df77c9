"""What the kit is made of: vLLM's wheel for CUDA cut to what is used, its dependencies, and a part of this tree.

Called by `__main__`. A part is a `.tar.xz` of at most 64 MiB, so that it passes where files are limited;
`manifest.json` names each with its sum and size. `unpack.py` and `run.sh` lie beside them as they are.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from acceleratorkit.unpack import FORMAT, MANIFEST, SITE, TREE
from realengine import paths

HERE = Path(__file__).parent
LARGEST = 64 * 2**20
LISTS = {name: HERE / f"{name}.txt" for name in ("vllm", "engine", "base")}
"""Wheels by hash: vLLM, what it always needs, and what is taken where the machine has no package of that name."""
FOR = [
    *("--no-deps", "--only-binary=:all:", "--implementation", "cp", "--python-version", "3.12"),
    *("--abi", "cp312", "--abi", "abi3", "--abi", "none"),
    *(part for glibc in (17, 24, 26, 27, 28, 31, 34) for part in ("--platform", f"manylinux_2_{glibc}_x86_64")),
    *("--platform", "manylinux2014_x86_64", "--platform", "manylinux1_x86_64"),
]
"""What pip fetches, whatever Python and machine the kit is built on."""
KERNELS = "vllm/_C_stable_libtorch.abi3.so"
CUT = re.compile(
    r"/(_vllm_fa2_C|_moe_C|_flashkda_C|_deepselect_C|_flashmla|_qutlass_C|vllm-rs)"
    r"|/third_party/(deep_gemm|fmha_sm100)/|\.(h|hpp|cuh|inl)$|/static/"
)
"""Of vLLM's wheel: kernels of models and accelerators that the kit does not measure (vLLM starts without them),
headers, and the pages of its API."""
OWN = (
    *("pyproject.toml", "operator/speculative_operator", "dev/acceleratorkit", "dev/payloadbench", "dev/realengine"),
    *("dev/data/models", "lab/speculative_lab", "tests/vllm"),
)
Report = Callable[[str], None]


class BuildError(RuntimeError):
    """A kit that cannot be built; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a part."""

    name: str
    data: bytes
    executable: bool = False


def build(out: Path, wheels: Path, report: Report) -> list[Path]:
    """Write the kit into `out`; wheels are fetched into `wheels` unless they are there. Raises BuildError."""
    fetched = {name: fetch(wheels / name, ["--require-hashes", "-r", str(of)], of) for name, of in LISTS.items()}
    (wheel,) = fetched["vllm"]
    report(f"wheels are in {wheels}")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    engine, base = fetched["engine"], fetched["base"]
    jobs: dict[str, tuple[list[Path], Callable[[], Iterable[Entry]]]] = {
        "kernels": ([wheel], lambda: unzipped(wheel, SITE, lambda name: name == KERNELS)),
        "engine": (
            [wheel, *engine],
            lambda: chain(
                unzipped(wheel, SITE, lambda name: name != KERNELS and not CUT.search(name)),
                *(unzipped(one, SITE) for one in engine),
            ),
        ),
        "base": (base, lambda: chain(*(unzipped(one, f"base/{distribution(one)}") for one in base))),
        "tree": ([], own),
    }
    with ThreadPoolExecutor() as pool:  # lzma lets go of the interpreter
        written = list(pool.map(lambda name: part_of(out / f"{name}.tar.xz", wheels, *jobs[name]), jobs))
    for part in written:
        if part["file"] == "base.tar.xz":
            part["packages"] = [distribution(one) for one in fetched["base"]]
    manifest = {"format": FORMAT, "vllm": paths.VLLM, "revision": revision(), "parts": written}
    (out / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    for name in ("unpack.py", "run.sh"):
        shutil.copy(HERE / name, out)
    for part in written:
        report(f"{part['file']}: {part['bytes'] / 2**20:.1f} MiB, unpacked {part['unpacked'] / 2**20:.0f} MiB")
        if part["bytes"] > LARGEST:
            raise BuildError(f"{part['file']} is larger than 64 MiB: take out more (CUT), or make another part")
    return sorted(out.iterdir())


def fetch(folder: Path, what: list[str], sums: Path | None = None) -> list[Path]:
    """The wheels that pip downloads for `what`, of those in the folder by then the ones that `sums` names; nothing is
    fetched twice. Raises BuildError."""
    folder.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "-d", str(folder)]
    done = subprocess.run([*argv, *FOR, *what], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"pip could not fetch {what[-1]}; is PyPI reachable?\n{done.stderr[-1500:]}")
    known = sums.read_text() if sums else ""
    return [wheel for wheel in sorted(folder.glob("*.whl")) if sums is None or digest(wheel) in known]


def lock(wheels: Path) -> None:
    """Write the hashes of the wheels anew for the versions that the lists name."""
    for name, of in LISTS.items():
        pins = [line.split()[0] for line in of.read_text().splitlines() if line and not line.startswith("#")]
        head = [line for line in of.read_text().splitlines() if line.startswith("#")]
        sums = {distribution(one): digest(one) for one in fetch(wheels / name, pins)}
        lines = [f"{pin} --hash=sha256:{sums[plain(pin.partition('==')[0])]}" for pin in sorted(pins)]
        of.write_text("\n".join([*head, *lines]) + "\n")


def part_of(
    path: Path, wheels: Path, made_of: Sequence[Path], entries: Callable[[], Iterable[Entry]]
) -> dict[str, Any]:
    """Write a part, or take the one that was made before of the same wheels in the same way: xz takes minutes."""
    if not made_of:
        return write(path, entries())
    key = hashlib.sha256(" ".join([CUT.pattern, *map(digest, made_of)]).encode()).hexdigest()[:16]
    kept, said = wheels / f"{key}-{path.name}", wheels / f"{key}.json"
    if not said.exists():
        told = write(path, entries())
        shutil.copy(path, kept)
        said.write_text(json.dumps(told))
    shutil.copy(kept, path)
    found: dict[str, Any] = json.loads(said.read_text())
    return found


def plain(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def distribution(wheel: Path) -> str:
    """The name of a wheel's distribution."""
    return plain(wheel.name.split("-")[0])


def unzipped(wheel: Path, below: str, wanted: Callable[[str], bool] = lambda name: True) -> Iterator[Entry]:
    """What a wheel installs beside others, without scripts and headers."""
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            name = re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", info.filename)
            if not info.is_dir() and ".data/" not in name and wanted(name):
                yield Entry(f"{below}/{name}", archive.read(info))


def own() -> Iterator[Entry]:
    """The files of this tree that run there, as git knows them and as they are."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z", *OWN], cwd=paths.ROOT, capture_output=True, check=True
    )
    for name in sorted(filter(None, listed.stdout.decode().split("\0"))):
        path = paths.ROOT / name
        if path.is_file():
            yield Entry(f"{TREE}/{name}", path.read_bytes(), bool(path.stat().st_mode & 0o100))


def revision() -> str:
    """The commit that the kit was built from; with a plus where files differ from it."""
    ran = subprocess.run(
        ["git", "describe", "--always", "--abbrev=10", "--dirty=+"], cwd=paths.ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return ran.stdout.strip() or "unknown"


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write(path: Path, entries: Iterable[Entry]) -> dict[str, Any]:
    """Write one part; what the manifest says of it. The same entries make the same file."""
    unpacked = 0
    with lzma.open(path, "wb", preset=6) as packed, tarfile.open(fileobj=packed, mode="w|") as archive:
        for entry in sorted(entries, key=lambda one: one.name):
            info = tarfile.TarInfo(entry.name)
            info.size, info.mode = len(entry.data), 0o755 if entry.executable else 0o644
            archive.addfile(info, io.BytesIO(entry.data))
            unpacked += len(entry.data)
    return {"file": path.name, "sha256": digest(path), "bytes": path.stat().st_size, "unpacked": unpacked}
