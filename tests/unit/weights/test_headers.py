"""Headers of safetensors files: what they tell, and what is refused of damaged and of hostile ones."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.unit.weights import made

from speculative_operator.domain.models import WeightFacts
from speculative_operator.domain.reasons import Reason
from speculative_operator.weights import headers
from speculative_operator.weights.local import open_folder
from speculative_operator.weights.source import WeightsError


def facts(folder: Path) -> WeightFacts:
    source = open_folder(folder)
    return headers.facts_of(source, {entry.path: entry for entry in source.files})


def of(folder: Path, tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> WeightFacts:
    made.safetensors(folder / "model.safetensors", tensors)
    return facts(folder)


def refused(folder: Path, content: bytes, size: int = 0) -> WeightsError:
    with (folder / "model.safetensors").open("wb") as file:
        file.write(content)
        file.truncate(max(size, len(content)))
    with pytest.raises(WeightsError) as caught:
        facts(folder)
    return caught.value


def test_a_header_beyond_the_first_request(tmp_path: Path) -> None:
    tensors = {f"model.layers.{at // 9}.experts.{at}.w": ("F8_E4M3", (3, 5)) for at in range(3000)}
    found = of(tmp_path, tensors)
    assert len(made.header(tensors)[0]) > 3 * headers._FIRST
    assert found.parameters == {"F8_E4M3": 3000 * 15}
    assert found.layers == 334


def test_scalars_and_empty_tensors_count(tmp_path: Path) -> None:
    found = of(tmp_path, {"scale": ("F32", ()), "none": ("F32", (0, 7)), "one": ("F16", (2, 1))})
    assert found.parameters == {"F16": 2, "F32": 1}


def test_shapes_that_judging_looks_at(tmp_path: Path) -> None:
    kept = {
        "model.embed_tokens.weight": ("BF16", (9, 4)),
        "lm_head.weight": ("BF16", (9, 4)),
        "fc.weight": ("BF16", (4, 12)),
        "d2t": ("I64", (5,)),
        "t2d": ("BOOL", (9,)),
        "model.norm.weight": ("BF16", (4,)),
        "model.layers.61.eh_proj.weight": ("BF16", (4, 8)),
        "medusa_head.0.0.linear.weight": ("BF16", (4, 4)),
        "mtp.layers.0.mlp.up_proj.weight": ("BF16", (8, 4)),
    }
    others = {
        "model.layers.0.input_layernorm.weight": ("BF16", (4,)),
        "model.layers.0.self_attn.q_norm.weight": ("BF16", (4,)),
        "medusa_head.1.0.linear.weight": ("BF16", (4, 4)),
        "mtp.layers.1.mlp.up_proj.weight": ("BF16", (8, 4)),
        "visual.merger.norm.weight": ("BF16", (6,)),
        "vision_tower.layers.99.fc.weight": ("BF16", (6, 6)),
    }
    found = of(tmp_path, {**others, **kept})
    assert found.shapes == {name: shape for name, (_, shape) in kept.items()}
    assert found.layers == 62


def test_only_files_of_the_index_count(tmp_path: Path) -> None:
    folder = made.model(tmp_path / "m")
    made.safetensors(folder / "stray.safetensors", {"x": ("F32", (1000,))})
    assert facts(folder).files == 2
    assert "F32" not in facts(folder).parameters


@pytest.mark.parametrize(
    ("name", "kind"), [("pytorch_model.bin", "bin"), ("medusa_lm_head.pt", "bin"), ("m-Q4.gguf", "gguf"), ("x.txt", "")]
)
def test_other_formats_tell_sizes_alone(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / name).write_bytes(b"x" * 77)
    (tmp_path / "config.json").write_text("{}")
    found = facts(tmp_path)
    assert (found.format, found.bytes) == (kind, 77 if kind else 0)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"{",
        b'{"a": 1}',
        b'{"a": {"dtype": "F32", "shape": [1]}}',
        b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 0]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": ["x"], "data_offsets": [0, 0]}}',
    ],
)
def test_damaged_headers_are_refused(tmp_path: Path, header: bytes) -> None:
    error = refused(tmp_path, struct.pack("<Q", len(header)) + header)
    assert (error.reason, error.file) == (Reason.PAIR_UNREAD, "model.safetensors")


@pytest.mark.parametrize("length", [headers.MOST_HEADER + 1, 1 << 63, 500])
def test_a_header_longer_than_allowed_or_than_its_file(tmp_path: Path, length: int) -> None:
    size = headers.MOST_HEADER + 100 if length > headers.MOST_HEADER else 0
    error = refused(tmp_path, struct.pack("<Q", length) + b"{}", size)
    assert f"a header of {length} bytes" in error.message


@pytest.mark.parametrize("content", [b"", b"1234567"])
def test_a_file_too_short_for_a_length(tmp_path: Path, content: bytes) -> None:
    assert refused(tmp_path, content).reason is Reason.PAIR_UNREAD


def test_a_truncated_file_is_told_from_its_header(tmp_path: Path) -> None:
    head, size = made.header({"a": ("F32", (100,))})
    error = refused(tmp_path, head, len(head) + size - 1)
    assert "tensors end at byte" in error.message


def test_an_index_may_be_damaged(tmp_path: Path) -> None:
    folder = made.model(tmp_path / "m")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": [1, 2')
    with pytest.raises(WeightsError) as caught:
        facts(folder)
    assert caught.value.file == "model.safetensors.index.json"


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd"])
def test_an_index_cannot_name_files_elsewhere(tmp_path: Path, name: str) -> None:
    folder = made.model(tmp_path / "m")
    text = {"weight_map": {"x": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(text))
    with pytest.raises(WeightsError) as caught:
        facts(folder)
    assert (caught.value.reason, caught.value.file) == (Reason.SOURCE_NOT_FOUND, name)
