"""What lies in a model's tensors, told by headers alone: `WeightFacts`. Called by `inspect`.

A safetensors file begins with eight bytes, the length of its header in little endian, then a JSON header of at most
100 MB (both by the format's specification, huggingface/safetensors README), then tensors, which are never read.
Headers are asked for by range, several at a time, and parsed tensor by tensor: of each only a count remains.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import ijson

from speculative_operator.domain.models import WeightFacts
from speculative_operator.domain.reasons import Reason
from speculative_operator.weights import reading
from speculative_operator.weights.source import Entry, Source, WeightsError

MOST_HEADER = 100_000_000
_FIRST = 64 << 10
"""Bytes of the first request: length and, for most files, the whole header."""
_PARALLEL = 16
_MOST_SHAPES = 24
_INDEX = ".safetensors.index.json"
_OF_FORMAT = {"bin": (".bin", ".pt", ".pth", ".ckpt"), "gguf": (".gguf",)}
_LAYER = re.compile(r"(?:^|\.)(?:layers|h)\.(\d+)\.")
_ASIDE = re.compile(r"(?:^|[._])(?:visual|vision|audio)")
_KEPT = re.compile(r"(?:^|\.)(?:embed_tokens\.weight|lm_head\.weight|fc\.weight|d2t|t2d)$")
_NORM = re.compile(r"^(?:[A-Za-z_]+\.)*\w*norm\.weight$")
_FIRST_OF = ("medusa_head", "mtp", "eh_proj")


@dataclass
class _Sum:
    """The sum of the headers read so far."""

    parameters: Counter[str] = field(default_factory=Counter)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    layers: int = 0

    def add(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        self.parameters[dtype] += math.prod(shape)
        if _ASIDE.search(name):
            return
        layer = _LAYER.search(name)
        self.layers = max(self.layers, int(layer[1]) + 1 if layer else 0)
        if _KEPT.search(name) or _NORM.match(name) or any(word in name for word in _FIRST_OF):
            self.shapes[name] = shape

    def join(self, other: _Sum) -> None:
        self.parameters += other.parameters
        self.shapes |= other.shapes
        self.layers = max(self.layers, other.layers)

    def few_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the tensors that judging a pair looks at, and few others."""
        named = sorted(self.shapes, key=_natural)
        plain = [name for name in named if _KEPT.search(name) or _NORM.match(name)]
        firsts = (next((name for name in named if word in name and name not in plain), "") for word in _FIRST_OF)
        return {name: self.shapes[name] for name in [*filter(None, firsts), *plain][:_MOST_SHAPES]}


def facts_of(source: Source, files: Mapping[str, Entry]) -> WeightFacts:
    """What the tensors of a model are. `files`: entries of `source` by path. Raises WeightsError where a header cannot
    be read or understood."""
    tensors = _tensor_files(source, files)
    if not tensors:
        return _sizes_alone(files)
    total = _Sum()
    with ThreadPoolExecutor(_PARALLEL) as pool:
        for one in pool.map(lambda entry: _header(source, entry), tensors):
            total.join(one)
    return WeightFacts(
        files=len(tensors),
        bytes=sum(entry.size for entry in tensors),
        parameters=dict(sorted(total.parameters.items())),
        shapes=total.few_shapes(),
        layers=total.layers,
    )


def _tensor_files(source: Source, files: Mapping[str, Entry]) -> list[Entry]:
    """The files of tensors that an index names; without an index all such files, from the top folder if any lie
    there."""
    names = [path for path in files if path.endswith(".safetensors")]
    top = [path for path in names if "/" not in path]
    index = next((entry for path, entry in files.items() if "/" not in path and path.endswith(_INDEX)), None)
    if index is not None:
        top = sorted(_files_of_index(source, index))
        absent = [path for path in top if path not in files]
        if absent:
            raise WeightsError(
                Reason.SOURCE_NOT_FOUND,
                f"{source.pin.source.uri}: {index.path} names {len(absent)} files that are not there",
                file=absent[0],
                remedy="the upload is incomplete; use another revision, or publish the files",
            )
    return [files[path] for path in top or names]


def _files_of_index(source: Source, index: Entry) -> set[str]:
    with reading.wrap_parse_errors(source, index):
        events = reading.events(source, index)
        return {str(value) for prefix, kind, value in events if kind == "string" and prefix.startswith("weight_map.")}


def _sizes_alone(files: Mapping[str, Entry]) -> WeightFacts:
    for name, suffixes in _OF_FORMAT.items():
        matching = [entry for path, entry in files.items() if path.endswith(suffixes)]
        if matching:
            return WeightFacts(files=len(matching), bytes=sum(entry.size for entry in matching), format=name)
    return WeightFacts(format="")


def _header(source: Source, entry: Entry) -> _Sum:
    first = reading.part(source, entry, 0, _FIRST)
    length = int.from_bytes(first[:8], "little")
    with reading.wrap_parse_errors(source, entry):
        if len(first) < 8 or length > MOST_HEADER or 8 + length > entry.size:
            raise ValueError(f"a header of {length} bytes in a file of {entry.size}")
        header = first[8 : 8 + length] + reading.part(source, entry, len(first), 8 + length)
        total, end = _sum_up(header)
        if end + 8 + length != entry.size:
            raise ValueError(f"tensors end at byte {end + 8 + length} of a file of {entry.size}")
    return total


def _sum_up(header: bytes) -> tuple[_Sum, int]:
    """The sum of the tensors that a header names, and the byte after the header at which the last one ends."""
    total, end = _Sum(), 0
    if not header.lstrip().startswith(b"{"):
        raise ValueError("no object")
    for name, tensor in ijson.kvitems(header, ""):
        if name == "__metadata__":
            continue
        shape = tuple(int(side) for side in tensor["shape"])
        if min(shape, default=0) < 0:
            raise ValueError(f"{name} of shape {shape}")
        total.add(name, str(tensor["dtype"]), shape)
        end = max(end, int(tensor["data_offsets"][1]))
    return total, end


def _natural(name: str) -> list[tuple[int, str]]:
    """A key for sorting in an order in which 2 comes before 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
