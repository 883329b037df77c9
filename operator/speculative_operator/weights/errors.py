"""What goes wrong with sources and caches, in the operator's words. Raised by sources, inspector and fetcher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from speculative_operator.domain.credentials import without_credentials
from speculative_operator.domain.reasons import Reason


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
