"""The hub's own client and ours against an emulated hub: pins, ranges, redirects, refusals, faults."""

from __future__ import annotations

import hashlib
import shutil
import socket
from pathlib import Path

import pytest
from tests.unit.weights import made
from tests.unit.weights.conftest import LEFT_OUT, LET_IN
from tests.unit.weights.shelf import SHORT

from modelservers.faults import Fault
from modelservers.hub import HubServer
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.weights.hub import HubSource, open_hub
from speculative_operator.weights.inspect import inspect
from speculative_operator.weights.local import open_folder
from speculative_operator.weights.source import WeightsError
from speculative_operator.weights.sources import open_source

TENSORS = "model-00002-of-00002.safetensors"


def opened(name: str = "org/base", revision: str = "") -> HubSource:
    return open_hub(ModelSource(Scheme.HF, name, revision), SHORT)


def read(source: HubSource, path: str, start: int = 0, end: int | None = None) -> bytes:
    entry = next(one for one in source.files if one.path == path)
    return b"".join(source.read(entry, start, entry.size if end is None else end))


def refused(name: str = "org/base", revision: str = "", path: str = "") -> WeightsError:
    """What goes wrong at opening, or with `path` at reading one."""
    with pytest.raises(WeightsError) as caught:
        read(opened(name, revision), path) if path else opened(name, revision)
    return caught.value


def test_facts_are_those_of_the_folder(hub: HubServer, tmp_path: Path) -> None:
    here = inspect(open_folder(tmp_path / "hub" / "org" / "base"))
    there = inspect(open_source(ModelSource(Scheme.HF, "org/base")))
    assert there.to_json() | {"pin": 0} == here.to_json() | {"pin": 0}
    assert len(there.pin.resolved) == 40


def test_tensors_are_never_read(hub: HubServer, tmp_path: Path) -> None:
    size = 1 << 32
    made.safetensors(
        tmp_path / "hub" / "org" / "base" / TENSORS, {"model.layers.1.mlp.up_proj.weight": ("U8", (size,))}
    )
    facts = inspect(opened())
    assert facts.weights.parameters["U8"] == size
    # Headers come with the first 64 KiB of each file, the rest are the small files.
    assert hub.ledger.bytes < 200_000


def test_a_revision_is_a_commit_once(hub: HubServer, tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "org" / "base"
    first = opened()
    shutil.copytree(repository, repository.with_name("base@v1"))
    (repository / "config.json").write_text("{}")
    moved = opened()
    assert moved.pin.resolved != first.pin.resolved
    assert opened(revision="v1").pin.resolved == first.pin.resolved
    assert opened(revision=first.pin.resolved).pin.resolved == first.pin.resolved
    assert read(moved, "config.json") == b"{}"
    assert read(first, "config.json") == (repository.with_name("base@v1") / "config.json").read_bytes()
    assert first.pin.key == opened(revision="v1").pin.key != moved.pin.key


@pytest.mark.parametrize("span", [(0, 1), (0, 300), (7, 263), (100, 101)])
def test_ranges(hub: HubServer, tmp_path: Path, span: tuple[int, int]) -> None:
    content = (tmp_path / "hub" / "org" / "base" / TENSORS).read_bytes()
    assert read(opened(), TENSORS, *span) == content[slice(*span)]


def test_checksums_of_large_files_and_blobs_of_small_ones(hub: HubServer, tmp_path: Path) -> None:
    by_path = {entry.path: entry for entry in opened().files}
    content = (tmp_path / "hub" / "org" / "base" / TENSORS).read_bytes()
    assert by_path[TENSORS].sha256 == hashlib.sha256(content).hexdigest()
    config = (tmp_path / "hub" / "org" / "base" / "config.json").read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(config) + config, usedforsecurity=False).hexdigest()
    assert (by_path["config.json"].sha256, by_path["config.json"].etag) == ("", f"git:{blob}")


def test_credentials_stay_with_the_hub(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", LET_IN)
    source = opened("org/gated")
    hub.ledger.clear()
    read(source, TENSORS, 0, 50)
    at_hub = [one for one in hub.ledger.seen() if "/resolve/" in one.path]
    at_store = [one for one in hub.ledger.seen() if "/_store/" in one.path]
    assert [one.authorized for one in at_hub] == [True]
    assert [one.authorized for one in at_store] == [False]


def test_gated_without_a_token_names_the_key(hub: HubServer) -> None:
    error = refused("org/gated", path="config.json")
    assert (error.reason, error.status, error.file) == (Reason.SOURCE_UNAUTHORIZED, 401, "config.json")
    assert "gated" in error.message
    assert "HF_TOKEN" in error.remedy
    assert "Secret" in error.remedy


def test_gated_with_a_token_that_was_not_let_in(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", LEFT_OUT)
    error = refused("org/gated", path="config.json")
    assert (error.reason, error.status) == (Reason.SOURCE_UNAUTHORIZED, 403)
    assert "no access" in error.message
    assert "Secret" not in error.remedy
    assert LEFT_OUT not in str(error)


def test_a_token_that_is_none(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_mistyped")
    error = refused()
    assert (error.reason, error.status) == (Reason.SOURCE_UNAUTHORIZED, 401)
    assert "HF_TOKEN" in error.remedy
    assert "hf_mistyped" not in str(error)


def test_absent_model_revision_and_file_are_told_apart(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = refused("org/none")
    assert (missing.reason, missing.status) == (Reason.SOURCE_NOT_FOUND, 401)
    assert "HF_TOKEN" in missing.remedy
    monkeypatch.setenv("HF_TOKEN", LET_IN)
    assert (refused("org/none").reason, refused("org/none").status) == (Reason.SOURCE_NOT_FOUND, 404)
    revision = refused("org/base", "v9")
    assert (revision.reason, revision.status) == (Reason.SOURCE_NOT_FOUND, 404)
    assert "'v9'" in revision.message
    source = opened()
    (hub.repositories.folder / "org" / "base" / "config.json").rename(hub.repositories.folder / "gone")
    with pytest.raises(WeightsError) as caught:
        read(source, "config.json")
    assert (caught.value.reason, caught.value.file) == (Reason.SOURCE_NOT_FOUND, "config.json")
    assert refused("no name at all").reason is Reason.SOURCE_NOT_FOUND


@pytest.mark.parametrize(
    ("headers", "wait"),
    [({"Retry-After": "17"}, 17.0), ({"RateLimit": '"resolvers";r=0;t=57'}, 57.0), ({}, None)],
)
@pytest.mark.parametrize("path", ["", "config.json"])
def test_throttling_tells_how_long(hub: HubServer, path: str, headers: dict[str, str], wait: float | None) -> None:
    hub.ledger.order(Fault(path="/resolve/" if path else "/api/", status=429, headers=headers))
    error = refused(path=path)
    assert (error.reason, error.status, error.file) == (Reason.SOURCE_THROTTLED, 429, path)
    assert error.retry_after == wait
    assert error.transient


@pytest.mark.parametrize("status", [500, 502, 503, 504])
@pytest.mark.parametrize("path", ["", "config.json"])
def test_a_failing_hub(hub: HubServer, status: int, path: str) -> None:
    hub.ledger.order(Fault(path="/resolve/" if path else "/api/", status=status))
    error = refused(path=path)
    assert (error.reason, error.status, error.file) == (Reason.SOURCE_UNREACHABLE, status, path)


@pytest.mark.parametrize("fault", [Fault(drip=20), Fault(delay=2)], ids=["drips", "silent"])
@pytest.mark.parametrize("path", ["", TENSORS])
def test_a_hub_that_dawdles(hub: HubServer, fault: Fault, path: str) -> None:
    fault.path = "/_store/" if path else "/api/"
    hub.ledger.order(fault)
    error = refused(path=path)
    assert (error.reason, error.file) == (Reason.SOURCE_UNREACHABLE, path)
    assert error.remedy


def test_a_broken_connection_tells_the_file(hub: HubServer) -> None:
    hub.ledger.order(Fault(path="/_store/", cut_after=33))
    error = refused(path=TENSORS)
    assert (error.reason, error.file) == (Reason.SOURCE_UNREACHABLE, TENSORS)


def test_a_hub_that_must_not_be_asked(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.is_offline_mode", lambda: True)
    error = refused()
    assert error.reason is Reason.SOURCE_UNREACHABLE
    assert "HF_HUB_OFFLINE" in error.message
    assert hub.ledger.seen() == []


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
    error = refused()
    assert error.reason is Reason.SOURCE_UNREACHABLE
    assert "refused" in error.message


def test_a_page_in_place_of_the_hub(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that answers 200 with something of its own."""
    monkeypatch.setenv("HF_ENDPOINT", f"{hub.url}/_control?")
    error = refused()
    assert error.reason is Reason.SOURCE_UNREACHABLE
    assert "HF_ENDPOINT" in error.remedy


def test_one_file_of_a_data_set_is_read_at_a_commit_and_nothing_else(hub: HubServer, tmp_path: Path) -> None:
    chats = tmp_path / "hub" / "datasets" / "org" / "chats"
    (chats / "data").mkdir(parents=True)
    for name in ("data/train.jsonl", "data/test.jsonl", "README.md", "train.parquet"):
        (chats / name).write_text(name)
    there = "datasets/org/chats/data/train.jsonl"
    first = opened(there)
    assert [(one.path, one.size) for one in first.files] == [("data/train.jsonl", 16)]
    (chats / "data" / "train.jsonl").write_text("moved")
    moved = opened(there)
    assert moved.pin.key != first.pin.key != opened("datasets/org/chats/data/test.jsonl").pin.key
    assert read(opened(there, moved.pin.resolved), "data/train.jsonl") == b"moved"
    found = refused("datasets/org/chats/data/none.jsonl")
    assert (found.reason, bool(found.remedy)) == (Reason.SOURCE_NOT_FOUND, True)
    assert "no such file; it has data/test.jsonl, data/train.jsonl" in found.message
    assert "it has none that ends in .csv" in refused("datasets/org/chats/a.csv").message
    assert refused(there, "none").reason is Reason.SOURCE_NOT_FOUND
    assert refused("datasets/org/none/a.jsonl").reason is Reason.SOURCE_NOT_FOUND
    assert refused("datasets/org/base/config.json").reason is Reason.SOURCE_NOT_FOUND, "a model is no data set"


def test_a_gated_data_set_is_told_as_such(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chats = tmp_path / "hub" / "datasets" / "org" / "chats"
    chats.mkdir(parents=True)
    (chats / "a.jsonl").write_text("a")
    hub.access.gated["datasets/org/chats"] = frozenset({LET_IN})
    found = refused("datasets/org/chats/a.jsonl", path="a.jsonl")
    assert (found.reason, "HF_TOKEN" in found.remedy) == (Reason.SOURCE_UNAUTHORIZED, True)
    monkeypatch.setenv("HF_TOKEN", LET_IN)
    assert read(opened("datasets/org/chats/a.jsonl"), "a.jsonl") == b"a"
