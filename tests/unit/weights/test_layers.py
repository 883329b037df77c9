"""Images with compressed layers: one stream each, read and fetched through a registry on loopback."""

from __future__ import annotations

import gzip
import hashlib
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from backports import zstd as library
from tests.unit.weights import images, made
from tests.unit.weights.images import header_of, tar_of
from tests.unit.weights.loopback import ROOT
from tests.unit.weights.shelf import BRISK, SHORT, ignored

from modelservers.faults import Fault
from modelservers.oci import RegistryServer, Style, pack
from speculative_operator.domain.jobs import Progress
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.own_folder import FOLDER
from speculative_operator.weights import layers
from speculative_operator.weights.cache import MANIFEST
from speculative_operator.weights.crew import Stopped
from speculative_operator.weights.fetch import fetch, missing_bytes
from speculative_operator.weights.inspect import inspect
from speculative_operator.weights.layers import PackedSource
from speculative_operator.weights.oci import open_registry
from speculative_operator.weights.packing import decompress
from speculative_operator.weights.source import WeightsError

GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"
PACKED = [Style.IMAGE_GZIP, Style.IMAGE_LAYERS, Style.IMAGE_ZSTD, Style.IMAGE_CHUNKED]
WHOLE = [Style.IMAGE_GZIP, Style.IMAGE_ZSTD]
"""One layer each."""
ROOM_FOR_256_MIB = bytes([0, 18 << 3])
"""Header of a frame of zstd behind its magic number: nothing told, a window of that size."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a file that cannot be made small, so that it takes a while to come."""
    folder = made.model(tmp_path / "model")
    (folder / "vocab.txt").write_bytes(os.urandom(3 << 20))
    return folder


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "*")
    (tmp_path / "cache").mkdir()
    server = RegistryServer(tmp_path / "layouts")
    with server.running():
        yield server


def opened(registry: RegistryServer, name: str = "image") -> PackedSource:
    source = open_registry(ModelSource(Scheme.OCI, f"{registry.authority}/{name}"), SHORT)
    assert isinstance(source, PackedSource)
    return source


def brought(source: PackedSource, tmp_path: Path, **options: object) -> Path:
    given = {"user": "space/object", "report": ignored, "limits": BRISK} | options
    return fetch(source, tmp_path / "cache", **given)  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found.pop(MANIFEST, None)
    return found


def blob(tmp_path: Path, digest: str) -> Path:
    return images.blob(tmp_path / "layouts" / "image", digest)


def pushed(tmp_path: Path, *layers: bytes, kinds: tuple[str, ...] = (GZIP,)) -> None:
    images.pushed(tmp_path / "layouts" / "image", *layers, kinds=kinds)


def zstd(content: bytes) -> bytes:
    return library.compress(content, options={library.CompressionParameter.checksum_flag: 1})


def refusal(registry: RegistryServer, tmp_path: Path) -> WeightsError:
    """The same of an inspection and of a fetch, which leaves nothing to publish."""
    with pytest.raises(WeightsError) as looked:
        opened(registry).files()
    with pytest.raises(WeightsError) as caught:
        brought(opened(registry), tmp_path)
    assert caught.value.reason is looked.value.reason
    assert list((tmp_path / "cache" / FOLDER / "models").iterdir()) == []
    return caught.value


@pytest.mark.parametrize("style", PACKED)
@pytest.mark.parametrize("index", [False, True])
def test_facts_are_those_of_the_uncompressed_image(
    registry: RegistryServer, folder: Path, tmp_path: Path, style: Style, index: bool
) -> None:
    pack(folder, tmp_path / "layouts" / "plain", "latest", Style.IMAGE)
    digest = pack(folder, tmp_path / "layouts" / "image", "latest", style, index)
    plain = inspect(open_registry(ModelSource(Scheme.OCI, f"{registry.authority}/plain"), SHORT))
    packed = inspect(opened(registry))
    assert packed.to_json() | {"pin": 0} == plain.to_json() | {"pin": 0}
    assert packed.files == plain.files
    assert packed.weights.parameters
    assert packed.pin.resolved == digest


@pytest.mark.parametrize("style", PACKED)
def test_files_are_those_of_the_uncompressed_image(
    registry: RegistryServer, folder: Path, tmp_path: Path, style: Style
) -> None:
    pack(folder, tmp_path / "layouts" / "plain", "latest", Style.IMAGE)
    pack(folder, tmp_path / "layouts" / "image", "latest", style)
    plain = open_registry(ModelSource(Scheme.OCI, f"{registry.authority}/plain"), SHORT)
    told: list[Progress] = []
    source = opened(registry)
    published = brought(source, tmp_path, report=told.append)
    wanted = fetch(plain, tmp_path / "cache", user="space/object", report=ignored, limits=BRISK)
    assert contents(published) == contents(wanted)
    assert len(contents(wanted)) > 4
    assert (told[-1].bytes, told[-1].total) == (source.total, source.total)
    assert missing_bytes(source, tmp_path / "cache") == 0
    assert list((tmp_path / "cache" / FOLDER / "partial").iterdir()) == []


def test_several_members_of_gzip_and_padding_are_one_layer(registry: RegistryServer, tmp_path: Path) -> None:
    whole = tar_of(("config.json", b"{}"), ("model.bin", bytes(range(256)) * 9000))
    pushed(tmp_path, gzip.compress(whole[:700]) + gzip.compress(whole[700:]) + bytes(512))
    assert contents(brought(opened(registry), tmp_path))["model.bin"] == bytes(range(256)) * 9000


@pytest.mark.parametrize(
    "kind",
    [ZSTD, "application/vnd.docker.image.rootfs.diff.tar.zstd", "application/vnd.cncf.model.weight.v1.tar+zstd"],
)
def test_several_frames_of_zstd_and_tables_of_contents_are_one_layer(
    registry: RegistryServer, tmp_path: Path, kind: str
) -> None:
    whole = tar_of(("config.json", b"{}"), ("model.bin", bytes(range(256)) * 9000))
    table = (0x184D2A50).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"table"
    pushed(tmp_path, table + zstd(whole[:700]) + table + zstd(whole[700:]) + table, kinds=(kind,))
    assert contents(brought(opened(registry), tmp_path))["model.bin"] == bytes(range(256)) * 9000


@pytest.mark.parametrize("kinds", [(GZIP,), (ZSTD,), (GZIP, ZSTD), (ZSTD, "application/vnd.oci.image.layer.v1.tar")])
def test_a_later_layer_goes_before_an_earlier_one(
    registry: RegistryServer, tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    packing: dict[str, Callable[[bytes], bytes]] = {GZIP: gzip.compress, ZSTD: zstd}
    first = tar_of(("models/config.json", b"{}"), ("models/a.txt", b"old"), ("usr/b.txt", b"no model"))
    second = tar_of(("models/a.txt", b"new"))
    pushed(tmp_path, packing[kinds[0]](first), packing.get(kinds[-1], bytes)(second), kinds=kinds)
    assert contents(brought(opened(registry), tmp_path)) == {"config.json": b"{}", "a.txt": b"new"}
    assert [(entry.path, entry.size) for entry in opened(registry).files()] == [("a.txt", 3), ("config.json", 2)]


@pytest.mark.parametrize("style", WHOLE)
def test_a_broken_connection_is_taken_up_where_it_broke(
    registry: RegistryServer, folder: Path, tmp_path: Path, style: Style
) -> None:
    pack(folder, tmp_path / "layouts" / "image", "latest", style)
    source = opened(registry)
    registry.ledger.order(Fault(path=source.layers[0].digest, cut_after=2 << 20, times=1))
    before = len(registry.ledger.seen())
    assert contents(brought(source, tmp_path))["vocab.txt"] == (folder / "vocab.txt").read_bytes()
    assert len(registry.ledger.seen()) - before == 2


@pytest.mark.parametrize("style", WHOLE)
def test_a_layer_that_is_another(registry: RegistryServer, folder: Path, tmp_path: Path, style: Style) -> None:
    pack(folder, tmp_path / "layouts" / "image", "latest", style)
    layer = opened(registry).layers[0]
    good = blob(tmp_path, layer.digest).read_bytes()
    for at in (5, len(good) // 2, len(good) - 2):
        blob(tmp_path, layer.digest).write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert refusal(registry, tmp_path).reason is Reason.CHECKSUM_MISMATCH
    blob(tmp_path, layer.digest).write_bytes(good)
    assert brought(opened(registry), tmp_path).is_dir()


@pytest.mark.parametrize("style", WHOLE)
def test_a_layer_that_packs_something_else(
    registry: RegistryServer, folder: Path, tmp_path: Path, style: Style
) -> None:
    pack(folder, tmp_path / "layouts" / "image", "latest", style)
    source = opened(registry)
    (layer,) = source.layers
    packed = blob(tmp_path, layer.digest).read_bytes()
    inside = gzip.decompress(packed) if style is Style.IMAGE_GZIP else b"".join(decompress("zstd", iter([packed])))
    assert layer.content == f"sha256:{hashlib.sha256(inside).hexdigest()}"
    source.layers = (type(layer)(layer.digest, layer.size, layer.packing, content="sha256:" + "0" * 64),)
    with pytest.raises(WeightsError) as caught:
        brought(source, tmp_path)
    assert caught.value.reason is Reason.CHECKSUM_MISMATCH


@pytest.mark.parametrize("path", ["../outside", "models/../../outside", "/etc/outside", "models//x"])
def test_a_path_that_leaves_the_folder(registry: RegistryServer, tmp_path: Path, path: str) -> None:
    pushed(tmp_path, gzip.compress(tar_of(("models/config.json", b"{}"), (path, b"bad"))))
    assert refusal(registry, tmp_path).reason is Reason.UNSUPPORTED_SOURCE
    assert not list(tmp_path.rglob("outside"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_links_are_not_followed(registry: RegistryServer, tmp_path: Path, kind: bytes) -> None:
    (tmp_path / "far").mkdir()
    link = tar_of(("models/sub", b""), kind=kind, link=str(tmp_path / "far"))[:512]
    pushed(tmp_path, gzip.compress(link + tar_of(("models/config.json", b"{}"), ("models/sub/x.json", b"{}"))))
    assert set(contents(brought(opened(registry), tmp_path))) == {"config.json", "sub/x.json"}
    assert list((tmp_path / "far").iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "layer"),
    [
        (GZIP, b"no gzip"),
        (GZIP, gzip.compress(b"no tar" * 200)),
        (GZIP, gzip.compress(tar_of(("config.json", b"{}" * 2000)))[:-20]),
        (GZIP, gzip.compress(tar_of(("config.json", b"{}" * 2000))[:1500])),
        (GZIP, gzip.compress(tar_of(("a", b"{}"), ("a/b", b"{}")))),
        (GZIP, gzip.compress(tar_of(("x", bytes(2 << 20)), kind=tarfile.GNUTYPE_LONGNAME))),
        (GZIP, gzip.compress(header_of("x", 0, tarfile.GNUTYPE_LONGNAME) * 3000)),
        (ZSTD, b"no zstd"),
        (ZSTD, gzip.compress(tar_of(("config.json", b"{}")))),
        (ZSTD, zstd(b"no tar" * 200)),
        (ZSTD, zstd(tar_of(("config.json", b"{}" * 2000)))[:-5]),
        (ZSTD, zstd(tar_of(("config.json", b"{}" * 2000)))[:-1] + b"?"),
        (ZSTD, zstd(tar_of(("config.json", b"{}" * 2000))[:1500])),
    ],
    ids=[
        "no-gzip", "no-tar", "gzip-cut", "tar-cut", "file-and-folder", "long-notes", "nested-notes",
        "no-zstd", "gzip-for-zstd", "zstd-no-tar", "zstd-cut", "zstd-checksum", "zstd-tar-cut",
    ],
)  # fmt: skip
def test_what_cannot_be_unpacked(
    registry: RegistryServer, tmp_path: Path, kind: str, layer: bytes, request: pytest.FixtureRequest
) -> None:
    pushed(tmp_path, layer, kinds=(kind,))
    if request.node.callspec.id == "file-and-folder":
        with pytest.raises(WeightsError) as caught:
            brought(opened(registry), tmp_path)
        assert caught.value.reason is Reason.UNSUPPORTED_SOURCE
    else:
        assert refusal(registry, tmp_path).reason is Reason.UNSUPPORTED_SOURCE


def test_beyond_the_bound_nothing_is_asked_for(registry: RegistryServer, folder: Path, tmp_path: Path) -> None:
    pack(folder, tmp_path / "layouts" / "image", "latest", Style.IMAGE_GZIP)
    source = opened(registry)
    source.most = source.total - 1
    before = len(registry.ledger.seen())
    with pytest.raises(WeightsError) as caught:
        inspect(source)
    assert caught.value.reason is Reason.PAIR_UNREAD
    assert "uncompressed" in caught.value.remedy
    assert len(registry.ledger.seen()) == before
    assert brought(source, tmp_path).is_dir(), "a fetch has no such bound"


def test_an_inspection_of_a_slow_image_ends(registry: RegistryServer, folder: Path, tmp_path: Path) -> None:
    pack(folder, tmp_path / "layouts" / "image", "latest", Style.IMAGE_GZIP)
    source = opened(registry)
    source.seconds = 0.3
    registry.ledger.order(Fault(path=source.layers[0].digest, slow_to=500_000))
    with pytest.raises(WeightsError) as caught:
        inspect(source)
    assert caught.value.reason is Reason.PAIR_UNREAD
    assert "0.3 seconds" in caught.value.message


def test_a_window_that_takes_too_much_memory(registry: RegistryServer, tmp_path: Path) -> None:
    pushed(tmp_path, (0xFD2FB528).to_bytes(4, "little") + ROOM_FOR_256_MIB + b"\1\0\0", kinds=(ZSTD,))
    error = refusal(registry, tmp_path)
    assert error.reason is Reason.UNSUPPORTED_SOURCE
    assert f"window of {256 << 20} bytes" in error.message
    assert "--long" in error.remedy


@pytest.mark.parametrize("packing", [gzip.compress, zstd])
def test_an_inspection_unpacks_so_much_and_no_more(
    registry: RegistryServer, tmp_path: Path, packing: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "_MOST_INFLATED", 8 << 20)
    kind = ZSTD if packing is zstd else GZIP
    pushed(tmp_path, packing(tar_of(("config.json", b"{}"), ("model.bin", bytes(9 << 20)))), kinds=(kind,))
    with pytest.raises(WeightsError) as caught:
        inspect(opened(registry))
    assert caught.value.reason is Reason.PAIR_UNREAD
    assert "unpacks to more" in caught.value.message
    assert brought(opened(registry), tmp_path).is_dir(), "a fetch has no such bound"


def test_what_is_asked_to_stop_keeps_whole_layers(registry: RegistryServer, folder: Path, tmp_path: Path) -> None:
    pack(folder, tmp_path / "layouts" / "image", "latest", Style.IMAGE_LAYERS)
    source, stop = opened(registry), threading.Event()
    largest = max(source.layers, key=lambda layer: layer.size)
    registry.ledger.order(Fault(path=largest.digest, slow_to=100_000))

    def stop_at_the_end(_: Progress) -> None:
        if missing_bytes(source, tmp_path / "cache") == largest.size:
            stop.set()

    with pytest.raises(Stopped):
        brought(source, tmp_path, stop=stop, report=stop_at_the_end)
    registry.ledger.order()
    before = len(registry.ledger.seen())
    assert contents(brought(opened(registry), tmp_path))["vocab.txt"] == (folder / "vocab.txt").read_bytes()
    asked = [request.path for request in registry.ledger.seen()[before:] if "/blobs/" in request.path]
    assert sum(largest.digest in path for path in asked) == 1
    assert not any(layer.digest in path for path in asked for layer in source.layers if layer is not largest)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_ended_midway_and_another(
    registry: RegistryServer, folder: Path, tmp_path: Path, number: signal.Signals
) -> None:
    pack(folder, tmp_path / "layouts" / "image", "latest", Style.IMAGE_GZIP)
    registry.ledger.order(Fault(path=opened(registry).layers[0].digest, slow_to=200_000))
    cache = tmp_path / "cache"
    given = ["fetch", "--cache", str(cache), "--verifier", f"oci://{registry.authority}/image"]

    def process() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.unit.weights.loopback", *given],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": "operator:dev:."},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    first, deadline = process(), time.monotonic() + 30
    while not list(cache.rglob("*/layers/.*/files/models/config.json")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    first.send_signal(number)
    at = time.monotonic()
    _, said = first.communicate(timeout=30)
    assert first.returncode == (143 if number == signal.SIGTERM else -9), said
    assert time.monotonic() - at < 20, "a pod has 30 seconds to end"
    registry.ledger.order()
    second = process()
    _, said = second.communicate(timeout=30)
    assert second.returncode == 0, said
    (published,) = (cache / FOLDER / "models").iterdir()
    assert contents(published)["vocab.txt"] == (folder / "vocab.txt").read_bytes()
    assert list((cache / FOLDER / "partial").iterdir()) == []
