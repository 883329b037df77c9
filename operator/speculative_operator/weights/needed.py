"""Which files of a model a server needs, and which names are fit to be files. Called by every source on its listing.

The rule, in order; docs/sources.md repeats it for users. Left out are:

1. what begins with a dot, at any depth (`.gitattributes`, `.cache/`, `.speculative.json`);
2. pictures, sound, films and papers;
3. folders in which publishers keep the same weights for other runtimes: `original/`, `metal/`, `onnx/`, `openvino/`,
   `coreml/`, and logs of training: `runs/`;
4. weights for runtimes that are not served here: `.h5`, `.msgpack`, `.ot`, `.onnx`, `.tflite`, `.mlmodel`; the state of
   a training: `training_args.bin`, `optimizer.*`, `scheduler.pt`, `scaler.pt`, `rng_state*`;
5. where `*.safetensors` exist in the top folder: the same once more as `.bin`, `.pt`, `.pth`, `.ckpt`, `.gguf`;
6. where `*.safetensors` exist that do not begin with `consolidated`: those that do (one file in another layout).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from speculative_operator.domain.reasons import Reason
from speculative_operator.weights.errors import WeightsError
from speculative_operator.weights.source import Entry

_MEDIA = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg", ".bmp", ".pdf", ".mp3", ".wav", ".flac", ".mp4", ".webm"}
_OTHER_RUNTIMES = {".h5", ".msgpack", ".ot", ".onnx", ".tflite", ".mlmodel"}
_OTHER_FOLDERS = {"original", "metal", "onnx", "openvino", "coreml", "runs"}
_TRAINING = ("training_args.bin", "optimizer.", "scheduler.pt", "scaler.pt", "rng_state")
_DUPLICATES = {".bin", ".pt", ".pth", ".ckpt", ".gguf"}
_LONGEST_PATH = 1024


def select_needed(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries that a server of the model reads, sorted by path.

    Raises WeightsError for a path that leaves its folder, whether or not a server would need the file: whoever
    publishes one is not to be trusted with the others.
    """
    in_order = sorted(entries, key=lambda entry: entry.path)
    for entry in in_order:
        check_path(entry.path)
    needed = [entry for entry in in_order if not _never(PurePosixPath(entry.path))]
    top = [entry.path for entry in needed if "/" not in entry.path and entry.path.endswith(".safetensors")]
    if top:
        needed = [entry for entry in needed if PurePosixPath(entry.path).suffix.lower() not in _DUPLICATES]
    if any(not name.startswith("consolidated") for name in top):
        needed = [entry for entry in needed if not _is_consolidated(entry.path)]
    return tuple(needed)


def check_path(path: str) -> None:
    """Check a path. Raises WeightsError where it is no plain relative path that every file system takes as the same
    name."""
    parts = path.split("/")
    wrong = (
        not path
        or len(path) > _LONGEST_PATH
        or "\\" in path
        or any(part in ("", ".", "..") for part in parts)
        or any(ord(character) < 32 or ord(character) == 127 for character in path)
    )
    if wrong:
        raise WeightsError(
            Reason.UNSUPPORTED_SOURCE,
            f"the source lists a file under the name {path[:200]!r}, which is not a path inside the folder",
            file=path[:200],
            remedy="use a source that you trust; nothing was fetched from this one",
        )


def _never(path: PurePosixPath) -> bool:
    return (
        any(part.startswith(".") for part in path.parts)
        or bool(_OTHER_FOLDERS.intersection(path.parts[:-1]))
        or path.suffix.lower() in _MEDIA | _OTHER_RUNTIMES
        or path.name.startswith(_TRAINING)
    )


def _is_consolidated(path: str) -> bool:
    return path.startswith("consolidated") and path.endswith((".safetensors", ".safetensors.index.json"))
