"""The catalogue's rows, from which the operator picks speculators: the package's rows, and those of a file that the
chart mounts. Asked by `reconciler`.

The file is read again every few seconds, because its ConfigMap may change while the operator runs. A file that cannot
be read changes nothing: the last good rows stay, and the log names the fault.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from speculative_operator.reconcile.world import Catalogue, CatalogueError, catalogue_of, load_packaged
from speculative_operator.shell.telemetry import Telemetry

log = logging.getLogger(__name__)

LOOK_EVERY = 5.0
"""seconds between looks at the file."""
LARGEST = 1 << 20
"""Most bytes of the file; a ConfigMap holds no more."""


class CatalogueFile:
    """The catalogue with the rows of the file at `path` first; where `path` is empty, the package's rows alone."""

    def __init__(self, path: str, telemetry: Telemetry, clock: Callable[[], float]) -> None:
        self._path = Path(path) if path else None
        self._telemetry = telemetry
        self._clock = clock
        self._looked: float | None = None
        self._read: bytes | str | None = None
        self._rows = load_packaged()

    def current(self) -> Catalogue:
        """The catalogue that applies now: the same Python object as long as its rows do not change."""
        now = self._clock()
        if self._path is not None and (self._looked is None or now - self._looked >= LOOK_EVERY):
            self._looked = now
            self._look(self._path)
        return self._rows

    def _look(self, path: Path) -> None:
        found: bytes | str
        try:
            with path.open("rb") as file:
                found = file.read(LARGEST + 1)
        except (FileNotFoundError, NotADirectoryError):
            found = b""  # an optional ConfigMap that is not there, or no longer
        except OSError as error:
            found = f"{path}: {error.strerror}; give the operator read permission"
        if found == self._read:
            return
        self._read = found
        problem = found if isinstance(found, str) else self._take(path, found)
        if problem:
            log.error("cannot read your rows of the catalogue: %s. The previous rows are still used", problem)
        self._telemetry.catalogue(sum(one.added for one in self._rows.entries), bad=bool(problem))

    def _take(self, path: Path, content: bytes) -> str:
        """Take over the rows in `content`; returns why they cannot be read, or an empty text."""
        if len(content) > LARGEST:
            return f"{path}: the file has more than {LARGEST} bytes: remove rows"
        try:
            self._rows = catalogue_of(content.decode("utf-8"), path.name)
        except UnicodeDecodeError as error:
            return f"{path.name}, byte {error.start}: the file is not UTF-8: save it as UTF-8"
        except CatalogueError as error:
            return str(error)
        own = sum(one.added for one in self._rows.entries)
        log.info("catalogue: %d rows from %s before the %d built-in rows", own, path, len(load_packaged().entries))
        return ""
