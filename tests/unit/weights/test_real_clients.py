"""Fetching with the clients that serve users, from a hub and an S3 service on loopback: whole, with what
goes wrong at such servers, and with ten kills each.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.unit.weights.loopback import forked
from tests.unit.weights.shelf import BRISK, KIB, content, ignored

from modelservers import s3
from modelservers.faults import Fault, Ledger, Seen
from modelservers.hub import Access, HubServer
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.own_folder import FOLDER
from speculative_operator.weights.fetch import fetch
from speculative_operator.weights.source import Source, WeightsError
from speculative_operator.weights.sources import open_source

MODEL = {
    "config.json": b"{}",
    "model-1.safetensors": content(5000 * KIB, 1),
    "model-2.safetensors": content(3001 * KIB, 2),
}
TOTAL = sum(map(len, MODEL.values()))
SHARD = r"model-1\.safetensors"
KILLS = 10
PARALLEL = 4


@dataclass
class Place:
    """A server with the model."""

    scheme: Scheme
    location: str
    environment: dict[str, str]
    ledger: Ledger | None = None

    @property
    def source(self) -> Source:
        return open_source(ModelSource(self.scheme, self.location))

    def order(self, *faults: Fault) -> None:
        assert self.ledger is not None
        self.ledger.order(*faults)


@contextlib.contextmanager
def hub(folder: Path) -> Iterator[Place]:
    server = HubServer(folder / "model", access=Access(frozenset({"hf_known"}), {"org/gated": frozenset({"hf_known"})}))
    for name in ("org/small", "org/gated"):
        laid_out(folder / "model" / name)
    with server.running():
        yield Place(Scheme.HF, "org/small", {"HF_ENDPOINT": server.url, "HF_HOME": str(folder)}, server.ledger)


@contextlib.contextmanager
def bucket(folder: Path) -> Iterator[Place]:
    if why := s3.unbuilt():
        pytest.skip(why)
    (folder / "buckets").mkdir()
    with s3.serving(folder / "buckets") as service:
        service.upload(laid_out(folder / "model"), "models", "team/one")
        yield Place(Scheme.S3, "models/team/one", dict(service.environment))


def laid_out(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for path, data in MODEL.items():
        (folder / path).write_bytes(data)
    return folder


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    kind: Callable[[Path], contextlib.AbstractContextManager[Place]] = getattr(request, "param", hub)
    for name in [name for name in os.environ if name.startswith(("AWS_", "HF_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "*")
    (tmp_path / "cache").mkdir()
    with kind(tmp_path) as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


everywhere = pytest.mark.parametrize("place", [hub, bucket], indirect=True)


def brought(place: Place, cache: Path) -> dict[str, bytes]:
    folder = fetch(place.source, cache, user="s/o", report=ignored, parallel=PARALLEL, limits=BRISK)
    return {path: (folder / path).read_bytes() for path in MODEL}


def refused(place: Place, cache: Path) -> WeightsError:
    with pytest.raises(WeightsError) as caught:
        brought(place, cache)
    return caught.value


@everywhere
def test_a_model_comes_whole(place: Place, tmp_path: Path) -> None:
    assert brought(place, tmp_path / "cache") == MODEL


@pytest.mark.parametrize(
    "fault",
    [
        Fault(SHARD, status=503, times=3),
        Fault(SHARD, status=429, headers={"Retry-After": "1"}, times=2),
        Fault(SHARD, cut_after=100_000, times=5),
        Fault(SHARD, drip=20.0, times=2),
        Fault(SHARD, corrupt_at=70_000, times=1),
    ],
    ids=["503", "429", "cut", "slow-loris", "corrupt"],
)
def test_what_passes_is_outlasted(place: Place, tmp_path: Path, fault: Fault) -> None:
    place.order(replace(fault))
    assert brought(place, tmp_path / "cache") == MODEL


@pytest.mark.parametrize(
    ("fault", "reason", "status"),
    [
        (Fault(SHARD, status=401), Reason.SOURCE_UNAUTHORIZED, 401),
        (Fault(SHARD, status=403), Reason.SOURCE_UNAUTHORIZED, 403),
        (Fault(SHARD, status=404), Reason.SOURCE_NOT_FOUND, 404),
        (Fault(SHARD, status=429), Reason.SOURCE_THROTTLED, 429),
        (Fault(SHARD, status=500), Reason.SOURCE_UNREACHABLE, 500),
        (Fault(SHARD, cut_after=0), Reason.SOURCE_UNREACHABLE, None),
        (Fault(SHARD, corrupt_at=70_000), Reason.CHECKSUM_MISMATCH, None),
    ],
    ids=["401", "403", "404", "429", "500", "cut", "corrupt"],
)
def test_what_does_not_pass_is_named(
    place: Place, tmp_path: Path, fault: Fault, reason: Reason, status: int | None
) -> None:
    source = place.source
    place.order(replace(fault))
    with pytest.raises(WeightsError) as caught:
        fetch(source, tmp_path / "cache", user="s/o", report=ignored, parallel=PARALLEL, limits=BRISK)
    error = caught.value
    assert (error.reason, error.status) == (reason, status), error
    assert error.file in MODEL
    assert error.message
    assert not (tmp_path / "cache" / FOLDER / "models" / source.pin.key).exists()


def test_a_gated_model_names_the_secret_until_a_token_is_there(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated = replace(place, location="org/gated")
    error = refused(gated, tmp_path / "cache")
    assert error.reason is Reason.SOURCE_UNAUTHORIZED
    assert "HF_TOKEN" in error.remedy
    assert "Secret" in error.remedy
    monkeypatch.setenv("HF_TOKEN", "hf_known")
    assert brought(gated, tmp_path / "cache") == MODEL


def claimed(cache: Path, source: Source) -> dict[str, set[int]]:
    """Segments that are on the disk, by file."""
    folder, found = cache / FOLDER / "partial" / source.pin.key, dict[str, set[int]]()
    for entry in source.files:
        listed = folder / "segments" / entry.path
        whole = (folder / "files" / entry.path).exists()
        numbers = range(-(-entry.size // BRISK.segment)) if whole else ()
        found[entry.path] = set(numbers) | {
            int(line) for line in (listed.read_text().splitlines()[1:] if listed.exists() else ())
        }
    return found


def spans(seen: list[Seen]) -> dict[str, set[int]]:
    """Segments that were asked for, by file."""
    found: dict[str, set[int]] = {}
    for one in seen:
        if asked := re.fullmatch(r"bytes=(\d+)-(\d+)", one.range):
            name = one.path.rpartition("/")[2].partition("?")[0]
            numbers = range(int(asked[1]) // BRISK.segment, int(asked[2]) // BRISK.segment + 1)
            found.setdefault(name, set()).update(numbers)
    return found


def had(cache: Path) -> int:
    """Bytes on the disk."""
    return sum(path.stat().st_blocks * 512 for path in cache.glob(f"{FOLDER}/partial/*/[fp]*s/*"))


@everywhere
def test_ten_kills_cost_no_complete_segment(place: Place, tmp_path: Path) -> None:
    source, cache, chance = place.source, tmp_path / "cache", random.Random(7)
    if place.ledger is not None:
        place.order(Fault(slow_to=4e6))  # of each connection
    uri = f"{place.scheme.value}://{place.location}"
    arguments = ["fetch", "--cache", str(cache), "--verifier", uri, "--parallel", str(PARALLEL)]
    environment = {**place.environment, "NO_PROXY": "*"}
    kills = 0
    for point in sorted(chance.sample(range(TOTAL * 9 // 10), KILLS)):
        known = claimed(cache, source)
        if place.ledger is not None:
            place.ledger.clear()
        process = forked(environment, tmp_path / "log", arguments)
        before = had(cache)
        while process.is_alive() and had(cache) < max(point, before + 1):
            time.sleep(0.002)
        process.kill()
        process.join()
        kills += process.exitcode == -9
        now = claimed(cache, source)
        if not (cache / FOLDER / "models" / source.pin.key).exists():
            assert all(there <= now[name] for name, there in known.items()), "a complete segment was lost"
        if place.ledger is not None:
            time.sleep(0.1)  # until the server has noted what it was about to send
            for name, asked in spans(place.ledger.seen()).items():
                assert not known.get(name, set()) & asked, "a complete segment was asked for again"
    assert kills == KILLS if place.ledger is not None else kills > KILLS // 2, "a service that cannot be slowed"
    process = forked(environment, tmp_path / "log", arguments)
    process.join()
    assert process.exitcode == 0, (tmp_path / "log").read_text()
    folder = cache / FOLDER / "models" / source.pin.key
    assert {path: (folder / path).read_bytes() for path in MODEL} == MODEL
