"""What every source of models offers: the files of a version, which of them a server needs, and the error of what goes
wrong. Implemented by `hub`, `oci`, `s3` and `local`; used by inspector and fetcher.

Every source calls `select_needed` on its listing. The rule, in order; docs/weights.md repeats it for users. Left out
are:

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

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Protocol

from speculative_operator.domain.models import Pin
from speculative_operator.domain.reasons import Reason, without_credentials

_MEDIA = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg", ".bmp", ".pdf", ".mp3", ".wav", ".flac", ".mp4", ".webm"}
_OTHER_RUNTIMES = {".h5", ".msgpack", ".ot", ".onnx", ".tflite", ".mlmodel"}
_OTHER_FOLDERS = {"original", "metal", "onnx", "openvino", "coreml", "runs"}
_TRAINING = ("training_args.bin", "optimizer.", "scheduler.pt", "scaler.pt", "rng_state")
_DUPLICATES = {".bin", ".pt", ".pth", ".ckpt", ".gguf"}
_TENSORS = (".safetensors", ".safetensors.index.json")
_LONGEST_PATH = 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a model."""

    path: str
    """Path relative to the model, with `/`; never absolute, never with `..`: sources raise WeightsError for those."""
    size: int
    sha256: str = ""
    """SHA-256 of the whole file, hexadecimal; empty where the source does not tell (then `etag` decides whether it
    changed)."""
    etag: str = ""


class Source(Protocol):
    """One version of one model. Every method may raise WeightsError; safe to call from several threads."""

    @property
    def pin(self) -> Pin:
        """The version; resolved when the source was opened, and the same ever after."""

    @property
    def files(self) -> tuple[Entry, ...]:
        """Every file of the version, sorted by path."""

    def read(self, entry: Entry, start: int, end: int) -> Iterator[bytes]:
        """Yield bytes `start` to `end` (excluded) in blocks as they come, of about 1 MiB at most. Ends early only with
        an error."""


@dataclass
class WeightsError(Exception):
    """A model could not be read or fetched. Becomes the Job's result, then condition and event."""

    reason: Reason
    message: str
    """The text that names source, value and what happened."""
    file: str = ""
    status: int | None = None
    """HTTP status, where there was one."""
    remedy: str = ""
    side: str = ""
    """`verifier` or `speculator`."""
    retry_after: float | None = None
    """Seconds that the source asked to be left alone for; None where it did not say. Not part of the result."""

    def __setattr__(self, name: str, value: Any) -> None:
        # Sources set messages again where they know more; what clients and servers say may quote signed addresses.
        super().__setattr__(name, without_credentials(value) if name in ("message", "remedy") else value)

    @property
    def transient(self) -> bool:
        """True when asking again later may help without anybody changing anything."""
        return self.reason in (Reason.SOURCE_THROTTLED, Reason.SOURCE_UNREACHABLE, Reason.CHECKSUM_MISMATCH)

    @property
    def final(self) -> bool:
        """True when all attempts are over and another process would fail in the same way, until somebody changes
        something: a file that was wrong came wrong twice."""
        return self.reason not in (Reason.SOURCE_THROTTLED, Reason.SOURCE_UNREACHABLE, Reason.UNKNOWN)

    def __str__(self) -> str:
        where = f" ({self.file})" if self.file else ""
        return f"{self.message}{where}" + (f"; {self.remedy}" if self.remedy else "")

    def to_json(self) -> dict[str, Any]:
        """The error as in a Job's result under `error`."""
        block = {"reason": self.reason.value, "message": self.message, "file": self.file, "remedy": self.remedy}
        return {key: value for key, value in {**block, "status": self.status, "side": self.side}.items() if value}


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
        needed = [one for one in needed if not (one.path.startswith("consolidated") and one.path.endswith(_TENSORS))]
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
