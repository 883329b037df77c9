"""Models in S3 and whatever speaks it, by obstore: listing, signing and ranges; and copies of what was trained.

Settings and credentials come from the environment, under the names that Amazon's own tools use: `AWS_REGION`,
`AWS_ENDPOINT_URL` (another service in place of Amazon's; `http://` is taken as meant), keys, session tokens, web
identities of Kubernetes service accounts. A service named by `AWS_ENDPOINT_URL` without any credentials is asked
unsigned, as are public buckets with `AWS_SKIP_SIGNATURE=true`.

A prefix has no versions, so its pin is computed: sha256 over names, sizes and ETags of all files below it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import obstore
from obstore import exceptions
from obstore.store import S3Store

from speculative_operator.domain.models import Pin
from speculative_operator.domain.reasons import Reason
from speculative_operator.domain.spec import ModelSource
from speculative_operator.weights.local import check_version, digest_of, stay_within
from speculative_operator.weights.patience import Patience, at_a_rate, within
from speculative_operator.weights.source import Entry, WeightsError, select_needed

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config

_BLOCK = 1 << 20
_LONGEST = timedelta(hours=24)
"""Most time for one range; the limit on silence in between is what ends it."""
_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_STATUS = re.compile(r"\b(?:status(?: code)?:? |status: )(\d{3})\b", re.IGNORECASE)
_CODE = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_UNWELCOME = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "XAdminUserNotFound")
_MARK, _ACCOUNT, _LAST = "training-of.json", "training.json", "config.json"
_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


@dataclass(frozen=True)
class BucketSource:
    """The objects below a prefix, as they were listed."""

    pin: Pin
    files: tuple[Entry, ...] = field(repr=False)
    prefix: str
    store: S3Store = field(repr=False)
    patience: Patience = field(repr=False)

    def read(self, entry: Entry, start: int, end: int) -> Iterator[bytes]:
        uri, at = self.pin.source.uri, start
        with _explain_errors(uri, entry.path):
            # Only the object that was listed: another under its name has another ETag.
            result = obstore.get(
                self.store,
                f"{self.prefix}{entry.path}",
                options={"range": (start, end), "if_match": entry.etag or None},
            )
            came = (bytes(block) for block in result.stream(_BLOCK))
            for block in at_a_rate(came, uri, entry.path, self.patience):
                at += len(block)
                yield block
        if at < end:
            raise WeightsError(
                Reason.SOURCE_UNREACHABLE, f"{uri}: the answer ended at byte {at}, before byte {end}", file=entry.path
            )


def open_bucket(source: ModelSource, patience: Patience | None = None) -> BucketSource:
    """The model below a prefix, `s3://bucket/prefix`. Raises WeightsError."""
    patience = patience or Patience.from_environment()
    store, prefix, listed = _listed(source, patience)
    entries = select_needed(listed)
    if not entries:
        raise WeightsError(
            Reason.SOURCE_NOT_FOUND,
            f"{source.uri}: the prefix has no model files",
            remedy="correct bucket or prefix; it must be the folder of config.json",
        )
    pin = Pin(source.scheme, source.location, source.revision, digest_of(entries))
    return BucketSource(check_version(source, pin), entries, prefix, store, patience)


def copy_to_bucket(training: Path, claim: Path, target: ModelSource, owner: str, *, begin: bool) -> int:
    """Copy the result of a training, whose folder lies on `claim`, below a prefix; returns its bytes. `begin`: there is
    none yet, and only a mark is put there, by which later copies know the prefix as theirs: that of the training, with
    `owner`, the folder's address in the cluster. Raises WeightsError, and leaves alone what bears no mark, or another
    one.

    `config.json` comes last: servers take nothing without it for a model.
    """
    store, prefix, listed = _listed(target, Patience.from_environment(), retries=5)
    names, folder, model = {one.path for one in listed}, stay_within(claim, training), training / "model"
    with _explain_errors(target.uri, ""):
        _refuse_folder_of_others(store, prefix, target)
        with _opened(folder, training / _MARK) as file:
            mark = owner.encode() + b"\n" + file.read()
        if names and (_MARK not in names or not _is_ours(_content(store, prefix + _MARK), mark, alone=len(names) == 1)):
            raise _foreign(target, "holds files of others, or of another training")
        if _LAST in names:
            with _opened(folder, model / _ACCOUNT) as file:
                if file.read() != _content(store, prefix + _ACCOUNT):
                    raise _foreign(target, "holds another result of this training")
        else:
            try:
                obstore.put(store, prefix + _MARK, mark, mode="overwrite" if names else "create")
            except exceptions.AlreadyExistsError as error:
                raise _foreign(target, "is taken by another training at this moment") from error
            made = [] if begin else sorted(_files(model), key=lambda one: (one.name == _LAST, one.name))
            for path in made:
                with _opened(folder, path) as file:
                    obstore.put(store, prefix + path.name, file)
    return sum(one.stat().st_size for one in _files(model))


def _files(model: Path) -> list[Path]:
    return [one for one in model.iterdir() if one.is_file()] if model.is_dir() else []


def _is_ours(held: bytes, mark: bytes, *, alone: bool) -> bool:
    """Whether a prefix that bears the mark `held` may be written to. Alone, a mark binds only others: nothing was
    copied yet, and the verifier may have moved since."""
    return held == mark or (alone and held.split(b"\n")[0] == mark.split(b"\n")[0])


@contextmanager
def _opened(folder: Path, path: Path) -> Iterator[BinaryIO]:
    """A file, opened for reading, which lies below `folder` wherever links led at that moment. Raises WeightsError."""
    with path.open("rb") as file:
        stay_within(folder, Path(f"/proc/self/fd/{file.fileno()}").readlink())
        yield file


def _refuse_folder_of_others(store: S3Store, prefix: str, target: ModelSource) -> None:
    """Raises WeightsError where a folder above the prefix is a model, whose version a file below it would change. What
    may not be looked at is not known."""
    parts = prefix.strip("/").split("/")[:-1]
    for depth in range(len(parts) + 1):
        for name in (_LAST, _MARK):
            with suppress(FileNotFoundError, exceptions.PermissionDeniedError):
                obstore.head(store, "/".join((*parts[:depth], name)))
                above = "/".join(("s3:/", target.location.partition("/")[0], *parts[:depth]))
                raise _foreign(target, f"lies in {above}, which holds a model or a copy of one")


def _content(store: S3Store, path: str) -> bytes:
    return bytes(obstore.get(store, path).bytes())


def _foreign(target: ModelSource, what: str) -> WeightsError:
    return WeightsError(Reason.OUTPUT_FOREIGN, f"{target.uri} {what}", remedy="name another folder in copyTo")


def _listed(source: ModelSource, patience: Patience, retries: int = 0) -> tuple[S3Store, str, list[Entry]]:
    """The bucket, the prefix in it, and all objects below that."""
    bucket, _, path = source.location.partition("/")
    prefix = f"{path.strip('/')}/" if path.strip("/") else ""
    again: RetryConfig = {"max_retries": retries}
    with _explain_errors(source.uri, ""):
        store = S3Store(bucket, config=_config(), client_options=_client(patience), retry_config=again)
    return store, prefix, within(patience.listing, source.uri, lambda: list(_listing(store, prefix, source.uri)))


def _config() -> S3Config:
    config: S3Config = {"virtual_hosted_style_request": False}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        config["endpoint"] = endpoint
        if not any(os.environ.get(name) for name in _CREDENTIALS):
            config["skip_signature"] = True
    if not os.environ.get("AWS_REGION") and not os.environ.get("AWS_DEFAULT_REGION"):
        config["region"] = "us-east-1"
    return config


def _client(patience: Patience) -> ClientConfig:
    options: ClientConfig = {
        "allow_http": True,
        "connect_timeout": timedelta(seconds=patience.connect),
        "read_timeout": timedelta(seconds=patience.read),
        "timeout": _LONGEST,
    }
    trusted = os.environ.get("SSL_CERT_FILE")
    if trusted:
        options["root_certificate"] = Path(trusted).read_bytes()
    return options


def _listing(store: S3Store, prefix: str, uri: str) -> Iterator[Entry]:
    with _explain_errors(uri, ""):
        for page in obstore.list(store, prefix.rstrip("/") or None):
            for one in page:
                # Some tools mark a folder by an empty object that ends with a slash.
                if not one["path"].endswith("/") and one["path"].startswith(prefix):
                    yield Entry(one["path"].removeprefix(prefix), int(one["size"]), "", one["e_tag"] or "")


@contextmanager
def _explain_errors(uri: str, file: str) -> Iterator[None]:
    """Turn errors of obstore into WeightsError; it tells the status only in its text."""
    try:
        yield
    except exceptions.PreconditionError as error:
        raise WeightsError(
            Reason.CHECKSUM_MISMATCH,
            f"{uri}: the object was replaced after it was listed",
            file,
            412,
            "retry: somebody publishes the model again under this prefix",
        ) from error
    except FileNotFoundError as error:
        raise WeightsError(
            Reason.SOURCE_NOT_FOUND, f"{uri}: the object does not exist", file, 404, "correct bucket or prefix"
        ) from error
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        status = 401 if isinstance(error, exceptions.UnauthenticatedError) else 403
        raise _refuse_credentials(uri, file, status) from error
    except (exceptions.BaseError, OSError, ValueError) as error:
        raise _other(uri, file, str(error)) from error


def _refuse_credentials(uri: str, file: str, status: int) -> WeightsError:
    has_key = bool(os.environ.get("AWS_ACCESS_KEY_ID"))
    remedy = (
        f"S3 refuses {_KEYS}: replace them, or permit them to list the bucket and to get its objects (copyTo: put)"
        if has_key
        else f"put {_KEYS} into the Secret of spec.weights.secretName, or give the service account a role"
    )
    return WeightsError(Reason.SOURCE_UNAUTHORIZED, f"{uri}: access is denied", file, status, remedy)


def _other(uri: str, file: str, text: str) -> WeightsError:
    """The error by what the service answered: its code says more than the status, and services differ in the latter."""
    status_match, code, words = _STATUS.search(text), _CODE.search(text), _MESSAGE.search(text)
    status = int(status_match[1]) if status_match else None
    if status in (401, 403) or (code and code[1] in _UNWELCOME):
        return _refuse_credentials(uri, file, status or 403)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no answer")[:300]
    cause = f"{code[1]}: {words[1]}" if code and words else first
    if code and code[1].startswith("NoSuch"):
        return WeightsError(Reason.SOURCE_NOT_FOUND, f"{uri}: {cause}", file, status, "correct bucket or prefix")
    throttled = status == 429 or (code is not None and code[1] == "SlowDown")
    remedy = "check AWS_ENDPOINT_URL, AWS_REGION, the network and the proxy"
    if "certificate" in text.lower():
        remedy = "put the certificate of its authority into a file, and set SSL_CERT_FILE to the path"
    reason = Reason.SOURCE_THROTTLED if throttled else Reason.SOURCE_UNREACHABLE
    return WeightsError(reason, f"{uri}: {cause}", file, status, remedy)
