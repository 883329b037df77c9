"""The emulated hub behind a link of limited rate, shared by all connections or for each. Started by the measurement."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from modelservers.hub import HubHandler, HubServer

_PIECE = 64 << 10


class Link:
    """Lets bytes pass at `rate` per second, in the order in which they ask."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._free_at = 0.0

    def pass_through(self, count: int) -> None:
        with self._lock:
            now = time.monotonic()
            # up to 20 ms may be made up for: sleeping is not that exact
            self._free_at = max(self._free_at, now - 0.02) + count / self._rate
            wait = self._free_at - now
        if wait > 0:
            time.sleep(wait)


class LinkedHandler(HubHandler):
    """Sends through `link`, or through one of its own for each connection."""

    link: Link | None = None
    rate = 0.0

    def _plain(self) -> bool:
        return not self.rate and super()._plain()

    def _shaped(self, blocks: Iterator[bytes]) -> None:
        link = self.link or Link(self.rate) if self.rate else None
        for block in blocks:
            for at in range(0, len(block), _PIECE):
                piece = block[at : at + _PIECE]
                if link:
                    link.pass_through(len(piece))
                self.wfile.write(piece)
                self._sent += len(piece)


def main() -> None:
    """Serves until it is ended."""
    parser = argparse.ArgumentParser(prog="python -m weightsbench.server")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=0.0, help="bytes per second; 0: as fast as it goes")
    parser.add_argument("--each", action="store_true", help="the rate is that of each connection")
    given = parser.parse_args()
    server = HubServer(given.folder)
    LinkedHandler.rate = given.rate
    LinkedHandler.link = Link(given.rate) if given.rate and not given.each else None
    server.RequestHandlerClass = LinkedHandler
    for name in server.repositories.names():
        server.repositories.commit(name, "main")  # sums up files before anybody waits for it
    print(server.url, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
