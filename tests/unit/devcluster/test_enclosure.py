"""Where namespaces cannot be had the person is told why and what to do; forwarding and probing pass data on."""

import asyncio
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from devcluster import DevClusterError, enclosure
from devcluster.forwarder import forward
from devcluster.probe import answers


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    enclosure._command.cache_clear()
    yield
    enclosure._command.cache_clear()


def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> None:
    """A PATH of these shell scripts and nothing else."""
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_forbidden_namespaces_are_told_with_every_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(tmp_path, monkeypatch, ip="", unshare="echo unshare failed: Operation not permitted >&2; exit 1")
    with pytest.raises(DevClusterError, match="Operation not permitted") as caught:
        enclosure._command()
    assert "KUBECONFIG=" in caught.value.remedy
    assert "kernel.apparmor_restrict_unprivileged_userns=0" in caught.value.remedy
    assert enclosure.forbidden_reason() == caught.value.problem


def test_root_does_without_a_user_namespace_where_it_must(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(tmp_path, monkeypatch, ip="", unshare='[ "$1" != --user ]')
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "--user" not in enclosure._command()
    enclosure._command.cache_clear()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert enclosure.forbidden_reason() is not None


@pytest.mark.parametrize(("there", "package"), [("ip", "util-linux"), ("unshare", "iproute2")])
def test_missing_program_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, package: str
) -> None:
    _machine(tmp_path, monkeypatch, **{there: ""})
    with pytest.raises(DevClusterError) as caught:
        enclosure._command()
    assert package in caught.value.remedy


def test_programs_inside_get_no_proxy_and_this_package_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "localhost")
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    found = enclosure.environment()
    assert not [name for name in found if name.lower().endswith("_proxy")]
    first, *others = found["PYTHONPATH"].split(":")
    assert (Path(first) / "devcluster" / "supervisor.py").exists()
    assert others == ["/theirs"]


def test_parent_is_read_whatever_the_program_is_called(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("42 (a) b) S 7 42 42 0")
    assert enclosure._parent(tmp_path) == 7
    (tmp_path / "stat").write_text("")
    assert enclosure._parent(tmp_path) is None


async def _echo_server() -> tuple[asyncio.Server, int]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read())  # until the client has ended its half
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def test_forwarding_passes_megabytes_and_half_closed_connections() -> None:
    target, port = await _echo_server()
    listener = enclosure.listen()
    front = listener.getsockname()[1]
    sent = bytes(range(256)) * 8192
    async with target, await forward(listener, "127.0.0.1", port):
        reader, writer = await asyncio.open_connection("127.0.0.1", front)
        writer.write(sent)
        writer.write_eof()
        assert await reader.read() == sent
        writer.close()
        await writer.wait_closed()


async def test_forwarding_to_nobody_closes_the_connection() -> None:
    listener = enclosure.listen()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with await forward(listener, "127.0.0.1", unused.getsockname()[1]):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()


@pytest.mark.parametrize(("status", "ready"), [("200 OK", True), ("503 Service Unavailable", False), ("", False)])
async def test_only_200_is_ready(status: str, ready: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):  # who only connects, asks nothing
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.0 {status}\r\n\r\n".encode() if status else b"")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        context = ssl.create_default_context()
        assert await answers(f"http://127.0.0.1:{port}/readyz", context) is ready
        assert await answers(f"tcp://127.0.0.1:{port}", context)
    assert not await answers(f"tcp://127.0.0.1:{port}", context)
