"""The ORAS library's login and our ranges against an emulated registry over OCI layouts."""

from __future__ import annotations

import base64
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.weights import made
from tests.unit.weights.images import header_of, pushed, tar_of
from tests.unit.weights.shelf import SHORT

from modelservers.faults import Fault
from modelservers.oci import RegistryServer, Style, pack
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.weights.inspect import inspect
from speculative_operator.weights.local import open_folder
from speculative_operator.weights.oci import RegistrySource, open_registry
from speculative_operator.weights.registry import PLAIN_HTTP, Reference
from speculative_operator.weights.source import WeightsError
from speculative_operator.weights.sources import open_source

TENSORS = "model-00002-of-00002.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made.model(tmp_path / "model")


@pytest.fixture
def registry(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    """Serves `team/model:v1`; nobody is logged in."""
    pack(folder, tmp_path / "layouts" / "team" / "model", "v1")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "*")
    server = RegistryServer(tmp_path / "layouts")
    with server.running():
        yield server


def opened(registry: RegistryServer, name: str = "team/model:v1", revision: str = "") -> RegistrySource:
    return open_registry(ModelSource(Scheme.OCI, f"{registry.authority}/{name}", revision), SHORT)


def read(source: RegistrySource, path: str) -> bytes:
    entry = next(one for one in source.files if one.path == path)
    return b"".join(source.read(entry, 0, entry.size))


def refused(registry: RegistryServer, name: str = "team/model:v1", path: str = "") -> WeightsError:
    with pytest.raises(WeightsError) as caught:
        read(opened(registry, name), path) if path else opened(registry, name)
    return caught.value


def log_in(tmp_path: Path, authority: str, entry: dict[str, str]) -> None:
    (tmp_path / "docker").mkdir(exist_ok=True)
    (tmp_path / "docker" / "config.json").write_text(json.dumps({"auths": {authority: entry}}))


@pytest.mark.parametrize("style", [style for style in Style if style is not Style.IMAGE_GZIP])
@pytest.mark.parametrize("index", [False, True])
def test_facts_are_those_of_the_folder(
    registry: RegistryServer, folder: Path, tmp_path: Path, style: Style, index: bool
) -> None:
    digest = pack(folder, tmp_path / "layouts" / "other", "latest", style, index)
    there = inspect(open_source(ModelSource(Scheme.OCI, f"{registry.authority}/other")))
    here = inspect(open_folder(folder))
    assert there.to_json() | {"pin": 0} == here.to_json() | {"pin": 0}
    assert there.pin.resolved == digest
    assert there.pin.location == f"{registry.authority}/other"


@pytest.mark.parametrize("style", [Style.ORAS, Style.KITOPS])
def test_bytes_and_checksums(registry: RegistryServer, folder: Path, tmp_path: Path, style: Style) -> None:
    pack(folder, tmp_path / "layouts" / "other", "latest", style)
    source = opened(registry, "other")
    sums = {one.path: one.sha256 for one in open_folder(folder).files}
    for entry in source.files:
        assert read(source, entry.path) == (folder / entry.path).read_bytes()
        assert entry.sha256 == (sums[entry.path] if style is Style.ORAS else "")
    entry = next(one for one in source.files if one.path == TENSORS)
    assert b"".join(source.read(entry, 5, 9)) == (folder / TENSORS).read_bytes()[5:9]


def test_a_tag_is_a_digest_once(registry: RegistryServer, folder: Path, tmp_path: Path) -> None:
    first = opened(registry)
    (folder / "config.json").write_text("{}")
    moved = pack(folder, tmp_path / "layouts" / "team" / "model", "v1")
    assert opened(registry).pin.resolved == moved != first.pin.resolved
    assert opened(registry, revision=first.pin.resolved).pin.key == first.pin.key
    assert opened(registry, f"team/model:v1@{first.pin.resolved}").pin.resolved == first.pin.resolved
    assert read(first, "config.json") != b"{}"


@pytest.mark.parametrize("basic", [False, True])
@pytest.mark.parametrize(
    "entry",
    [{"auth": base64.b64encode(b"me:right").decode()}, {"username": "me", "password": "right"}],
    ids=["auth", "by-name"],
)
def test_login(registry: RegistryServer, folder: Path, tmp_path: Path, entry: dict[str, str], basic: bool) -> None:
    registry.users, registry.basic = {"me": "right"}, basic
    log_in(tmp_path, registry.authority, entry)
    source = opened(registry)
    registry.expire()
    assert read(source, TENSORS) == (folder / TENSORS).read_bytes()


def test_no_credentials_and_wrong_ones(registry: RegistryServer, tmp_path: Path) -> None:
    registry.users = {"me": "right"}
    error = refused(registry)
    assert (error.reason, error.status) == (Reason.SOURCE_UNAUTHORIZED, 401)
    assert ".dockerconfigjson" in error.remedy
    log_in(tmp_path, registry.authority, {"username": "me", "password": "wrong"})
    error = refused(registry)
    assert (error.reason, error.status) == (Reason.SOURCE_UNAUTHORIZED, 401)
    assert "the user" in error.message
    assert "wrong" not in str(error)


def test_absent_repository_tag_and_blob_are_told_apart(registry: RegistryServer, tmp_path: Path) -> None:
    repository = refused(registry, "team/none")
    assert (repository.reason, repository.status) == (Reason.SOURCE_NOT_FOUND, 404)
    assert "no repository team/none" in repository.message
    tag = refused(registry, "team/model:v9")
    assert (tag.reason, tag.status) == (Reason.SOURCE_NOT_FOUND, 404)
    assert "'v9'" in tag.message
    source = opened(registry)
    place = next(one for one in source.files if one.path == TENSORS).sha256
    (tmp_path / "layouts" / "team" / "model" / "blobs" / "sha256" / place).unlink()
    with pytest.raises(WeightsError) as caught:
        read(source, TENSORS)
    assert (caught.value.reason, caught.value.status, caught.value.file) == (Reason.SOURCE_NOT_FOUND, 404, TENSORS)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault(status=429, headers={"Retry-After": "9"}), Reason.SOURCE_THROTTLED),
        (Fault(status=502), Reason.SOURCE_UNREACHABLE),
        (Fault(drip=20), Reason.SOURCE_UNREACHABLE),
        (Fault(cut_after=40), Reason.SOURCE_UNREACHABLE),
    ],
    ids=["throttled", "failing", "drips", "cut"],
)
@pytest.mark.parametrize("path", ["", TENSORS])
def test_faults(registry: RegistryServer, fault: Fault, reason: Reason, path: str) -> None:
    fault.path = "/blobs/" if path else "/manifests/"
    registry.ledger.order(fault)
    error = refused(registry, path=path)
    assert (error.reason, error.file) == (reason, path)
    assert error.status == (fault.status or None)
    assert error.retry_after == (9 if fault.status == 429 else None)


def test_a_manifest_that_is_another(registry: RegistryServer, tmp_path: Path) -> None:
    digest = opened(registry).pin.resolved
    place = tmp_path / "layouts" / "team" / "model" / "blobs" / digest.replace(":", "/")
    place.write_bytes(place.read_bytes() + b" ")
    with pytest.raises(WeightsError) as caught:
        opened(registry, revision=digest)
    assert caught.value.reason is Reason.CHECKSUM_MISMATCH


def test_a_title_that_leaves_the_folder(registry: RegistryServer, tmp_path: Path) -> None:
    layout = tmp_path / "layouts" / "team" / "model"
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads((layout / "blobs" / index["manifests"][0]["digest"].replace(":", "/")).read_text())
    manifest["layers"][0]["annotations"] = {"org.opencontainers.image.title": "../../etc/passwd"}
    (layout / "blobs" / "sha256" / ("a" * 64)).write_text(json.dumps(manifest))
    index["manifests"][0]["digest"] = "sha256:" + "a" * 64
    (layout / "index.json").write_text(json.dumps(index))
    error = refused(registry)
    assert (error.reason, error.file) == (Reason.UNSUPPORTED_SOURCE, "../../etc/passwd")


def test_names_that_no_model_has_are_passed_over(registry: RegistryServer, tmp_path: Path) -> None:
    """A unit of systemd, as it lies in base images."""
    base = tar_of(("usr/lib/systemd/system/system-systemd\\x2dcryptsetup.slice", b"[Unit]"))
    pushed(tmp_path / "layouts" / "image", base, tar_of(("config.json", b"{}"), ("./a.txt", b"a")))
    source = opened(registry, "image")
    assert [entry.path for entry in source.files] == ["a.txt", "config.json"]
    assert read(source, "config.json") == b"{}"


def test_compressed_layers_are_not_read_and_the_remedy_is_told(
    registry: RegistryServer, folder: Path, tmp_path: Path
) -> None:
    pack(folder, tmp_path / "layouts" / "packed", "latest", Style.IMAGE_GZIP)
    error = refused(registry, "packed")
    assert (error.reason, error.final) == (Reason.PAIR_UNREAD, True)
    assert "+gzip" in error.message
    assert "uncompressed layers" in error.remedy
    assert not [one for one in registry.ledger.seen() if "/blobs/" in one.path]


def test_a_model_below_the_root_of_its_image_is_refused_before_any_accelerator(
    registry: RegistryServer, tmp_path: Path
) -> None:
    """Engines load the root of the mounted image."""
    pushed(tmp_path / "layouts" / "image", tar_of(("models/config.json", b"{}"), ("models/a.txt", b"a")))
    with pytest.raises(WeightsError) as caught:
        inspect(opened(registry, "image"))
    assert (caught.value.reason, caught.value.file) == (Reason.SOURCE_NOT_FOUND, "config.json")


@pytest.mark.parametrize(
    "layer",
    [
        b"no tar" * 200,
        tar_of(("config.json", b"{}" * 2000))[:1500],
        tar_of(("x", bytes(2 << 20)), kind=tarfile.GNUTYPE_LONGNAME) + tar_of(("config.json", b"{}")),
        header_of("x", 0, tarfile.GNUTYPE_LONGNAME) * 3000 + tar_of(("config.json", b"{}")),
        tar_of(("config.json", b"{}"), notes={"size": "-1000"}),
        header_of("x", -512) + tar_of(("config.json", b"{}")),
        tar_of(
            ("x", b"1\n0\n3\n".ljust(512, b"\0") + b"end"),
            notes={"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "a.txt",
                   "GNU.sparse.realsize": "9"},
        ),
    ],
    ids=["no-tar", "cut", "long-notes", "nested-notes", "negative-note", "negative", "sparse"],
)  # fmt: skip
def test_a_tar_that_cannot_be_read(registry: RegistryServer, tmp_path: Path, layer: bytes) -> None:
    pushed(tmp_path / "layouts" / "image", layer)
    before = len(registry.ledger.seen())
    error = refused(registry, "image")
    assert error.reason is Reason.UNSUPPORTED_SOURCE
    assert "is not a readable tar" in error.message
    assert len(registry.ledger.seen()) - before < 120, "nobody is asked again and again for the same bytes"


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Reference.of("registry.example:5000/a/b:v1", "") == Reference("registry.example:5000", "a/b", "v1")
    assert Reference.of("registry.example/a", "").version == "latest"
    assert Reference.of("registry.example/a:v1@sha256:0", "").version == "sha256:0"
    assert Reference.of("registry.example/a:v1", "v2").version == "v2"
    assert Reference.of("docker.io/a/b", "").base == "https://registry-1.docker.io/v2/a/b"
    assert Reference.of("localhost:5000/a", "").base == "http://localhost:5000/v2/a"
    assert Reference.of("registry.example:5000/a", "").base == "https://registry.example:5000/v2/a"
    monkeypatch.setenv(PLAIN_HTTP, "x.example, registry.example:5000")
    assert Reference.of("registry.example:5000/a", "").base == "http://registry.example:5000/v2/a"
