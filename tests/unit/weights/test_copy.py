"""Copies of what was trained, in a real S3 service: whole or not a model, and never over files of others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest

from modelservers import s3
from speculative_operator.domain.jobs import Exit
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.weights import __main__
from speculative_operator.weights.s3 import copy_to_bucket, open_bucket
from speculative_operator.weights.source import WeightsError

TARGET = ModelSource(Scheme.S3, "models/team/head")
OWNER = "team/pvc://claim/head"
LARGE = 6 << 20
"""Bytes that obstore sends in several parts."""


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a bucket; its service is that of the environment."""
    if why := s3.unbuilt():
        pytest.skip(why)
    (tmp_path / "buckets" / "models").mkdir(parents=True)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with s3.serving(tmp_path / "buckets") as service:
        for name, value in {**service.environment, "NO_PROXY": "*"}.items():
            monkeypatch.setenv(name, value)
        yield tmp_path / "buckets" / "models"


@pytest.fixture
def training(tmp_path: Path) -> Path:
    """Folder of a training that is done."""
    folder = tmp_path / "claim" / "head"
    (folder / "model").mkdir(parents=True)
    (folder / "training-of.json").write_text(json.dumps({"of": "this"}))
    for name in ("config.json", "README.md", "training.json"):
        (folder / "model" / name).write_text(f'{{"it": "{name}"}}')
    (folder / "model" / "model.safetensors").write_bytes(os.urandom(LARGE))
    return folder


def copied(training: Path, *, begin: bool = False) -> int:
    return copy_to_bucket(training, training.parent, TARGET, OWNER, begin=begin)


def refused(training: Path, *, begin: bool = False) -> WeightsError:
    with pytest.raises(WeightsError) as caught:
        copied(training, begin=begin)
    assert caught.value.remedy
    return caught.value


def test_a_result_is_copied_whole_and_found_by_who_reads_models(bucket: Path, training: Path) -> None:
    copied(training, begin=True)
    assert [one.name for one in (bucket / "team" / "head").iterdir()] == ["training-of.json"]
    assert copied(training) > LARGE
    for path in (training / "model").iterdir():
        assert (bucket / "team" / "head" / path.name).read_bytes() == path.read_bytes()
    assert {"config.json", "model.safetensors"} <= {one.path for one in open_bucket(TARGET).files}
    for begin in (True, False):
        copied(training, begin=begin)  # another pod, or another object for the same training


def test_a_copy_that_is_cut_short_is_no_model_and_the_next_one_makes_it_whole(
    bucket: Path, training: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, sent = obstore.put, list[str]()

    def cut(store: Any, path: str, file: Any, **more: Any) -> Any:
        sent.append(path)
        if len(sent) == 4:
            raise ConnectionError("the line is cut")
        return put(store, path, file, **more)

    with monkeypatch.context() as patched:
        patched.setattr(obstore, "put", cut)
        assert refused(training).reason is Reason.SOURCE_UNREACHABLE
    there = {one.name for one in (bucket / "team" / "head").iterdir()}
    assert "config.json" not in there
    copied(training)
    assert (bucket / "team" / "head" / "config.json").exists()


def write_theirs(bucket: Path, training: Path) -> None:
    (bucket / "team" / "head").mkdir(parents=True)
    (bucket / "team" / "head" / "thesis.txt").write_text("mine")


def make_another(bucket: Path, training: Path) -> None:
    copied(training)
    (training / "training-of.json").write_text(json.dumps({"of": "another"}))


def make_other_result(bucket: Path, training: Path) -> None:
    copied(training)
    (training / "model" / "training.json").write_text("{}")


@pytest.mark.parametrize("before", [write_theirs, make_another, make_other_result])
@pytest.mark.parametrize("begin", [True, False])
def test_what_others_put_there_stays_as_it_is(
    bucket: Path, training: Path, before: Callable[[Path, Path], None], begin: bool
) -> None:
    before(bucket, training)
    kept = {one.name: one.read_bytes() for one in (bucket / "team" / "head").iterdir()}
    found = refused(training, begin=begin)
    assert (found.reason, "copyTo" in found.remedy) == (Reason.OUTPUT_FOREIGN, True)
    assert {one.name: one.read_bytes() for one in (bucket / "team" / "head").iterdir()} == kept


@pytest.mark.parametrize("name", ["training-of.json", "model/config.json"])
def test_a_link_out_of_the_claim_is_not_copied(bucket: Path, training: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")
    (training / name).unlink()
    (training / name).symlink_to(tmp_path / "secret")
    assert refused(training).reason is Reason.OUTPUT_FOREIGN
    assert not [one for one in bucket.rglob("*") if one.is_file() and one.read_bytes() == b"secret"]


def test_a_file_of_a_neighbour_on_the_claim_is_not_copied(bucket: Path, training: Path) -> None:
    (training.parent / "neighbour").write_text("secret")
    (training / "model" / "README.md").unlink()
    (training / "model" / "README.md").symlink_to(training.parent / "neighbour")
    assert refused(training).reason is Reason.OUTPUT_FOREIGN
    assert not [one for one in bucket.rglob("*") if one.is_file() and one.read_bytes() == b"secret"]


@pytest.mark.parametrize("above", ["config.json", "team/config.json", "team/training-of.json"])
def test_nothing_is_put_into_the_folder_of_a_model(bucket: Path, training: Path, above: str) -> None:
    (bucket / "team").mkdir()
    (bucket / above).write_text("{}")
    assert "lies in s3://models" in str(refused(training, begin=True))
    assert not (bucket / "team" / "head").exists()


def test_a_mark_alone_binds_others_and_not_its_own_training(bucket: Path, training: Path) -> None:
    copied(training, begin=True)
    with pytest.raises(WeightsError, match="another training"):
        copy_to_bucket(training, training.parent, TARGET, "team/pvc://claim/other", begin=True)
    (training / "training-of.json").write_text(json.dumps({"of": "this", "verifier": "moved"}))
    copied(training, begin=True)
    assert copied(training) > LARGE


def test_of_two_trainings_that_begin_at_once_one_is_refused(
    bucket: Path, training: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(training, begin=True)
    monkeypatch.setattr(obstore, "list", lambda *_: iter(()))  # as the other saw it a moment before
    assert "at this moment" in str(refused(training, begin=True))


def test_keys_that_are_refused_are_told_before_a_result_is_there(
    bucket: Path, training: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert refused(training, begin=True).reason is Reason.SOURCE_UNAUTHORIZED
    arguments = [
        "copy",
        "--training",
        str(training),
        "--claim",
        str(training.parent),
        "--owner",
        OWNER,
        "--to",
        TARGET.uri,
    ]
    assert __main__.main([*arguments, "--begin"]) == Exit.FINAL
