"""Whether a server answers: the supervisor's readiness check, small enough for process 1."""

import asyncio
import ssl
import urllib.parse

_TIMEOUT_SECONDS = 2.0


def tls_context(authority: str) -> ssl.SSLContext:
    """Trusts the cluster's own authority and nothing else."""
    return ssl.create_default_context(cafile=authority)


async def answers(url: str, tls: ssl.SSLContext) -> bool:
    """`tcp://host:port` accepts a connection; an http or https URL answers 200."""
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            return await _ask(urllib.parse.urlsplit(url), tls)
    except (OSError, TimeoutError):
        return False


async def _ask(url: urllib.parse.SplitResult, tls: ssl.SSLContext) -> bool:
    secure = tls if url.scheme == "https" else None
    reader, writer = await asyncio.open_connection(url.hostname, url.port, ssl=secure)
    try:
        if url.scheme == "tcp":
            return True
        request = f"GET {url.path or '/'} HTTP/1.0\r\nHost: {url.netloc}\r\n\r\n"
        writer.write(request.encode())
        status = (await reader.readline()).split()
        return len(status) > 1 and status[1] == b"200"
    finally:
        writer.close()
