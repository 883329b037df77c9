"""What the containers of a training's pod run: vLLM and the library speculators, pinned by the trainer's image. `jobs`
renders them. Nothing of a spec is put into a script: it comes as an argument or a variable of the environment.

Variables: OUTPUT (the training's folder), VERIFIER (folder of the model), PROMPTS (a file of JSON lines), ANSWERS
(Regenerate or Keep), METHOD, SEQUENCE_TOKENS, ANSWER_TOKENS, SAMPLES (empty: all), EPOCHS, SEED, LAYERS (of the
verifier, apart by blanks), STATES (folder of the pod for hidden states on their way), ACCELERATORS (of the container).

Every script goes on where an earlier pod ended, and ends at once where one has done its work. Flags and files are those
of speculators 0.9.0 (`cli/regenerate_responses.py`, `cli/prepare_data.py`, `train/config/schema.py`,
`train/checkpointer.py`) and of its program that starts vLLM (`scripts/launch_vllm.py` in its repository).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from speculative_operator.domain.jobs import encode
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.training import Trained

PORT = 8000
STATES_FOLDER = "/states"
PREPARED = "prepared"
CHECKPOINTS = "checkpoints"
RESPONSES = "responses.jsonl"

ANSWERS = f"""\
set -eu
done="$OUTPUT/{PREPARED}" responses="$OUTPUT/{RESPONSES}"
[ -d "$done" ] && exit 0
mkdir -p "$OUTPUT"
vllm serve "$VERIFIER" --host 127.0.0.1 --port {PORT} --max-model-len "$SEQUENCE_TOKENS" \\
  --disable-uvicorn-access-log "$@" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" || true' EXIT
trap 'exit 143' TERM
alive() {{ kill -0 "$server" 2>/dev/null || {{ echo "the engine ended; its log is above" >&2; exit 1; }}; }}
until python3 -c 'import urllib.request as r; r.urlopen("http://127.0.0.1:{PORT}/health", timeout=5)' 2>/dev/null; do
  alive
  sleep 2
done
if [ "$ANSWERS" = Regenerate ]; then
  python3 -m speculators regenerate-responses --endpoint http://127.0.0.1:{PORT}/v1/chat/completions \\
    --model "$VERIFIER" --dataset "$PROMPTS" --outfile "$responses" --resume --max-tokens "$ANSWER_TOKENS" \\
    --seed "$SEED" ${{SAMPLES:+--limit $SAMPLES}}
  alive
  [ -s "$responses" ] || {{ echo "no prompt was answered; see $OUTPUT/responses.errors.jsonl" >&2; exit 3; }}
  data=$responses render=""
else
  data=$PROMPTS render="--render-endpoint http://127.0.0.1:{PORT}"
fi
rm -rf "$done.partial"
python3 -m speculators prepare-data --model "$VERIFIER" --data "$data" --output "$done.partial" --seed "$SEED" \\
  --seq-length "$SEQUENCE_TOKENS" --minimum-valid-tokens 1 $render \\
  ${{SAMPLES:+--max-samples $SAMPLES}}
mv -T "$done.partial" "$done"
"""
"""Has the verifier answer the prompts, and makes the library's data of it. A folder with the data's name is whole:
the library alone would take half a one for whole. Exit status 3: there is nothing to train on."""

STATES = """\
set -u
echo start >> "$STATES/starts"
count=$(wc -l < "$STATES/starts")
[ "$count" -lt 3 ] && exec vllm "$@"
[ "$count" -gt 3 ] || vllm "$@"
[ -s "$STATES/starts" ] || exit 1
echo "the server of hidden states did not start three times; its log is above" >&2
touch "$STATES/failed"
exec sleep infinity
"""
"""Serves hidden states, beside `train`, with the arguments given. A sidecar is started again without end and its exits
end no pod, so the third failed start in a row is the last; that container stays, as its log tells why. The startup
probe (`jobs`) empties `starts` once the server is healthy. A fresh pod has a fresh folder."""

_OUT_OF_MEMORY = encode(
    {
        "error": {
            "reason": Reason.OUT_OF_MEMORY.value,
            "message": "the trainer needs more memory than its accelerators have",
            "remedy": "lower sequenceLength, or use accelerators with more memory",
        }
    }
)
_GUARD = """\
import os, runpy, sys, torch
del sys.argv[0]
try:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
except torch.OutOfMemoryError:
    open(os.environ["STATES"] + "/out-of-memory", "w").close()
    raise
"""
"""Runs a module as `python3 -m` would, and leaves a file where it ends for want of an accelerator's memory."""

TRAIN = f"""\
set -u
kept="$OUTPUT/{CHECKPOINTS}"
last="$kept/$((EPOCHS - 1))/training_state.json"
[ -e "$last" ] && exit 0
if [ -e "$STATES/failed" ]; then
  echo "the server of hidden states does not start: kubectl logs -c states" >&2
  exit 3
fi
for one in "$kept"/[0-9]*; do
  [ -e "$one/training_state.json" ] || rm -rf "$one"
done
cat > "$STATES/guard.py" <<'END'
{_GUARD}END
run=python3
[ "$ACCELERATORS" -le 1 ] || run="torchrun --standalone --nproc_per_node $ACCELERATORS"
$run "$STATES/guard.py" speculators.train --verifier-name-or-path "$VERIFIER" \\
  --speculator-type "$METHOD" --target-layer-ids $LAYERS \\
  --data-path "$OUTPUT/{PREPARED}" --save-path "$kept" --hidden-states-path "$STATES" \\
  --vllm-endpoint http://127.0.0.1:{PORT}/v1 --total-seq-len "$SEQUENCE_TOKENS" --epochs "$EPOCHS" --seed "$SEED" \\
  --log-freq 10 "$@" 2>&1 | sed -u '/HTTP Request/d; s/ *$//'
[ -e "$last" ] && exit 0
if [ -e "$STATES/out-of-memory" ]; then
  printf %s '{_OUT_OF_MEMORY}' > /dev/termination-log
  ls "$kept"/[0-9]*/training_state.json > /dev/null 2>&1 || exit 3
fi
exit 1
"""
"""Trains. The library goes on after the newest checkpoint that it finds, by its number alone; `training_state.json` is
what it writes last into one. It ends with 0 when it is asked to end, so only the last epoch's checkpoint tells success.
Exit status 3: there is nothing to learn from, as `states` has given up, or the memory was too little before the first
checkpoint, as it would be again."""

ENVIRONMENT = {
    "HOME": "/tmp",  # noqa: S108  (a path in the pod)
    "HF_HOME": "/tmp/hf",  # noqa: S108
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CACHE_ROOT": "/tmp/vllm",  # noqa: S108
    "VLLM_CONFIG_ROOT": "/tmp/vllm-config",  # noqa: S108
    "TRITON_CACHE_DIR": "/tmp/triton",  # noqa: S108
    "TORCHINDUCTOR_CACHE_DIR": "/tmp/inductor",  # noqa: S108
    "COLUMNS": "1600",
    "TYPER_STANDARD_TRACEBACK": "1",
}
"""Variables of all three containers. Lines of the log are wrapped at COLUMNS, and `progress` reads whole ones; the last
one has errors told as Python tells them, not with all values of all variables."""


def drafts_arguments(method: Trained, k: int) -> list[str]:
    """Arguments of `train` that differ by method, for a speculator that drafts `k` tokens at most. A block of DFlash
    begins with a token that is known; P-EAGLE has the shape of the library's examples (its examples/train/peagle_*)."""
    return {
        Trained.EAGLE3: ["--ttt-steps", f"{k}"],
        Trained.PEAGLE: ["--num-depths", f"{k}", "--num-layers", "4", "--no-norm-before-residual"],
        Trained.DFLASH: ["--block-size", f"{k + 1}"],
    }[method]


def states_arguments(verifier: str, layers: Sequence[int], tokens: int, folder: str = STATES_FOLDER) -> list[str]:
    """Arguments of `vllm` for an engine that writes the hidden states behind `layers` for each request into `folder`,
    which the trainer sees by the same path. `layers`: those that the speculator reads, and the verifier's number of
    layers as the last, which is its final state. The trainer asks for one token more than `tokens`, and knows the
    engine by `verifier`."""
    drafts = {"hf_config": {"eagle_aux_hidden_state_layer_ids": list(layers)}}
    speculation = {"method": "extract_hidden_states", "num_speculative_tokens": 1, "draft_model_config": drafts}
    transfer = {
        "kv_connector": "ExampleHiddenStatesConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"shared_storage_path": folder},
    }
    return [
        *("serve", verifier, "--host", "127.0.0.1", "--port", str(PORT), "--max-model-len", str(tokens + 1)),
        *("--disable-uvicorn-access-log", "--speculative-config", json.dumps(speculation)),
        *("--kv-transfer-config", json.dumps(transfer)),
    ]
