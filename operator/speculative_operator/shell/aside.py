"""An event loop in a thread of its own, for what must go on whatever the main loop does: the Lease and the port that
the kubelet asks. Made by `app`, used by `operator`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Aside:
    """The loop, from `start` until `stop`. What is bound to a loop, such as a client, must not be shared with the main
    loop."""

    def start(self) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lease-and-health", daemon=True)
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work` in that loop; raises what it raises, and cancels it where the caller is cancelled."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def stop(self) -> None:
        """End the loop and its thread. It must have nothing to do any more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
