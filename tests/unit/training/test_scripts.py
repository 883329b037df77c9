"""The scripts of a training's pod with stand-ins for vLLM and the library: what a pod does that follows a lost one."""

from __future__ import annotations

import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.unit.training.seen import TRAINING

from speculative_operator.domain.jobs import decode
from speculative_operator.training import scripts
from speculative_operator.training.jobs import Known, Means, train_job

VLLM = "exec sleep 60"
PYTHON = """\
echo "$*" >> "$LOG"
case "$*" in
  *health*) exit 0 ;;
  *regenerate-responses*) [ "$FAIL" = answers ] || echo '{}' >> "$OUTPUT/responses.jsonl" ;;
  *prepare-data*)
    while [ "$1" != --output ]; do shift; done
    mkdir -p "$2"
    [ "$FAIL" != prepare ] && touch "$2/a.arrow" ;;
  *speculators.train*)
    echo 'step   '; echo 'HTTP Request: POST'
    [ "$FAIL" = train ] || for one in 0 1; do mkdir -p "$OUTPUT/checkpoints/$one"
      touch "$OUTPUT/checkpoints/$one/training_state.json"; done ;;
esac
"""


class Pod:
    def __init__(self, folder: Path) -> None:
        self.output, self.log, programs = folder / "output", folder / "log", folder / "bin"
        self.states, self.told = folder / "states", folder / "termination-log"
        programs.mkdir()
        self.states.mkdir()
        for name, text in (("vllm", VLLM), ("python3", PYTHON), ("torchrun", PYTHON)):
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        self.env = {
            "PATH": f"{programs}:/usr/bin:/bin", "OUTPUT": str(self.output), "LOG": str(self.log), "FAIL": "",
            "VERIFIER": "/models/it", "PROMPTS": "/data/it.jsonl", "ANSWERS": "Regenerate", "METHOD": "eagle3",
            "SEQUENCE_TOKENS": "64", "ANSWER_TOKENS": "32", "SAMPLES": "", "EPOCHS": "2", "SEED": "1",
            "LAYERS": "2 1 0", "STATES": str(self.states), "ACCELERATORS": "0",
        }  # fmt: skip

    def run(self, script: str, **changed: str) -> subprocess.CompletedProcess[str]:
        self.log.write_text("")
        command = ["/bin/sh", "-c", script.replace("/dev/termination-log", str(self.told)), "it", "--more"]
        env = {**self.env, **changed}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)

    @property
    def said(self) -> str:
        return self.log.read_text()


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def test_answers_are_made_once(pod: Pod) -> None:
    assert pod.run(scripts.ANSWERS, SAMPLES="7").returncode == 0
    assert "--resume" in pod.said
    assert "--limit 7\n" in pod.said
    assert "--max-samples 7\n" in pod.said
    assert [path.name for path in (pod.output / "prepared").iterdir()] == ["a.arrow"]
    assert pod.run(scripts.ANSWERS).returncode == 0
    assert pod.said == ""


def test_data_that_was_half_made_is_made_anew(pod: Pod) -> None:
    assert pod.run(scripts.ANSWERS, FAIL="prepare").returncode != 0
    assert not (pod.output / "prepared").exists()
    assert pod.run(scripts.ANSWERS).returncode == 0
    assert (pod.output / "prepared").is_dir()


def test_prompts_of_which_none_is_answered_end_the_training(pod: Pod) -> None:
    ended = pod.run(scripts.ANSWERS, FAIL="answers")
    assert (ended.returncode, "no prompt was answered" in ended.stderr) == (3, True)


def test_an_engine_that_ends_does_not_pass_for_data_that_are_bad(pod: Pod) -> None:
    (pod.log.parent / "bin" / "vllm").write_text("#!/bin/sh\nexit 7\n")
    (pod.log.parent / "bin" / "python3").write_text("#!/bin/sh\nexit 1\n")
    assert pod.run(scripts.ANSWERS).returncode == 1


def test_answers_of_the_data_are_kept_where_that_is_asked(pod: Pod) -> None:
    assert pod.run(scripts.ANSWERS, ANSWERS="Keep").returncode == 0
    assert "regenerate" not in pod.said
    assert "--data /data/it.jsonl" in pod.said
    assert "samples" not in pod.said
    assert "--render-endpoint" in pod.said


def test_training_ends_well_only_with_the_checkpoint_of_its_last_epoch(pod: Pod) -> None:
    assert pod.run(scripts.TRAIN, FAIL="train").returncode != 0
    ended = pod.run(scripts.TRAIN)
    assert (ended.returncode, ended.stdout) == (0, "step\n")
    assert "--target-layer-ids 2 1 0" in pod.said
    assert pod.said.rstrip().endswith("--more")
    assert pod.run(scripts.TRAIN).returncode == 0
    assert pod.said == "", "it was done"


def test_half_a_checkpoint_is_removed_before_the_library_sees_it_and_nothing_else(pod: Pod) -> None:
    kept = pod.output / "checkpoints"
    for name in ("0", "1", "checkpoint_best", "notes"):
        (kept / name).mkdir(parents=True)
    (kept / "0" / "training_state.json").touch()
    pod.run(scripts.TRAIN, FAIL="train")
    assert sorted(path.name for path in kept.iterdir()) == ["0", "checkpoint_best", "notes"]


TORCH = "class OutOfMemoryError(RuntimeError): ..."
TRAINER = "import sys, torch, it\nassert sys.argv[1] == '--verifier-name-or-path', sys.argv\nit.ends()"


@pytest.mark.parametrize(
    ("error", "trained", "code", "reason"),
    [("torch.OutOfMemoryError()", (), 3, "OutOfMemory"), ("torch.OutOfMemoryError()", ("0",), 1, "OutOfMemory"),
     ("RuntimeError('CUDA out of memory')", (), 1, None)],
)  # fmt: skip
def test_memory_that_was_too_little_is_told_by_the_kind_of_the_error(
    pod: Pod, tmp_path: Path, error: str, trained: tuple[str, ...], code: int, reason: str | None
) -> None:
    (tmp_path / "speculators" / "train").mkdir(parents=True)
    for path, text in (("speculators/train/__main__", TRAINER), ("torch", TORCH)):
        (tmp_path / f"{path}.py").write_text(text)
    (tmp_path / "it.py").write_text(f"import torch\ndef ends():\n    raise {error}")
    (tmp_path / "bin" / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for one in trained:
        (pod.output / "checkpoints" / one).mkdir(parents=True)
        (pod.output / "checkpoints" / one / "training_state.json").touch()
    assert pod.run(scripts.TRAIN, PYTHONPATH=str(tmp_path)).returncode == code
    found = decode(pod.told.read_text()) if pod.told.exists() else None
    assert (found["error"]["reason"] if found else None) == reason


def test_several_accelerators_are_trained_on_by_as_many_processes(pod: Pod) -> None:
    assert pod.run(scripts.TRAIN, ACCELERATORS="4").returncode == 0
    assert pod.said.startswith(
        f"--standalone --nproc_per_node 4 {pod.states}/guard.py speculators.train --verifier-name-or-path /models/it"
    )


def test_a_server_of_hidden_states_that_cannot_start_ends_the_training(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "bin" / "vllm").write_text('#!/bin/sh\necho "vllm $*" >> "$LOG"\nexit 7\n')
    (tmp_path / "bin" / "sleep").write_text('#!/bin/sh\necho "sleep $*" >> "$LOG"\n')
    (tmp_path / "bin" / "sleep").chmod(0o755)
    states = {"STATES": str(tmp_path)}
    for _ in range(2):
        assert pod.run(scripts.STATES, **states).returncode == 7
        assert pod.said == "vllm --more\n"
        assert not (tmp_path / "failed").exists()
    pod.run(scripts.STATES, **states)
    assert pod.said == "vllm --more\nsleep infinity\n", "its log stays that of the container"
    pod.run(scripts.STATES, **states)
    assert pod.said == "sleep infinity\n", "a container that was killed starts it no more"
    ended = pod.run(scripts.TRAIN, **states)
    assert (ended.returncode, "kubectl logs -c states" in ended.stderr, pod.said) == (3, True, "")
    assert pod.run(scripts.TRAIN).returncode == 0, "another pod has another folder"
    assert pod.run(scripts.TRAIN, **states).returncode == 0, "what is trained needs no server"


def test_a_server_that_was_healthy_may_end_and_start_again(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "bin" / "vllm").write_text('#!/bin/sh\n: > "$STATES/starts"\nexit 7\n')
    (tmp_path / "starts").write_text("start\n" * 2)
    assert [pod.run(scripts.STATES, STATES=str(tmp_path)).returncode for _ in range(4)] == [1, 7, 7, 7]
    assert not (tmp_path / "failed").exists()


def test_the_startup_probe_passes_one_that_has_given_up_and_forgets_starts_before_health(tmp_path: Path) -> None:
    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        job = train_job(TRAINING, Known("c", 36), 60, Means("o"))
        (states,) = (one for one in job["spec"]["template"]["spec"]["initContainers"] if one["name"] == "states")
        code = states["startupProbe"]["exec"]["command"][-1].replace(scripts.STATES_FOLDER, str(tmp_path))

        def passes(port: int) -> bool:
            given = code.replace(f":{scripts.PORT}/", f":{port}/")
            return subprocess.run([sys.executable, "-c", given], capture_output=True, check=False).returncode == 0

        (tmp_path / "starts").write_text("start\nstart\n")
        assert not passes(1)
        assert (tmp_path / "starts").read_text() == "start\nstart\n"
        assert passes(server.server_port)
        assert (tmp_path / "starts").read_text() == ""
        (tmp_path / "failed").touch()
        assert passes(1)
        server.shutdown()


def test_the_engine_of_hidden_states_is_told_the_layers_and_one_token_more() -> None:
    given = scripts.states_arguments("/models/it", [2, 1, 0, 3], 64)
    told = dict(zip(given[2::2], given[3::2], strict=False))
    assert given[:2] == ["serve", "/models/it"]
    assert told["--max-model-len"] == "65"
    (drafts,) = (json.loads(one) for one in given if "extract_hidden_states" in one)
    assert drafts["draft_model_config"]["hf_config"]["eagle_aux_hidden_state_layer_ids"] == [2, 1, 0, 3]
    assert "served-model-name" not in " ".join(given), "the library refuses an engine by another name"
