"""Tests of headgate_asyncio.py. The test in Go starts the server, and runs test_headgate_asyncio.py URL."""
import asyncio
import sys
import threading
import unittest
import urllib.request

import headgate
import headgate_asyncio

URL = sys.argv.pop(1)


def control(action: str, body: str = "") -> None:
    urllib.request.urlopen(f"{URL}/test/{action}", body.encode(), timeout=60).close()


class Test(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        control("new")
        self.client = headgate_asyncio.Client(URL, timeout=60)
        self.addAsyncCleanup(self.client.close)

    async def test_tasks_are_limited_exactly(self):
        limit = "fixed-window 100/1h"
        decisions = await asyncio.gather(*(self.client.take(limit, "k") for _ in range(300)))
        self.assertEqual(sum(map(bool, decisions)), 100)
        self.assertEqual((await self.client.usage("k", limit))["limits"][0]["used"], 100)

    async def test_errors_are_those_of_headgate(self):
        with self.assertRaises(headgate.InvalidError) as raised:
            await self.client.take("fixed-window 100/1h", "k", "many")
        self.assertEqual(raised.exception.problem["field"], "cost")
        with self.assertRaises(AttributeError):
            self.client.takes

    async def test_the_loop_goes_on_while_a_call_waits(self):
        release = threading.Event()
        self.client._client.take = lambda: release.wait(60)
        task = asyncio.create_task(self.client.take())
        await asyncio.sleep(0)  # the call begins
        release.set()
        self.assertTrue(await task)

    async def test_an_id_gives_back_what_a_cancelled_task_charged(self):
        limit = "fixed-window 10/1h from-first"
        task = asyncio.create_task(self.client.take(limit, "k", 4, id="r1"))
        await asyncio.sleep(0)  # the call begins
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertTrue(await self.client.take(limit, "k", 4, id="r1"))  # at most one of both charges
        # The call of the cancelled task may still arrive. After a cancellation of the id it would charge.
        self.assertEqual(await self.client.settle("r1", limit, "k", 0), [4])
        self.assertEqual((await self.client.check(limit, "k")).remaining, 10)

    async def test_wait_and_limited(self):
        limit = "token-bucket 1/1s burst 1"
        self.assertTrue(await self.client.wait(limit, "k"))
        self.assertFalse(await self.client.wait(limit, "k", wait=0.5))
        with self.assertRaises(headgate.Refused):
            async with self.client.limited(limit, "k"):
                self.fail("it ran")
        asyncio.get_running_loop().call_later(0.3, control, "clock", "1000")
        async with self.client.limited(limit, "k", wait=60) as d:  # retries a second later
            self.assertTrue(d)

    async def test_holding(self):
        async with self.client.holding("concurrency 1 ttl 1m", "k") as d:
            self.assertEqual(d.ttl_ms, 60000)
            with self.assertRaises(headgate.Refused):
                async with self.client.holding("concurrency 1 ttl 1m", "k"):
                    self.fail("it is held twice")
        self.assertTrue(await self.client.acquire("concurrency 1 ttl 1m", "k"))


unittest.main()
