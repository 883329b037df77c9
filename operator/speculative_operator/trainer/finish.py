"""Turns the best checkpoint of a training into a model that can be served: judges it against its verifier, names where
it came from in a model card, and publishes it by one rename. Called by `__main__`.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speculative_operator.api.convert import to_domain
from speculative_operator.domain import names
from speculative_operator.domain.reading import mapping, parse_json, whole
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.training import Trained
from speculative_operator.engines.pairs import rules_of
from speculative_operator.pairing.judge import judge
from speculative_operator.training.progress import expected_lengths
from speculative_operator.training.scripts import CHECKPOINTS, PREPARED, RESPONSES
from speculative_operator.weights import disk
from speculative_operator.weights.inspect import inspect
from speculative_operator.weights.local import open_folder, stay_within
from speculative_operator.weights.source import WeightsError

MODEL = "model"
"""Folder of the result in that of the training."""
ACCOUNT = "training.json"
_BLOCK = 1 << 20
_VERSION = re.compile(r"^# (speculators|vllm|torch|transformers): (\S+)$", re.MULTILINE)
_SEED = re.compile(r"--seed[ =](\d+)")


def finish(verifier: Path, output: Path, method: str, base: str, data: str = "") -> dict[str, Any]:
    """Publishes `output`/model; returns what is known of it, which also lies there as training.json. `base`: URI of the
    verifier, for the card; `data`: of the prompts, with their version. Does nothing where an earlier run has published.
    Raises WeightsError."""
    published = output / MODEL
    if (published / ACCOUNT).is_file():
        return dict(mapping(parse_json(_text(published / ACCOUNT, output))))
    best = output / CHECKPOINTS / "checkpoint_best"
    if not best.is_dir():
        raise WeightsError(
            Reason.TRAINING_FAILED,
            f"{output} has no checkpoint that was validated",
            remedy="read the log of the container train",
        )
    account = {**_account(best, output, method, base), **({"data": data} if data else {})}
    draft = output / f"{MODEL}.partial"
    with disk.explain_errors(output):
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        _copy(best, draft, base, output)
        _write(draft / "README.md", _card(account))
        _write(draft / ACCOUNT, json.dumps(account, indent=2) + "\n")
    _judge(verifier, draft, Trained(method))
    with disk.explain_errors(output):
        for path in draft.iterdir():
            with path.open("rb") as file:
                disk.sync(file.fileno())
        disk.sync_folder(draft)
        draft.rename(published)
        disk.sync_folder(output)
    return account


def _copy(best: Path, draft: Path, base: str, output: Path) -> None:
    """Weights as they are; the configuration names the verifier as people know it, and no Python of the trainer's."""
    for path in best.glob("*.safetensors*"):
        shutil.copyfile(stay_within(output, path), draft / path.name)
    config = dict(mapping(parse_json(_text(best / "config.json", output))))
    config.pop("auto_map", None)
    told = dict(mapping(config, "speculators_config"))
    told["verifier"] = {**mapping(told, "verifier"), "name_or_path": base.partition("://")[2] or base}
    config["speculators_config"] = told
    _write(draft / "config.json", json.dumps(config, indent=2) + "\n")


def _judge(verifier: Path, speculator: Path, method: Trained) -> None:
    """Raises WeightsError where the two do not fit, with the first finding, as `speculative check` would tell."""
    sides = {"verifier": inspect(open_folder(verifier)), "speculator": inspect(open_folder(speculator))}
    told: dict[str, dict[str, Any]] = {side: {"model": f"pvc://local/{side}"} for side in sides}
    told["speculator"] |= method.served_by
    body = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": "trained", "namespace": "local"}}
    spec = to_domain({**body, "spec": told})
    verdict = judge(sides["verifier"], sides["speculator"], spec, rules_of(spec))
    for finding in verdict.errors:
        raise WeightsError(Reason.PAIR_MISMATCH, f"{finding.code}: {finding.message}", remedy=finding.remedy)


def _account(best: Path, output: Path, method: str, base: str) -> dict[str, Any]:
    """What the training used and reached. Figures that the library did not write are left out."""
    measured = {
        name.removesuffix("_epoch"): float(value)
        for name, value in mapping(parse_json(_text(best / "val_metrics.json", output))).items()
        if isinstance(value, int | float)
    }
    command, lengths = _text(best / "train_command.txt", output), expected_lengths(measured)
    state, seed = mapping(parse_json(_text(best / "training_state.json", output))), _SEED.search(command)
    known = {
        "verifier": base,
        "method": method,
        "acceptanceLength": round(lengths[-1], 4) if lengths else None,
        "acceptanceLengths": [round(one, 4) for one in lengths] or None,
        "loss": measured.get("loss"),
        "epoch": whole(state, "epoch") + 1 if state else None,
        "steps": state.get("global_step"),
        **_data(output),
        "seed": int(seed[1]) if seed else None,
        "versions": dict(_VERSION.findall(command)),
    }
    return {name: value for name, value in known.items() if value is not None}


def _data(output: Path) -> dict[str, Any]:
    """Rows and SHA-256 of what was learned from: the verifier's answers, else the library's own data."""
    answers = output / RESPONSES
    paths = [answers] if answers.is_file() else sorted((output / PREPARED).glob("*.arrow"))
    whole, rows = hashlib.sha256(), 0
    for path in paths:
        with stay_within(output, path).open("rb") as file:
            while block := file.read(_BLOCK):
                whole.update(block)
                rows += block.count(b"\n")
    return {"dataDigest": f"sha256:{whole.hexdigest()}", **({"rows": rows} if answers.is_file() else {})}


def _card(account: Mapping[str, Any]) -> str:
    """The model card: front matter that hubs and `check` read, and the account."""
    base = str(account["verifier"]).partition("://")[2] or account["verifier"]
    return f"""---
base_model: {json.dumps(base)}
library_name: speculators
tags: [speculative-decoding]
---
# A speculator for {base}

Trained by a SpeculatorTraining. acceptanceLengths: tokens per step of the verifier with one draft token, with two and
so on, as validation on held-out rows lets expect; acceptanceLength is the last. What they are in service, only service
tells.

```json
{json.dumps(account, indent=2)}
```
"""


def _text(path: Path, output: Path) -> str:
    return stay_within(output, path).read_text(encoding="utf-8") if path.is_file() else ""


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
