"""An S3 service on loopback: versitygw, which keeps objects as files and checks signatures, built from source once.

    with serving(folder) as service: service.upload(model, "bucket", "models/one")

`make toolchain` builds it beside the development cluster's programs, in about four minutes on two cores; versitygw is
under the Apache License 2.0 and is used unchanged (github.com/versity/versitygw).
"""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.store import S3Store

from devcluster import toolchain

_START_SECONDS = 20.0


@dataclass(frozen=True)
class Service:
    """A running service and the keys that it knows."""

    url: str
    folder: Path
    """Holds a folder per bucket."""
    access_key: str = "loopback"
    secret_key: str = "loopback-secret"  # noqa: S105, opens nothing but this

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to know."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
        }

    def upload(self, model: Path, bucket: str, prefix: str) -> None:
        """Every file of a folder, by a real client; the bucket is made."""
        (self.folder / bucket).mkdir(exist_ok=True)
        store = S3Store(
            bucket,
            config={
                "endpoint": self.url,
                "access_key_id": self.access_key,
                "secret_access_key": self.secret_key,
                "region": "us-east-1",
                "virtual_hosted_style_request": False,
            },
            client_options={"allow_http": True},
        )
        for path in sorted(model.rglob("*")):
            if path.is_file():
                obstore.put(store, f"{prefix}/{path.relative_to(model).as_posix()}".lstrip("/"), path)


def unbuilt() -> str:
    """Why the program is not there, for tests to skip with; empty where it is. A build takes minutes."""
    if not toolchain.missing((toolchain.VERSITYGW,)):
        return ""
    return "versitygw is not built: `make toolchain` does, once"


@contextmanager
def serving(folder: Path) -> Iterator[Service]:
    """A service over `folder` on a free port of loopback, until the end of the block."""
    program = toolchain.program(toolchain.VERSITYGW)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    service = Service(f"http://127.0.0.1:{port}", folder)
    keys = ("--access", service.access_key, "--secret", service.secret_key)
    metadata = folder.with_name(f"metadata-of-{folder.name}")
    metadata.mkdir(exist_ok=True)
    # Metadata beside the objects: not every file system of a build has extended attributes.
    command = [str(program), "--port", f"127.0.0.1:{port}", *keys, "--quiet", "--keep-alive"]
    command += ["posix", "--sidecar", str(metadata), str(folder)]
    with (metadata / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _await(service.url, process)
            yield service
        finally:
            process.terminate()


def _await(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=1).close()  # noqa: S310, a loopback address
        except urllib.error.HTTPError:
            return  # it answers, and refuses whoever shows no key
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"{url} does not answer; the program ended with {process.poll()}")
