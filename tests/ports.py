"""Ports for programs that tests start on this machine and that cannot be given an open socket."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """A port of the loopback address that is free now, and stays so: not of those that the kernel gives to connections
    and to whoever asks for any, and none that another worker would pick at the same time."""
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
