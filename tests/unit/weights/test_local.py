"""Folders and mounted claims: pins by content, links, and what the file system refuses."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest
from tests.unit.weights import made

from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.weights.local import open_claim, open_folder
from speculative_operator.weights.source import Entry, WeightsError
from speculative_operator.weights.sources import open_source


def claim(tmp_path: Path, location: str = "claim/models/one", revision: str = "") -> ModelSource:
    return ModelSource(Scheme.PVC, location, revision)


def refused(tmp_path: Path, location: str = "claim/models/one", revision: str = "") -> WeightsError:
    with pytest.raises(WeightsError) as caught:
        open_claim(claim(tmp_path, location, revision), tmp_path)
    return caught.value


def test_a_claim_is_read_below_where_claims_are_mounted(tmp_path: Path) -> None:
    folder = made.model(tmp_path / "claim" / "models" / "one")
    source = open_source(claim(tmp_path), tmp_path)
    assert source.pin.location == "claim/models/one"
    for entry in source.files:
        assert b"".join(source.read(entry, 0, entry.size)) == (folder / entry.path).read_bytes()
    assert open_source(ModelSource(Scheme.PVC, "claim"), tmp_path).files


def test_the_pin_is_of_the_content(tmp_path: Path) -> None:
    folder = made.model(tmp_path / "claim" / "models" / "one")
    first = open_claim(claim(tmp_path), tmp_path).pin
    os.utime(folder / "config.json", (1, 1))
    shutil.copytree(folder, tmp_path / "claim" / "copy")
    assert open_claim(claim(tmp_path), tmp_path).pin == first
    assert open_folder(tmp_path / "claim" / "copy").pin.resolved == first.resolved
    (folder / ".gitattributes").write_text("changed")
    assert open_claim(claim(tmp_path), tmp_path).pin == first
    (folder / "config.json").write_text('{"hidden_size": 1}')
    assert open_claim(claim(tmp_path), tmp_path).pin.resolved != first.resolved
    assert refused(tmp_path, revision=first.resolved).reason is Reason.SOURCE_NOT_FOUND


def test_the_recipe_of_the_pin(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_bytes(b"two")
    (tmp_path / "a.json").write_bytes(b"one")
    lines = "".join(
        f"{name}\0{3}\0{hashlib.sha256(text).hexdigest()}\n" for name, text in (("a.json", b"one"), ("b.json", b"two"))
    )
    assert open_folder(tmp_path).pin.resolved == f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"


@pytest.mark.parametrize("at", [0, 100 << 20, (200 << 20) - 1])
def test_large_files_are_sampled(tmp_path: Path, at: int) -> None:
    file = tmp_path / "model.safetensors"
    with file.open("wb") as holes:
        holes.truncate(200 << 20)
    former = open_folder(tmp_path)
    assert former.files[0].sha256 == ""
    with file.open("r+b") as holes:
        holes.seek(at)
        holes.write(b"x")
    assert open_folder(tmp_path).pin.resolved != former.pin.resolved


def test_links_within_a_claim_are_followed_and_others_refused(tmp_path: Path) -> None:
    folder = made.model(tmp_path / "claim" / "models" / "one")
    blob = tmp_path / "claim" / "blob"
    (folder / "config.json").rename(blob)
    (folder / "config.json").symlink_to(blob)
    assert open_claim(claim(tmp_path), tmp_path).files
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    (folder / "other.json").symlink_to(secret)
    error = refused(tmp_path)
    assert (error.reason, error.file) == (Reason.UNSUPPORTED_SOURCE, "other.json")
    # A user's own folder may link wherever it likes, as the hub's cache does.
    assert "other.json" in [entry.path for entry in open_folder(folder).files]


@pytest.mark.parametrize("location", ["claim/../../etc", "../x", "claim/a/../b"])
def test_a_location_cannot_leave_its_claim(tmp_path: Path, location: str) -> None:
    assert refused(tmp_path, location).reason is Reason.UNSUPPORTED_SOURCE


def test_what_is_not_there(tmp_path: Path) -> None:
    assert refused(tmp_path).reason is Reason.SOURCE_NOT_FOUND
    (tmp_path / "claim" / "models" / "one").mkdir(parents=True)
    assert refused(tmp_path).reason is Reason.SOURCE_NOT_FOUND
    with pytest.raises(WeightsError) as caught:
        open_source(claim(tmp_path))
    assert "--claims-at" in caught.value.remedy


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_folder(made.model(tmp_path / "m"))

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", forbidden)
    with pytest.raises(WeightsError) as caught:
        list(source.read(Entry("config.json", 3), 0, 3))
    assert (caught.value.reason, caught.value.file) == (Reason.SOURCE_UNAUTHORIZED, "config.json")


def test_a_file_that_was_cut_meanwhile(tmp_path: Path) -> None:
    source = open_folder(made.model(tmp_path / "m"))
    entry = next(one for one in source.files if one.path == "config.json")
    (tmp_path / "m" / "config.json").write_text("{}")
    with pytest.raises(WeightsError) as caught:
        list(source.read(entry, 0, entry.size))
    assert (caught.value.reason, caught.value.file) == (Reason.CHECKSUM_MISMATCH, "config.json")
