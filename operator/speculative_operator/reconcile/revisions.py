"""Notices about versions: a branch has moved, or newer versions could not be read. Used by `pairing`."""

from __future__ import annotations

from collections.abc import Iterator

from speculative_operator.domain import names
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import ModelSource, Scheme
from speculative_operator.engines.base import Notice
from speculative_operator.reconcile.records import Failure, Record


def moves(source: ModelSource) -> bool:
    """True for a source whose newest version may change, and can be asked for without reading the files."""
    if source.scheme is Scheme.HF:
        commit = len(source.revision) == 40 and all(digit in "0123456789abcdef" for digit in source.revision)
        return not commit
    return source.scheme is Scheme.S3 or (source.scheme is Scheme.OCI and "@sha256:" not in source.location)


def moved_notices(record: Record) -> Iterator[Notice]:
    """One notice for each source of the pair whose branch or tag has moved since it was resolved."""
    known = record.known
    for (uri, asked), newest, facts in zip(record.asked, record.newest, known.models if known else (), strict=False):
        if newest:
            message = (
                f"{uri} at {asked or 'its default revision'} is now {newest[:19]}; pods keep {facts.pin.resolved[:19]} "
                f"until you change revision in the spec or the annotation {names.ANNOTATION_REPIN}"
            )
            yield Notice(Reason.NEW_REVISION, message)


def not_followed_notice(failure: Failure) -> Notice:
    """The notice that newer versions were asked for and could not be read."""
    message = (
        f"the annotation {names.ANNOTATION_REPIN} asks for new versions, which the operator could not resolve; pods "
        f"keep theirs, and the operator retries every few minutes: {failure.message}"
    )
    return Notice(Reason.VERSIONS_UNREAD, message)


def not_known_notice(failure: Failure) -> Notice:
    """The notice that only the pods' template still names their versions."""
    message = (
        "status has lost the versions that pods run; the operator keeps those of the pods' template and inspects the "
        f"pair again: {failure.message}"
    )
    return Notice(Reason.VERSIONS_UNREAD, message)
