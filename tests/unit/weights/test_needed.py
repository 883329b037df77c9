"""Which files of a repository a server gets, and which names are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speculative_operator.domain.reasons import Reason
from speculative_operator.weights.source import Entry, WeightsError, check_path, select_needed


def kept(*paths: str) -> list[str]:
    return [entry.path for entry in select_needed(Entry(path, 1) for path in paths)]


ALWAYS = ["config.json", "tokenizer.json", "chat_template.jinja", "README.md", "modeling_x.py", "merges.txt"]


@pytest.mark.parametrize(
    "left_out",
    [
        ".gitattributes",
        ".cache/huggingface/x.json",
        "figures/one.png",
        "report.PDF",
        "original/consolidated.00.pth",
        "metal/model.bin",
        "onnx/model.onnx_data",
        "runs/events.out.tfevents",
        "flax_model.msgpack",
        "tf_model.h5",
        "training_args.bin",
        "optimizer.pt",
        "rng_state_0.pth",
    ],
)
def test_what_no_server_reads_is_left_out(left_out: str) -> None:
    assert kept(*ALWAYS, "pytorch_model.bin", left_out) == sorted([*ALWAYS, "pytorch_model.bin"])


def test_duplicates_go_where_safetensors_exist() -> None:
    others = ["pytorch_model.bin", "model-Q4_K_M.gguf", "consolidated.00.pth", "medusa_lm_head.pt"]
    assert kept(*others) == sorted(others)
    assert kept(*others, "model.safetensors", "consolidated.safetensors") == ["model.safetensors"]
    assert kept("consolidated.safetensors", "params.json") == ["consolidated.safetensors", "params.json"]
    assert kept("pytorch_model.bin", "1_Pooling/model.safetensors") == [
        "1_Pooling/model.safetensors",
        "pytorch_model.bin",
    ]


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../x", "a/../../x", "a/./b", "a//b", "a/", "..", "a\\..\\b", "a\0b", "a\nb", "x" * 1025],
)
def test_names_that_leave_their_folder_are_refused(path: str) -> None:
    with pytest.raises(WeightsError) as caught:
        select_needed([Entry("config.json", 1), Entry(path, 1)])
    assert caught.value.reason is Reason.UNSUPPORTED_SOURCE


@given(st.text(max_size=30))
def test_a_name_that_passes_stays_below_its_folder(path: str) -> None:
    try:
        check_path(path)
    except WeightsError:
        return
    parts = path.split("/")
    assert not path.startswith("/")
    assert parts
    assert ".." not in parts
