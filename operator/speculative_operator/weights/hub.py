"""Models of the Hugging Face hub, or of a mirror that speaks as it does (`HF_ENDPOINT`), and single files of its data
sets, whose locations begin with `datasets/`.

The hub's own library resolves revision to commit, lists files, and finds token (`HF_TOKEN`, or the one of a logged-in
user) and endpoint. Bytes are read by range from the `resolve` addresses, which redirect to a store: the library's own
download begins anew after a kill, and refuses files above 50 GB without a further package.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from huggingface_hub import HfApi, get_token, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from huggingface_hub.hf_api import DatasetInfo, ModelInfo

from speculative_operator.domain.models import Pin, file_of_data_set
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import ModelSource
from speculative_operator.weights.patience import Patience, within
from speculative_operator.weights.source import Entry, WeightsError, check_path, select_needed
from speculative_operator.weights.transport import Answer, Transport, refusal

_ENDPOINT = "https://huggingface.co"
_LIMIT = re.compile(r"[;\s]t=(\d+)")
"""Seconds until more may be asked, in the hub's header `RateLimit`."""
_ADVICE = "put a token under the key HF_TOKEN into the Secret of spec.weights.secretName, or into the environment"


@dataclass
class HubSource:
    """One commit of a model of the hub, or of one file of a data set."""

    pin: Pin
    files: tuple[Entry, ...] = field(repr=False)
    endpoint: str
    transport: Transport = field(repr=False)

    def read(self, entry: Entry, start: int, end: int) -> Iterator[bytes]:
        kind, name = _repository(self.pin.source)
        url = hf_hub_url(name, entry.path, repo_type=kind, revision=self.pin.resolved, endpoint=self.endpoint)
        token = get_token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self.transport.blocks(url, headers, (start, end), entry.path)


def open_hub(source: ModelSource, patience: Patience | None = None) -> HubSource:
    """A model of the hub, `hf://organisation/model`, or one file, `hf://datasets/organisation/name/path`, at a branch,
    tag or commit. Raises WeightsError."""
    patience = patience or Patience.from_environment()
    endpoint = (os.environ.get("HF_ENDPOINT") or _ENDPOINT).rstrip("/")
    transport = Transport(source.uri, lambda answer, file: _explain_refusal(source, answer, file), patience)
    info = _info(source, endpoint, transport)
    listed = [
        Entry(one.rfilename, one.size or 0, one.lfs.sha256 if one.lfs else "", f"git:{one.blob_id}")
        for one in info.siblings or ()
    ]
    file = file_of_data_set(source)
    entries = _one_file(source, listed, file) if file else select_needed(listed)
    if not info.sha or not entries:
        raise WeightsError(Reason.SOURCE_NOT_FOUND, f"{source.uri}: the repository has no model files")
    pin = Pin(source.scheme, source.location, source.revision, info.sha)
    return HubSource(pin, entries, endpoint, transport)


def _repository(source: ModelSource) -> tuple[str, str]:
    """Kind and name of the repository."""
    if file := file_of_data_set(source):
        return "dataset", source.location.removeprefix("datasets/").removesuffix(f"/{file}")
    return "model", source.location


def _one_file(source: ModelSource, listed: Sequence[Entry], file: str) -> tuple[Entry, ...]:
    check_path(file)
    found = tuple(one for one in listed if one.path == file)
    if not found:
        suffix = PurePosixPath(file).suffix
        alike = [one.path[:100] for one in listed if one.path.endswith(suffix)][:5]
        has = f"it has {', '.join(alike)}" if alike else f"it has none that ends in {suffix}"
        raise WeightsError(
            Reason.SOURCE_NOT_FOUND, f"{source.uri}: the data set has no such file; {has}", remedy="correct the path"
        )
    return found


def _info(source: ModelSource, endpoint: str, transport: Transport) -> ModelInfo | DatasetInfo:
    patience = transport.patience
    kind, name = _repository(source)

    def ask() -> ModelInfo | DatasetInfo:
        api = HfApi(endpoint=endpoint)
        revision = source.revision or None
        with transport.explain_errors(""):
            try:
                read = api.dataset_info if kind == "dataset" else api.model_info
                return read(name, revision=revision, files_metadata=True, timeout=patience.read)
            except HfHubHTTPError as error:
                raise _explain_refusal(source, Answer.of(error.response), "") from error
            except OfflineModeIsEnabled as error:
                raise WeightsError(
                    Reason.SOURCE_UNREACHABLE,
                    f"{source.uri}: HF_HUB_OFFLINE forbids requests to the hub",
                    remedy="unset it and set HF_ENDPOINT to a mirror, or use pvc://, oci:// or s3://",
                ) from error

    try:
        return within(patience.listing, source.uri, ask)
    except HFValidationError as error:
        raise WeightsError(
            Reason.SOURCE_NOT_FOUND,
            f"{source.uri} names no {kind} of a hub ({error})",
            remedy="write hf://ORGANISATION/MODEL, or hf://datasets/ORGANISATION/NAME/FILE for a file of a data set",
        ) from error
    except (ValueError, TypeError, KeyError) as error:
        raise WeightsError(
            Reason.SOURCE_UNREACHABLE,
            f"{source.uri}: {endpoint} does not answer like a hub ({str(error)[:200]})",
            remedy="check HF_ENDPOINT, and whether a proxy answers with its own page",
        ) from error


def _explain_refusal(source: ModelSource, answer: Answer, file: str) -> WeightsError:
    """The error that stands for a refusal of the hub, by its header `X-Error-Code`, which says more than the status."""
    error = refusal(source.uri, answer, file)
    has_token, code = get_token() is not None, answer.headers.get("X-Error-Code", "")
    host = answer.host
    if code == "GatedRepo":
        error.reason = Reason.SOURCE_UNAUTHORIZED
        error.message = f"{source.uri} is gated at {host}, and " + (
            "the token's account has no access to it" if has_token else "no token was given"
        )
        error.remedy = f"request access on its page with the account of the token{'' if has_token else '; ' + _ADVICE}"
    elif code == "RevisionNotFound":
        error.reason = Reason.SOURCE_NOT_FOUND
        error.message = f"{source.uri} has no revision {source.revision!r}"
        error.remedy = "set revision to a branch, a tag or a full commit of this repository"
    elif code == "EntryNotFound":
        error.reason = Reason.SOURCE_NOT_FOUND
        error.message = f"{source.uri} has no such file at this commit"
    elif code == "RepoNotFound" or (error.status == 401 and not has_token):
        # To whoever shows no token the hub tells private and absent models alike.
        error.reason = Reason.SOURCE_NOT_FOUND if code else Reason.SOURCE_UNAUTHORIZED
        error.message = f"{source.uri} does not exist at {host}, or is private"
        error.remedy = "correct the name; if it is private, " + (
            "use a token that may read it" if has_token else _ADVICE
        )
    elif error.reason is Reason.SOURCE_UNAUTHORIZED:
        error.remedy = "the hub refuses HF_TOKEN: replace it, or permit it to read this repository"
    elif error.reason is Reason.SOURCE_THROTTLED and error.retry_after is None:
        limit = _LIMIT.search(answer.headers.get("RateLimit", ""))
        error.retry_after = float(limit[1]) if limit else None
    return error
