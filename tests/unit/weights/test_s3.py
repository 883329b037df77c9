"""obstore against versitygw, a real S3 service that checks signatures; faults by a server that knows no S3."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.weights import made
from tests.unit.weights.shelf import SHORT

from modelservers import s3
from modelservers.faults import Fault
from modelservers.hub import HubServer
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.weights.inspect import inspect
from speculative_operator.weights.local import open_folder
from speculative_operator.weights.s3 import BucketSource, open_bucket
from speculative_operator.weights.source import WeightsError
from speculative_operator.weights.sources import open_source

TENSORS = "model-00002-of-00002.safetensors"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.Service]:
    if why := s3.unbuilt():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("s3")
    (folder / "buckets").mkdir()
    with s3.serving(folder / "buckets") as running:
        running.upload(made.model(folder / "model"), "models", "team/one")
        yield running


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
def bucket(service: s3.Service, monkeypatch: pytest.MonkeyPatch) -> s3.Service:
    for name, value in service.environment.items():
        monkeypatch.setenv(name, value)
    return service


def opened(location: str = "models/team/one", revision: str = "") -> BucketSource:
    return open_bucket(ModelSource(Scheme.S3, location, revision), SHORT)


def refused(location: str = "models/team/one", revision: str = "") -> WeightsError:
    with pytest.raises(WeightsError) as caught:
        opened(location, revision)
    return caught.value


def test_facts_are_those_of_the_folder(bucket: s3.Service) -> None:
    there = inspect(open_source(ModelSource(Scheme.S3, "models/team/one")))
    here = inspect(open_folder(bucket.folder.parent / "model"))
    assert there.to_json() | {"pin": 0} == here.to_json() | {"pin": 0}
    assert there.pin.resolved.startswith("sha256:")


def test_ranges(bucket: s3.Service) -> None:
    content = (bucket.folder.parent / "model" / TENSORS).read_bytes()
    source = opened()
    entry = next(one for one in source.files if one.path == TENSORS)
    for start, end in [(0, 1), (3, 200), (0, entry.size), (entry.size - 1, entry.size)]:
        assert b"".join(source.read(entry, start, end)) == content[start:end]


def test_the_pin_is_of_the_content(bucket: s3.Service, tmp_path: Path) -> None:
    folder = made.model(tmp_path / "m")
    bucket.upload(folder, "models", "a")
    bucket.upload(folder, "models", "b")
    first = opened("models/a").pin
    assert first.resolved == opened("models/b").pin.resolved
    assert opened("models/a", first.resolved).pin.resolved == first.resolved
    source = opened("models/a")
    (folder / TENSORS).write_bytes(b"x" * (folder / TENSORS).stat().st_size)
    bucket.upload(folder, "models", "a")
    assert opened("models/a").pin.resolved != first.resolved
    assert refused("models/a", first.resolved).reason is Reason.SOURCE_NOT_FOUND
    # Who has listed before reads no byte of the new object.
    with pytest.raises(WeightsError) as caught:
        list(source.read(next(one for one in source.files if one.path == TENSORS), 0, 4))
    assert caught.value.reason is Reason.CHECKSUM_MISMATCH
    assert caught.value.file == TENSORS


def test_absent_bucket_prefix_and_object(bucket: s3.Service) -> None:
    missing = refused("absent/team/one")
    assert (missing.reason, missing.status) == (Reason.SOURCE_NOT_FOUND, 404)
    assert refused("models/team/on").reason is Reason.SOURCE_NOT_FOUND


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
def test_wrong_keys(bucket: s3.Service, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "mistyped")
    error = refused()
    assert error.reason is Reason.SOURCE_UNAUTHORIZED
    assert "AWS_SECRET_ACCESS_KEY" in error.remedy
    assert "mistyped" not in str(error)


def test_no_keys(bucket: s3.Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    error = refused()
    assert error.reason is Reason.SOURCE_UNAUTHORIZED
    assert "Secret" in error.remedy


@pytest.mark.parametrize(
    ("fault", "reason", "status"),
    [
        (Fault(status=429), Reason.SOURCE_THROTTLED, 429),
        (Fault(status=500), Reason.SOURCE_UNREACHABLE, 500),
        (Fault(status=403), Reason.SOURCE_UNAUTHORIZED, 403),
        (Fault(status=401), Reason.SOURCE_UNAUTHORIZED, 401),
        (Fault(delay=2), Reason.SOURCE_UNREACHABLE, None),
        (Fault(status=500, drip=5), Reason.SOURCE_UNREACHABLE, None),
    ],
    ids=["429", "500", "403", "401", "silent", "drips"],
)
def test_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault, reason: Reason, status: int | None
) -> None:
    (tmp_path / "none").mkdir()
    server = HubServer(tmp_path / "none")
    server.ledger.order(fault)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    with server.running():
        error = refused()
    assert error.reason is reason
    if not fault.drip:
        assert error.status == status


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    error = refused()
    assert error.reason is Reason.SOURCE_UNREACHABLE
    assert "AWS_ENDPOINT_URL" in error.remedy
