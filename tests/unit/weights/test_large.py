"""Models of holes are read as what they stand for: the pair of the first example, as tests of the pages serve it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from modelservers import large
from speculative_operator.cli.main import main

ROOT = Path(__file__).resolve().parents[3]
PAIR = yaml.safe_load((ROOT / "examples" / "speculative-deployment.yaml").read_text())["spec"]
VERIFIER, HEAD = (PAIR[side]["model"].removeprefix("hf://") for side in ("verifier", "speculator"))
PUBLISHED = json.loads((ROOT / "tests" / "fixtures" / "pairs" / "models.json").read_text())


def checked(folder: Path, capsys: pytest.CaptureFixture[str], head: large.Shape = large.QWEN3_8B) -> dict[str, Any]:
    """What `speculative check` says of the pair, its head made for a verifier of the shape `head`."""
    large.lay_out(folder / VERIFIER, large.QWEN3_8B, tokens=100)
    large.lay_out_head(folder / HEAD, VERIFIER, head)
    main(["check", str(folder / VERIFIER), str(folder / HEAD), "--json"])
    return dict(json.loads(capsys.readouterr().out))


def test_the_first_example_fits_without_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert large.QWEN3_8B.parameters == 8_190_735_360
    found = checked(tmp_path, capsys)
    assert (found["compatible"], found["kind"], found["findings"]) == (True, "PurposeTrained", [])
    for name in (VERIFIER, HEAD):
        config = json.loads((tmp_path / name / "config.json").read_text())
        assert PUBLISHED[name]["config"].items() <= {**config, **shared(config)}.items()


def shared(config: dict[str, Any]) -> dict[str, Any]:
    """Of `speculators_config`, what is known of the published head: its method and its verifier."""
    told = config.get("speculators_config")
    if told is None:
        return {}
    named = {"name_or_path": told["verifier"]["name_or_path"]}
    return {"speculators_config": {"algorithm": told["algorithm"], "verifier": named}}


@pytest.mark.parametrize(
    ("change", "code"),
    [({"hidden": 5120}, "HiddenSizeDiffers"), ({"vocabulary": 128_256}, "VocabularySizeDiffers")],
)
def test_a_head_of_another_shape_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], code: str
) -> None:
    found = checked(tmp_path, capsys, replace(large.QWEN3_8B, **change))
    assert code in {one["code"] for one in found["findings"] if one["level"] == "Error"}
