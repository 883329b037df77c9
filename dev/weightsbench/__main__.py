"""`python -m weightsbench`: seconds of a fetch, curl and `snapshot_download` on one server; the last line is JSON.

Comparisons, all clients writing to the same file system:

- `link`: a link that all connections share, at `--rate`: fetched, checked, synced and published, against curl alone;
- `connection`: the same rate for each connection, as stores of hubs limit them;
- `checked`: as fast as the machine goes, with checksums, against curl and sha256sum.

Ratios are curl's seconds over the fetch's: 1 is as fast, more is faster. `ratio` is the median of the rounds, `best`
that of each one's fastest round, which other work on the machine disturbs least. What resolving and listing take
before, imports included, is told apart. Seconds of processor time are those of curl, and of the whole process that
fetches.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_MODEL = "bench/model"
_AFTER = {"checked": ["sha256sum"]}
"""What curl's files go through before the clock stops."""


def written(folder: Path, files: int, count: int) -> list[str]:
    """Make a model of random bytes; the names of its files."""
    place = folder / _MODEL
    place.mkdir(parents=True)
    (place / "config.json").write_text("{}")
    names = [f"model-{index:05d}-of-{files:05d}.safetensors" for index in range(1, files + 1)]
    for name in names:
        with (place / name).open("wb") as file:
            for _ in range(count >> 20):
                file.write(os.urandom(1 << 20))
    return names


@contextmanager
def served(folder: Path, rate: float, each: bool) -> Iterator[str]:
    """Address of a server over `folder`."""
    arguments = ["--folder", str(folder), "--rate", str(rate), *(["--each"] if each else [])]
    command = [sys.executable, "-m", "weightsbench.server", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def curl(url: str, names: Sequence[str], place: Path, after: Sequence[str]) -> dict[str, float]:
    """Seconds of curl for all files, one after the other on one connection, and of the program `after` over them."""
    wanted = [part for name in names for part in ("-o", str(place / name), f"{url}/{_MODEL}/resolve/main/{name}")]
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["curl", "-sSf", *wanted], check=True)
    if after:
        subprocess.run([*after, *names], cwd=place, check=True, stdout=subprocess.DEVNULL)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": time.monotonic() - began, "cpu_seconds": used}


def fetched(url: str, place: Path, client: str, parallel: int) -> dict[str, float]:
    """What `weightsbench.client` or `weightsbench.snapshot` tells."""
    arguments = ["--cache", str(place), "--model", _MODEL, "--parallel", str(parallel)]
    command = [sys.executable, "-m", f"weightsbench.{client}", *arguments]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "HF_ENDPOINT": url}
    )
    told: dict[str, float] = json.loads(done.stdout)
    return told


def compared(kind: str, names: Sequence[str], repositories: Path, given: argparse.Namespace) -> dict[str, Any]:
    """All rounds of one comparison."""
    rate = given.rate * 1e6 if kind in ("link", "connection") else 0.0
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    library: list[dict[str, float]] = []
    with served(repositories, rate, kind == "connection") as url:
        for number in range(given.rounds + 1):
            for first in (True, False) if number % 2 else (False, True):
                with tempfile.TemporaryDirectory(dir=given.folder) as place:
                    if first:
                        ours.append(fetched(url, Path(place), "client", given.parallel))
                    else:
                        theirs.append(curl(url, names, Path(place), _AFTER.get(kind, ())))
            with tempfile.TemporaryDirectory(dir=given.folder) as place:
                library.append(fetched(url, Path(place), "snapshot", given.parallel))
            if number == 0:  # warms up: page cache of the served files, first compilation of modules
                ours, theirs, library = [], [], []
            else:
                print(
                    f"{kind}: {theirs[-1]['seconds']:.2f} s, {ours[-1]['seconds']:.2f} s", file=sys.stderr, flush=True
                )
    ratios = sorted(his["seconds"] / mine["seconds"] for his, mine in zip(theirs, ours, strict=True))
    return {
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "best": round(min(one["seconds"] for one in theirs) / min(one["seconds"] for one in ours), 3),
        "curl_seconds": round(statistics.median(one["seconds"] for one in theirs), 2),
        "open_seconds": round(statistics.median(one["open_seconds"] for one in ours), 2),
        "snapshot_seconds": round(statistics.median(one["seconds"] for one in library), 2),
        "snapshot_cpu_seconds": round(statistics.median(one["cpu_seconds"] for one in library), 2),
        "fetch_seconds": round(statistics.median(one["seconds"] for one in ours), 2),
        "curl_cpu_seconds": round(statistics.median(one["cpu_seconds"] for one in theirs), 2),
        "fetch_cpu_seconds": round(statistics.median(one["cpu_seconds"] for one in ours), 2),
        "peak_rss_mib": round(max(one["rss_mib"] for one in ours), 1),
    }


def main() -> int:
    """Exit status 0 when every ratio asked for is at least 0.9 and memory stays below 200 MB."""
    parser = argparse.ArgumentParser(
        prog="weightsbench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--mib", type=int, default=256, help="MiB per file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=float, default=100.0, help="MB/s of the limited link")
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where files are written")
    parser.add_argument("--only", nargs="*", default=["link", "connection", "checked"])
    given = parser.parse_args()
    repositories = Path(tempfile.mkdtemp(prefix="weightsbench-", dir=given.folder))
    try:
        names = written(repositories, given.files, given.mib << 20)
        told = {kind: compared(kind, names, repositories, given) for kind in given.only}
    finally:
        shutil.rmtree(repositories)
    print(json.dumps({"bytes": given.files * given.mib << 20, "files": given.files, **told}))
    return 0 if all(one["ratio"] >= 0.9 and one["peak_rss_mib"] * 1.048576 < 200 for one in told.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
