"""The end of a training: what becomes of its best checkpoint, and what is told of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from realengine import paths
from speculative_operator.domain.jobs import Exit, decode
from speculative_operator.domain.reasons import Reason
from speculative_operator.trainer import __main__, finish
from speculative_operator.weights import result
from speculative_operator.weights.inspect import inspect
from speculative_operator.weights.local import open_folder
from speculative_operator.weights.source import WeightsError

VERIFIER, HEAD = paths.ROOT / "dev" / "data" / "models" / "target", paths.ROOT / "dev" / "data" / "models" / "eagle3"
COMMAND = """\
# Timestamp: 2026-11-28T16:06:11+00:00
# speculators: 0.9.0
# vllm: 0.32.0
# torch: 2.13.0
speculators --verifier-name-or-path /claims/models/target --seed 7 --epochs 3
"""
MEASURED = {"loss_epoch": 2.0, "full_acc_0_epoch": 0.5, "full_acc_1_epoch": 0.25, "full_acc_2_epoch": 0.125}
BASE = "hf://tiny/target"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """What the library leaves of a head that fits."""
    output = tmp_path / "output"
    best = output / "checkpoints" / "2"
    shutil.copytree(HEAD, best)
    config = json.loads((best / "config.json").read_text())
    config |= {"auto_map": {"": "config.It"}, "speculators_config": {"verifier": {"name_or_path": "/claims/target"}}}
    (best / "config.json").write_text(json.dumps(config))
    (best / "config.py").write_text("raise SystemExit\n")
    (best / "optimizer_state_dict.pt").touch()
    (best / "train_command.txt").write_text(COMMAND)
    (best / "val_metrics.json").write_text(json.dumps(MEASURED))
    (best / "training_state.json").write_text(json.dumps({"epoch": 2, "local_step": 0, "global_step": 972}))
    (output / "checkpoints" / "checkpoint_best").symlink_to("2")
    (output / "responses.jsonl").write_text("{}\n" * 30)
    return output


def test_the_result_is_a_model_with_an_account_of_its_making(output: Path) -> None:
    told = finish.finish(VERIFIER, output, "eagle3", BASE, "hf://datasets/o/chats/a.jsonl@c1")
    assert told["data"] == "hf://datasets/o/chats/a.jsonl@c1"
    assert (told["acceptanceLength"], told["acceptanceLengths"]) == (1.875, [1.5, 1.75, 1.875])
    assert (told["loss"], told["epoch"], told["steps"], told["seed"], told["rows"]) == (2.0, 3, 972, 7, 30)
    assert told["versions"] == {"speculators": "0.9.0", "vllm": "0.32.0", "torch": "2.13.0"}
    assert told["dataDigest"].startswith("sha256:")
    model = output / "model"
    assert {path.name for path in model.iterdir()} == {"config.json", "model.safetensors", "README.md", "training.json"}
    config = json.loads((model / "config.json").read_text())
    assert "auto_map" not in config, "the file it names stays behind"
    assert config["speculators_config"]["verifier"]["name_or_path"] == "tiny/target"
    assert inspect(open_folder(model)).base_models == ("tiny/target",)


def test_a_head_is_judged_as_what_it_was_trained_to_be(output: Path) -> None:
    for method in ("dflash", "peagle"):
        with pytest.raises(WeightsError) as caught:
            finish.finish(VERIFIER, output, method, BASE)
        assert caught.value.reason is Reason.PAIR_MISMATCH
    path = output / "checkpoints" / "2" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"speculators_model_type": "peagle", "mask_token_id": 9}))
    assert finish.finish(VERIFIER, output, "peagle", BASE)["method"] == "peagle"


def test_a_result_that_is_published_stays(output: Path) -> None:
    first = finish.finish(VERIFIER, output, "eagle3", BASE)
    shutil.rmtree(output / "checkpoints")
    assert finish.finish(VERIFIER, output, "eagle3", BASE) == first


def test_a_head_of_another_verifier_is_not_published(output: Path) -> None:
    path = output / "checkpoints" / "2" / "config.json"
    config = json.loads(path.read_text())
    config["hidden_size"] = 64
    path.write_text(json.dumps(config))
    with pytest.raises(WeightsError) as caught:
        finish.finish(VERIFIER, output, "eagle3", BASE)
    assert (caught.value.reason, bool(caught.value.remedy)) == (Reason.PAIR_MISMATCH, True)
    assert not (output / "model").exists()


@pytest.mark.parametrize("name", ["config.json", "more.safetensors", "train_command.txt", "val_metrics.json"])
def test_a_link_out_of_the_output_is_not_followed(output: Path, tmp_path: Path, name: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("{}")
    link = output / "checkpoints" / "2" / name
    link.unlink(missing_ok=True)
    link.symlink_to(secret)
    with pytest.raises(WeightsError) as caught:
        finish.finish(VERIFIER, output, "eagle3", BASE)
    assert (caught.value.reason, bool(caught.value.remedy)) == (Reason.OUTPUT_FOREIGN, True)
    assert not (output / "model").exists()
    (output / "model").symlink_to(tmp_path)
    (tmp_path / finish.ACCOUNT).write_text("{}")
    with pytest.raises(WeightsError):
        finish.finish(VERIFIER, output, "eagle3", BASE)


def test_an_output_that_has_become_a_link_is_not_followed(output: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(output)
    arguments = ["--verifier", str(VERIFIER), "--output", str(link), "--claim", str(tmp_path)]
    assert __main__.main(["finish", *arguments]) == Exit.FINAL
    assert not (output / "model.partial").exists()


def test_figures_that_the_library_did_not_write_are_left_out(output: Path) -> None:
    for name in ("val_metrics.json", "train_command.txt", "training_state.json"):
        (output / "checkpoints" / "2" / name).unlink()
    told = finish.finish(VERIFIER, output, "eagle3", BASE)
    assert told.keys() == {"verifier", "method", "rows", "dataDigest", "versions"}


def test_the_program_tells_the_job_its_result_and_its_errors(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    monkeypatch.setattr(result, "TERMINATION_LOG", log)
    arguments = ["finish", "--verifier", str(VERIFIER), "--output", str(output), "--base", BASE]
    arguments += ["--claim", str(tmp_path)]
    assert __main__.main(arguments) == Exit.DONE
    assert (decode(log.read_text()) or {})["acceptanceLength"] == 1.875
    shutil.rmtree(output)
    output.mkdir()
    assert __main__.main(arguments) == Exit.FINAL
    assert (decode(log.read_text()) or {})["error"]["reason"] == "TrainingFailed"
