"""Tests of headgate.py. The test in Go starts the server, and runs test_headgate.py URL vectors.json."""
import concurrent.futures
import decimal
import json
import socket
import sys
import threading
import time
import unittest
import urllib.request

import headgate

URL, VECTORS = sys.argv.pop(1), json.load(open(sys.argv.pop(1), encoding="utf-8"), parse_float=decimal.Decimal)
CLASSES = {
    "unavailable": headgate.UnavailableError, "busy": headgate.BusyError, "full": headgate.FullError,
    "unknown-outcome": headgate.UnknownOutcomeError, "id-reused": headgate.IDReusedError,
    "id-settled": headgate.IDSettledError, "unknown-id": headgate.UnknownIDError, "invalid": headgate.InvalidError,
    "forbidden": headgate.ForbiddenError, "unsupported": headgate.UnsupportedError, "other": headgate.Error,
}
# Methods that return one member of the answer, and the names of these members.
PARTS = {"settle": "corrected", "cancel": "corrected", "renew": "lost", "release": "lost", "reset": "existed"}


def control(action: str, body: str = "") -> None:
    urllib.request.urlopen(f"{URL}/test/{action}", body.encode(), timeout=60).close()


def charges(body: dict):
    return [headgate.Charge(**c) for c in body.pop("charges")] if "charges" in body else body.pop("limit")


def call_verb(client: headgate.Client, verb: str, fields: dict):
    """Calls the method of a verb, and returns its answer in the form of the JSON."""
    body = dict(fields)
    method = getattr(client, verb.replace("-", "_"))
    if verb == "batch":
        answers = method(body["requests"])
        return {"answers": [{"problem": a.problem} if isinstance(a, headgate.Error) else vars(a) for a in answers]}
    if verb == "block":
        body["duration"] = body.pop("for")
    if verb not in ("renew", "release"):
        body["limit"] = charges(body)
    got = method(**body)
    if verb in ("renew", "release"):
        got = not got
    if verb in PARTS:
        return {PARTS[verb]: got}
    return vars(got) if isinstance(got, headgate.Decision) else got


class Test(unittest.TestCase):
    def setUp(self):
        control("new")
        self.client = headgate.Client(URL, timeout=60)
        self.addCleanup(self.client.close)

    def test_arithmetic(self):
        for vector in VECTORS["arithmetic"]:
            control("new")
            for i, step in enumerate(vector["steps"]):
                with self.subTest(vector["name"], step=i):
                    control("clock", str(step["at_ms"]))
                    got, want = call_verb(self.client, step["verb"], step["in"]), step["want"]
                    if want.get("delay_ms") and 0 <= want["delay_ms"] - got["delay_ms"] < 1000:
                        got["delay_ms"] = want["delay_ms"]  # the delay counts from the answer
                    self.assertEqual(got, want)

    def test_errors(self):
        for vector in VECTORS["errors"]:
            want = vector["want"]
            with self.subTest(vector["name"]):
                with self.assertRaises(CLASSES[want["error"]]) as raised:
                    if "limit" in vector["in"] and "key" in vector["in"] or "charges" in vector["in"]:
                        call_verb(self.client, vector["verb"], vector["in"])
                    else:
                        self.client.call("POST", "/v1/" + vector["verb"], vector["in"])
                problem = raised.exception.problem
                self.assertEqual([problem["status"], problem.get("type", ""), problem.get("field", "")],
                                 [want["status"], want["type"], want["field"]])

    def test_answers(self):
        for i, vector in enumerate(VECTORS["answers"]):
            with self.subTest(vector["name"]):
                client = headgate.Client(f"{URL}/test/answer/{i}", timeout=60)
                with self.assertRaises(headgate.Error) as raised:
                    client.take("api", "alice")
                self.assertIs(type(raised.exception), CLASSES[vector["error"]])
                client.close()

    def test_costs_are_numbers(self):
        for cost, remaining in ((1.5, 8), (0.1 + 0.2, 8), (1.4e-05, 8), (decimal.Decimal("1E+0"), 7)):
            self.assertEqual(self.client.take("fixed-window 10/1h", "numbers", cost).remaining, remaining)
        for cost in (float("nan"), float("inf"), True):
            with self.assertRaises(headgate.InvalidError):
                self.client.take("fixed-window 10/1h", "k", cost)
        limit = "fixed-window 4503599627370/1h"
        d = self.client.fill_up(limit, "k", decimal.Decimal("4503599627369.123"))
        self.assertEqual(d.accepted, decimal.Decimal("4503599627369.123"))
        self.assertEqual(self.client.usage("k", limit)["limits"][0]["used"], decimal.Decimal("4503599627369.123"))

    def test_parallel_callers_are_exact(self):
        def take(_):
            return sum(bool(self.client.take("fixed-window 100/1h", "k")) for _ in range(10))
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            self.assertEqual(sum(pool.map(take, range(32))), 100)

    def test_a_server_that_stops_leaves_the_outcome_unknown(self):
        with self.assertRaises(headgate.UnknownOutcomeError):
            headgate.Client(URL + "/test/stopped", timeout=60).take("api", "k")

    def test_no_server_charges_nothing(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))  # the port is taken, and nobody listens
            with self.assertRaises(headgate.UnavailableError):
                headgate.Client(f"http://127.0.0.1:{s.getsockname()[1]}", timeout=60).take("api", "k")

    def test_a_connection_that_the_server_closed_is_not_used(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            def serve():
                for _ in range(2):
                    conn, _ = s.accept()
                    data = b""
                    while b"\r\n\r\n" not in data or not data.endswith(b"}"):
                        data += conn.recv(1 << 16)
                    conn.sendall(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n'
                                 b'{"existed":true}')
                    conn.close()
            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            client = headgate.Client(f"http://127.0.0.1:{s.getsockname()[1]}", timeout=60)
            self.assertTrue(client.reset("api", "k"))
            client._idle[0][0].sock.settimeout(60)
            client._idle[0][0].sock.recv(1, socket.MSG_PEEK)  # until the end of the connection has arrived
            self.assertTrue(client.reset("api", "k"))
            thread.join()

    def test_deadline(self):
        client = headgate.Client(URL + "/test/silent", timeout=0.2)
        begin = time.monotonic()
        with self.assertRaises(headgate.UnknownOutcomeError):
            client.take("api", "k")
        self.assertLess(time.monotonic() - begin, 60)

    def test_token(self):
        self.assertTrue(headgate.Client(URL + "/test/token", "secret", 60).reset("api", "k"))
        self.assertFalse(headgate.Client(URL + "/test/token", None, 60).reset("api", "k"))

    def test_wait_and_limited(self):
        limit = "token-bucket 1/1s burst 1"
        self.assertTrue(self.client.wait(limit, "k"))
        self.assertFalse(self.client.wait(limit, "k", wait=0.5))
        self.assertFalse(self.client.wait(limit, "k", 2))
        with self.assertRaises(headgate.Refused) as raised:
            with self.client.limited(limit, "k"):
                self.fail("it ran")
        self.assertEqual(raised.exception.decision.retry_after_ms, 1000)
        timer = threading.Timer(0.3, control, ("clock", "1000"))
        timer.start()
        with self.client.limited(limit, "k", wait=60) as d:  # retries a second later
            self.assertTrue(d)
        timer.join()

        @self.client.limited(limit, "other")
        def greet(name):
            return "hello " + name
        self.assertEqual(greet("you"), "hello you")

    def test_holding(self):
        with self.client.holding("concurrency 1 ttl 1m", "k") as d:
            self.assertEqual([d.held[0]["number"], d.ttl_ms], [1, 60000])
            with self.assertRaises(headgate.Refused):
                with self.client.holding("concurrency 1 ttl 1m", "k"):
                    self.fail("it is held twice")
        self.assertTrue(self.client.acquire("concurrency 1 ttl 1m", "k"))

    def test_observe(self):
        self.assertEqual(self.client.observe("token-bucket 5/1s", "k", 429, {"retry-after": "20"}),
                         {"blocked_for_ms": 20000, "field": "Retry-After"})
        self.assertEqual(self.client.observe("token-bucket 5/1s", "k", 429, {}), {"blocked_for_ms": 0})
        self.assertFalse(self.client.take("token-bucket 5/1s", "k"))

    def test_explain(self):
        self.assertTrue(self.client.explain("GET", "/")["allowed"])


unittest.main()
