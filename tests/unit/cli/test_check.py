"""`speculative check`: the table, the object and the statuses, over models in folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.weights import made

from speculative_operator.cli import check, terminal
from speculative_operator.domain.reasons import Reason
from speculative_operator.pairing import findings
from speculative_operator.weights.source import WeightsError

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 8,
    "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 128, "dtype": "bfloat16",
}  # fmt: skip
HEAD = {**LLAMA, "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1}


def model(folder: Path, config: dict[str, Any], tensors: dict[str, tuple[int, ...]], token: str = "a") -> str:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(made.tokenizer({token: 0, "b": 1}, {"<end>": 2})))
    made.safetensors(folder / "model.safetensors", {name: ("BF16", shape) for name, shape in tensors.items()})
    return str(folder)


@pytest.fixture
def verifier(tmp_path: Path) -> str:
    return model(tmp_path / "llama", LLAMA, {"model.embed_tokens.weight": (100, 64), "lm_head.weight": (100, 64)})


@pytest.fixture
def head(tmp_path: Path) -> str:
    return model(tmp_path / "head", HEAD, {"fc.weight": (64, 192), "lm_head.weight": (100, 64)})


def test_a_pair_that_fits(run: Run, verifier: str, head: str) -> None:
    status, out, err = run("check", verifier, head, "--k", "3")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith(f"verifier    {verifier} at sha256:")
    assert lines[2] == "engine      vLLM 0.32.0, method eagle3"
    assert lines[3].startswith("kind        PurposeTrained: ")
    assert " tokens per verification [" in lines[4]
    assert lines[-1] == "compatible: 0 errors, 0 warnings"


def test_a_model_that_drafts_for_itself_is_pointless_and_no_more(run: Run, verifier: str) -> None:
    status, out, err = run("check", verifier, verifier)
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == "compatible: 0 errors, 1 warning"
    assert "DrafterLarge" in out


def test_a_speculator_by_its_own_name_is_no_pair_that_could_differ(run: Run, tmp_path: Path) -> None:
    own = {**HEAD, "speculators_model_type": "eagle3", "eagle_aux_hidden_state_layer_ids": [2, 4, 6]}
    folder = model(tmp_path / "own", own, {"fc.weight": (64, 192)})
    status, out, _ = run("check", folder, folder)
    assert (status, out.splitlines()[-1]) == (0, "compatible: 0 errors, 0 warnings")


def test_a_pair_that_does_not(run: Run, tmp_path: Path, verifier: str) -> None:
    wide = model(tmp_path / "wide", {**HEAD, "hidden_size": 128}, {"fc.weight": (128, 384)})
    status, out, _ = run("check", verifier, wide)
    assert status == 1
    assert out.splitlines()[-1] == "not compatible: 1 error, 0 warnings"
    (row,) = (line for line in out.splitlines() if line.startswith("Error"))
    for cell in ("HiddenSizeDiffers", "speculator config.json hidden_size", " 64 ", " 128 ", "use a speculator that"):
        assert cell in row
    assert next(line for line in out.splitlines() if line.startswith("LEVEL")).split() == [
        name.upper() for name in terminal.COLUMNS
    ]


def test_the_object(run: Run, tmp_path: Path, verifier: str) -> None:
    other = model(
        tmp_path / "other", {**LLAMA, "model_type": "qwen2"}, {"model.embed_tokens.weight": (100, 64)}, token="z"
    )
    status, out, _ = run("check", verifier, other, "-o", "json", "--method", "draft_model", "--workload", "Code")
    told = json.loads(out)
    assert status == 1
    assert (told["compatible"], told["kind"], told["expected"]) == (False, "CrossFamily", None)
    assert told["pins"]["verifier"]["model"] == verifier
    assert told["pins"]["speculator"]["resolved"].startswith("sha256:")
    assert (told["findings"][0]["level"], told["findings"][0]["code"]) == ("Error", "VocabularyDiffers")
    assert sorted(told["findings"][0]) == sorted(
        ("level", "code", "field", "verifier", "speculator", "message", "remedy")
    )


def test_options_reach_the_judge(run: Run, verifier: str, head: str) -> None:
    def found(*words: str) -> set[str]:
        return {one["code"] for one in json.loads(run("check", verifier, head, "-o", "json", *words)[1])["findings"]}

    assert "HeadsNotDivisible" in found("--tensor-parallel-size", "8")
    assert "ContextBeyondVerifier" in found("--max-model-len", "4096")
    assert "MethodDiffers" in found("--method", "eagle")
    assert "EngineRefuses" in found("--engine-version", "0.5.0")
    assert found("--engine", "SGLang", "--engine-version", "0.5.23") == {"ReuseDoubtful"}


def test_a_spec_in_a_file(run: Run, tmp_path: Path, verifier: str, head: str) -> None:
    claims, claim = tmp_path / "claims", "models"
    claims.mkdir()
    (claims / claim).symlink_to(Path(verifier).parent)
    spec = tmp_path / "pair.yaml"
    spec.write_text(
        json.dumps({
            "verifier": {"model": f"pvc://{claim}/llama"},
            "speculator": {"method": "draft_model", "model": f"pvc://{claim}/head"},
            "speculation": {"mode": "Static", "numSpeculativeTokens": 3},
        })
    )  # fmt: skip
    status, out, err = run("check", str(spec), "--claims-at", str(claims))
    assert status == 1, err
    assert "MethodDiffers" in out
    assert f"verifier    pvc://{claim}/llama at sha256:" in out
    assert run("check", str(spec), head)[0] == 2
    assert run("check", str(spec), "--k", "3")[0] == 2


def test_without_a_speculator(run: Run, tmp_path: Path, verifier: str) -> None:
    assert run("check", verifier)[0] == 2
    assert run("check", verifier, "--method", "ngram")[1].splitlines()[-1] == "compatible: 0 errors, 0 warnings"
    modules = model(
        tmp_path / "mtp", {**LLAMA, "model_type": "deepseek_v3", "num_nextn_predict_layers": 1},
        {"model.embed_tokens.weight": (100, 64), "model.layers.8.eh_proj.weight": (64, 128)},
    )  # fmt: skip
    status, out, _ = run("check", modules, "--k", "1")
    assert status == 0
    assert "InVerifier" in out


@pytest.mark.parametrize(
    "words",
    [("nowhere",), ("hf:///x",), ("ftp://a/b",), ("nowhere.yaml",), ("pvc://claim/path",)],
)
def test_what_cannot_be_read(run: Run, words: tuple[str, ...]) -> None:
    status, out, err = run("check", *words)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("spec: {verifier: [", "is not YAML"),
        ("spec: {}\n---\nspec: {}\n", "give one YAML or JSON document"),
        ("spec: {verifier: {model: 'hf://a/b'}, speculation: {mode: Off}}", "'Disabled'"),
    ],
)
def test_a_file_that_is_no_object_is_wrong_use_and_no_bad_pair(run: Run, tmp_path: Path, text: str, said: str) -> None:
    """So that a pipeline takes no typo for an incompatible pair."""
    spec = tmp_path / "broken.yaml"
    spec.write_text(text)
    status, out, err = run("check", str(spec))
    assert (status, out) == (2, "")
    assert said in err


@pytest.mark.parametrize("content", ["", "{ not json"])
def test_a_folder_is_named_as_it_was_given(run: Run, tmp_path: Path, content: str) -> None:
    if content:
        (tmp_path / "config.json").write_text(content)
    status, _, err = run("check", str(tmp_path), "--method", "ngram")
    assert status == 2
    assert err.startswith(f"error: {tmp_path}: ")
    assert "pvc://" not in err


def test_a_model_of_the_hub_needs_no_scheme(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def read(place: Any, side: str, _: str) -> Any:
        asked.append(getattr(place, "uri", place))
        raise WeightsError(Reason.SOURCE_NOT_FOUND, f"{side} is not there")

    monkeypatch.setattr(check, "_facts", read)
    monkeypatch.chdir(tmp_path)
    assert run("check", "Qwen/Qwen3-8B@main")[0] == 2
    (tmp_path / "mine" / "llama").mkdir(parents=True)
    assert run("check", "mine/llama")[0] == 2
    assert asked == ["hf://Qwen/Qwen3-8B", Path("mine/llama")]


def test_a_field_that_does_not_exist_is_named(run: Run, tmp_path: Path) -> None:
    spec = tmp_path / "typo.yaml"
    spec.write_text("spec:\n  verifier: {model: 'hf://a/b'}\n  speculator: {method: ngram, promptLookup: {mim: 2}}\n")
    status, out, err = run("check", str(spec))
    assert (status, out) == (2, "")
    assert "spec.speculator.promptLookup.mim is 2: the field does not exist: write min" in err


def test_what_cannot_be_read_as_an_object(run: Run, verifier: str) -> None:
    status, out, _ = run("check", verifier, f"{verifier}/nothing", "-o", "json")
    told = json.loads(out)["error"]
    assert status == 2
    assert told["side"] == "speculator"
    assert told["reason"] == "SourceNotFound"


def test_a_broken_configuration_is_not_read(run: Run, verifier: str, head: str) -> None:
    (Path(head) / "config.json").write_text("{ not json")
    assert run("check", verifier, head)[0] == 2


def test_every_code_is_used() -> None:
    package = Path(findings.__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py") if path.name != "findings.py")
    assert [code.name for code in findings.Code if f"Code.{code.name}" not in text] == []


# -- a spec that leaves the speculator to the operator

ROWS = "verifier,speculator,method,k,source,date\n"


def auto(folder: Path, rows: str = "", **spec: Any) -> list[str]:
    """Arguments: a spec with `auto`, whose models lie in claims below `folder`, and rows."""
    body = {"verifier": {"model": "pvc://models/llama"}, "speculator": {"auto": True}, **spec}
    (folder / "auto.json").write_text(json.dumps(body))
    (folder / "rows.csv").write_text(ROWS + rows)
    return [str(folder / "auto.json"), "--catalogue", str(folder / "rows.csv"), "--claims-at", str(folder)]


@pytest.fixture
def claims(tmp_path: Path) -> Path:
    tensors: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (100, 64), "lm_head.weight": (100, 64)}
    model(tmp_path / "models" / "llama", LLAMA, tensors)
    model(tmp_path / "models" / "head", HEAD, {"fc.weight": (64, 192), "lm_head.weight": (100, 64)})
    wide = {**HEAD, "hidden_size": 32}
    model(tmp_path / "models" / "wide", wide, {"fc.weight": (32, 96), "lm_head.weight": (100, 32)})
    return tmp_path


def entry(name: str) -> str:
    return f"org/llama,pvc://models/{name},eagle3,3,our wiki,2026-08\n"


def test_an_auto_spec_is_picked_for_and_judged(run: Run, claims: Path) -> None:
    status, out, _ = run("check", *auto(claims, entry("head")))
    assert status == 0
    first, *rest = out.splitlines()
    assert first == (
        "auto        picked pvc://models/head (eagle3): made for org/llama; K = 3 by its source; your own row; "
        "K follows the load, no acceptance published at a known K; the only one known; source: our wiki"
    )
    assert any(line.startswith("speculator  pvc://models/head at sha256:") for line in rest)
    assert rest[-1].startswith("compatible: 0 errors")


def test_an_auto_spec_passes_over_what_does_not_fit_or_cannot_be_read(run: Run, claims: Path) -> None:
    status, out, _ = run("check", *auto(claims, entry("wide") + entry("missing") + entry("head")))
    wide, missing, picked, *_ = out.splitlines()
    assert status == 0
    assert wide.startswith("passed over pvc://models/wide (eagle3): ")
    assert missing.startswith("passed over pvc://models/missing (eagle3): ")
    assert picked.startswith("auto        picked pvc://models/head (eagle3)")
    status, out, _ = run("check", *auto(claims, entry("wide") + entry("head")), "-o", "json")
    told = json.loads(out)
    assert (status, told["picked"]["speculator"], told["picked"]["k"]) == (0, "pvc://models/head", 3)
    assert told["picked"]["passedOver"][0]["speculator"] == "pvc://models/wide"
    assert told["pins"]["speculator"]["model"] == "pvc://models/head"


@pytest.mark.parametrize("rows", ["", entry("wide")])
def test_an_auto_spec_of_which_nothing_is_known_is_served_alone(run: Run, claims: Path, rows: str) -> None:
    status, out, _ = run("check", *auto(claims, rows))
    assert status == 0
    assert "set speculator.method and speculator.model, or add your own row to the catalogue" in out
    assert "The verifier is served alone" in out
    assert "method none" in out


def test_an_auto_spec_whose_verifier_is_at_fault_keeps_its_pick(run: Run, claims: Path) -> None:
    long = {"model": "pvc://models/llama", "maxModelLen": 4096}
    status, out, _ = run("check", *auto(claims, entry("head"), verifier=long))
    assert status == 1
    assert out.startswith("auto        picked pvc://models/head")
    assert "ContextBeyondVerifier" in out


def test_bad_rows_are_told(run: Run, claims: Path) -> None:
    status, _, err = run("check", *auto(claims, entry("head").replace(",3,", ",0,")))
    assert status == 2
    assert "row 2, column k: '0': write a whole number from 1 to 64" in err
