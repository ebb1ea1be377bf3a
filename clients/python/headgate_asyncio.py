"""headgate.py for asyncio, with only the standard library. Keep both files side by side.

    client = headgate_asyncio.Client("http://127.0.0.1:8080")
    if not await client.take("login", "alice"):
        ...                              # a refusal is a Decision that is false, no exception
    async with client.limited("api", "alice", wait=5):
        ...                              # raises headgate.Refused if it does not pass within 5 s

Each call runs in a thread, so the event loop goes on; up to concurrency calls run at once, others queue. A task that is
cancelled does not stop a call that has begun: what it charges stays charged, unless the request had an id, by which
to settle at 0 gives it back, also if the call arrives later.
"""
import asyncio
import concurrent.futures
import contextlib
import functools
import time
from typing import Any

import headgate


class Client:
    """The methods of headgate.Client, each to be awaited. Use it in one event loop."""

    def __init__(self, *args: Any, concurrency: int = 32, **options: Any):
        self._client = headgate.Client(*args, **options)
        self._threads = concurrent.futures.ThreadPoolExecutor(concurrency, "headgate")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        method = getattr(self._client, name)

        @functools.wraps(method)
        async def call(*args: Any, **more: Any) -> Any:
            run = functools.partial(method, *args, **more)
            return await asyncio.get_running_loop().run_in_executor(self._threads, run)
        return call

    async def close(self) -> None:
        """Waits for the calls under way, and closes the connections."""
        await asyncio.to_thread(self._threads.shutdown)
        self._client.close()

    async def wait(self, limit: headgate.Which, key=None, cost=None, keep=None, wait: float = 60, **more: Any
                   ) -> headgate.Decision:
        """Takes, and retries for up to wait seconds; returns a refusal if the charge cannot pass within them."""
        end = time.monotonic() + wait
        while True:
            d = await self.take(limit, key, cost, keep, **more)
            if d or d.retry_after_ms is None or d.retry_after_ms / 1000 > end - time.monotonic():
                return d
            await asyncio.sleep(max(d.retry_after_ms / 1000, 0.001))

    @contextlib.asynccontextmanager
    async def limited(self, limit: headgate.Which, key=None, cost=None, keep=None, wait: float = 0, **more: Any):
        """Runs a block when it is admitted, else raises headgate.Refused."""
        d = await self.wait(limit, key, cost, keep, wait, **more)
        if not d:
            raise headgate.Refused(d)
        yield d

    @contextlib.asynccontextmanager
    async def holding(self, limit: headgate.Which, key=None, cost=None):
        """Holds a concurrency limit during a block: renews it in the background, and releases it at the end."""
        d = await self.acquire(limit, key, cost)
        if not d:
            raise headgate.Refused(d)

        async def renew() -> None:
            while True:
                await asyncio.sleep(d.ttl_ms / 3000)
                with contextlib.suppress(headgate.Error):
                    await self.renew(d.held)
        task = asyncio.create_task(renew())
        try:
            yield d
        finally:
            task.cancel()
            with contextlib.suppress(headgate.Error):  # the lease ends by itself after its ttl
                await asyncio.shield(self.release(d.held))
