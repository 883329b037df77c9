"""Pod networks: a network namespace per pod, joined by a bridge inside the enclosure.

The agent makes one BridgeNetwork; pod workers take a PodNetwork each. Pods bind 0.0.0.0 without colliding, reach each
other over the bridge, and reach services and the API server through the enclosure, whose addresses those are.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections import deque
from dataclasses import dataclass
from ipaddress import IPv4Network

from . import syscalls


class NetworkError(RuntimeError):
    """A pod network could not be set up; the text is what the kernel's tool said."""


class AddressPool:
    """Addresses of a node's pods: the longest unused first, so that a late packet finds no stranger."""

    def __init__(self, network: IPv4Network) -> None:
        hosts = [str(host) for host in network.hosts()]
        self.gateway = hosts[0]
        self.prefix = network.prefixlen
        self._free = deque(hosts[1:])

    def take(self) -> str:
        """An unused address. Raises NetworkError when none is left."""
        if not self._free:
            raise NetworkError("no free pod address left in podCIDR; delete pods or configure a larger range")
        return self._free.popleft()

    def give_back(self, address: str) -> None:
        """Make an address usable again, after all others."""
        self._free.append(address)


@dataclass
class PodNetwork:
    """A pod's view of the network: its address, and the namespace that its containers join."""

    address: str
    namespace_fd: int


def _ip(*lines: str) -> None:
    """Several `ip` commands in one process. Raises NetworkError."""
    done = subprocess.run(
        ["ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, capture_output=True, timeout=20, check=False
    )
    if done.returncode != 0:
        raise NetworkError(done.stderr.strip() or f"ip ended with {done.returncode}")


class BridgeNetwork:
    """A namespace per pod, its eth0 on a bridge that holds the first address of the range."""

    def __init__(self, network: IPv4Network) -> None:
        """Raises NetworkError where the kernel has no bridge."""
        self._pool = AddressPool(network)
        self._bridge = bridge = f"p{int(network.network_address):08x}"
        self._count = 0
        # What an earlier node process left, in the same enclosure.
        subprocess.run(["ip", "link", "del", bridge], capture_output=True, timeout=20, check=False)
        # The enclosure owns the whole pod range; a more specific route in the same table sends this node's part to the
        # bridge.
        _ip(
            f"link add {bridge} type bridge",
            f"addr add {self._pool.gateway}/32 dev {bridge}",
            f"link set {bridge} up",
            f"route add unicast {network} dev {bridge} src {self._pool.gateway} table local",
        )

    async def attach(self) -> PodNetwork:
        """A new namespace with loopback, eth0 and a default route. Raises NetworkError."""
        address = self._pool.take()
        self._count += 1
        port = f"{self._bridge}-{self._count % 0xFFFFF:x}"
        try:
            fd = await asyncio.to_thread(self._create, address, port)
        except (OSError, NetworkError) as error:
            self._pool.give_back(address)
            raise NetworkError(f"network of pod address {address}: {error}") from error
        return PodNetwork(address, fd)

    def detach(self, network: PodNetwork) -> None:
        """Let go of the namespace; it and its interfaces vanish with their last process."""
        os.close(network.namespace_fd)
        self._pool.give_back(network.address)

    def _create(self, address: str, port: str) -> int:
        """Build the namespace in this thread, which visits it and comes back."""
        outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            syscalls.unshare(syscalls.CLONE_NEWNET)
            inside = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                _ip(
                    "link set lo up",
                    f"link add eth0 type veth peer name {port} netns /proc/{os.getpid()}/fd/{outside}",
                    f"addr add {address}/{self._pool.prefix} dev eth0",
                    "link set eth0 up",
                    f"route add default via {self._pool.gateway}",
                )
                syscalls.enter(outside, syscalls.CLONE_NEWNET)
                _ip(f"link set {port} master {self._bridge} up")
            except NetworkError:
                os.close(inside)
                raise
            finally:
                syscalls.enter(outside, syscalls.CLONE_NEWNET)
        finally:
            os.close(outside)
        return inside
