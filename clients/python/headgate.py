"""A client of a headgate server, for Python 3.9 or later, with only the standard library.

    client = headgate.Client("http://127.0.0.1:8080")
    if not client.take("login", "alice"):
        ...                              # a refusal is a Decision that is false, no exception
    with client.limited("api", "alice", wait=5):
        ...                              # raises Refused if it does not pass within 5 s

A Client is safe for use by many threads. Costs are int, float, Decimal or str, and rounded up where a limit counts in
coarser steps. Nothing is sent twice: after UnknownOutcomeError only a request with an id can be repeated without being
charged twice.
"""
import contextlib
import dataclasses
import decimal
import http.client
import json
import select
import threading
import time
import types
import urllib.parse
from typing import Any, Dict, List, Optional, Union
Cost = Union[int, float, str, decimal.Decimal]
IDLE = 25.0  # seconds that an unused connection is kept
class Error(Exception):
    """The error of a call. problem is the problem of the server, in the form of RFC 9457, or empty."""
    def __init__(self, text: str, problem: Optional[Dict[str, Any]] = None):
        super().__init__(text)
        self.problem = problem or {}
class InvalidError(Error, ValueError): """The request is invalid, and not charged. problem["field"] names the field."""
class ForbiddenError(Error): """The token is missing, invalid, or lacks the right; nothing was done."""
class UnavailableError(Error): """The server or its store cannot be reached; nothing was charged."""
class BusyError(UnavailableError): """Too many callers wait; nothing was charged."""
class FullError(Error): """There is no room for the key; nothing was charged."""
class UnknownOutcomeError(Error): """It is not known whether anything was charged."""
class UnknownIDError(Error): """Nothing was admitted under the id, or its life is over."""
class IDReusedError(Error): """The id was admitted with other charges."""
class IDSettledError(Error): """The id was settled or cancelled with other costs."""
class UnsupportedError(Error): """The store does not support the verb; nothing was done."""

class Refused(Exception):
    """A block or function was not run, since its charges were refused. decision says why."""
    def __init__(self, decision: "Decision"):
        super().__init__(f"refused by {decision.limit}")
        self.decision = decision

@dataclasses.dataclass
class Charge:
    limit: str  # a name, or a notation where the server accepts these
    key: str
    cost: Optional[Cost] = None  # None: 1
    keep: Optional[str] = None  # headroom, such as "10%"
    alternative: Optional[int] = None  # from 1: take and check take the first alternative that has room

class Decision(types.SimpleNamespace):
    """An answer, true if it is an admission. Costs are int or Decimal, times in _ms milliseconds, others microseconds
    since 1970. All have allowed, limit, capacity, remaining, retry_after_ms (None: never), reset_after_ms and at."""
    key = via = applied = ""
    replayed = False
    entry, crossed, alternative, each = 0, 0, 0, ()
    start_at, delay_ms, refundable = None, None, False  # of reserve
    accepted, level, brim, over = 0, 0, False, False  # of fill_up and debit
    charged = ()  # of extend: the total of each charge; of debit: a cost
    held, ttl_ms = (), 0  # of acquire
    def __bool__(self) -> bool:
        return self.allowed
TYPES = {"unavailable": UnavailableError, "busy": BusyError, "full": FullError, "outcome-unknown": UnknownOutcomeError,
         "id-unknown": UnknownIDError, "id-reused": IDReusedError, "id-settled": IDSettledError}
STATUSES = {400: InvalidError, 413: InvalidError, 401: ForbiddenError, 403: ForbiddenError, 408: UnavailableError,
            501: UnsupportedError}
def _failure(status: int, problem: Any) -> Error:
    if not isinstance(problem, dict) or "title" not in problem:
        return (UnknownOutcomeError if status >= 500 else Error)(f"status {status}; is it a headgate server?")
    kind = TYPES.get(str(problem.get("type", "")).replace("urn:headgate:", "")) or STATUSES.get(status)
    return (kind or (UnknownOutcomeError if status >= 500 else Error))(problem.get("detail") or problem["title"], problem)

def _charge(c: Charge) -> Dict[str, Any]:
    if isinstance(c.cost, bool) or isinstance(c.cost, float) and c.cost - c.cost != 0:
        raise InvalidError(f"cost: {c.cost!r} is no number")
    body = {**vars(c), "cost": None if c.cost is None else str(c.cost)}
    return {k: v for k, v in body.items() if v is not None}
Which = Union[str, List[Charge]]  # a limit, or charges in its place
def request(limit: Which, key: Optional[str] = None, cost: Optional[Cost] = None, keep: Optional[str] = None,
            **more: Any) -> Dict[str, Any]:
    """Returns the body of a request, such as batch needs; check=True takes nothing."""
    body = _charge(Charge(limit, key, cost, keep)) if isinstance(limit, str) else {"charges": list(map(_charge, limit))}
    return {**body, **{k: v for k, v in more.items() if v is not None}}

class Client:
    def __init__(self, url: str, token: Optional[str] = None, timeout: float = 10.0, context: Any = None):
        """url is http:// or https://; timeout bounds each call, in seconds; context is an ssl.SSLContext."""
        self._url = urllib.parse.urlsplit(url)
        if self._url.scheme not in ("http", "https"):
            raise InvalidError(f"server: {url!r} is not a URL such as http://127.0.0.1:8080")
        self._timeout, self._context = timeout, context
        self._headers = {"Content-Type": "application/json", **({"Authorization": "Bearer " + token} if token else {})}
        self._idle: List[Any] = []

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[0].close()
    def _connect(self, timeout: float) -> Any:
        while True:
            try:
                conn, since = self._idle.pop()  # pop is atomic
            except IndexError:
                break
            # A connection that the server has closed can be read. A request on it would have an unknown outcome.
            with contextlib.suppress(ValueError):  # select takes only files below 1,024
                if time.monotonic() - since < IDLE and not select.select([conn.sock], [], [], 0)[0]:
                    return conn
            conn.close()
        host, port = self._url.hostname, self._url.port
        conn = http.client.HTTPConnection(host, port, timeout=timeout) if self._url.scheme == "http" else \
            http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context)
        conn.connect()
        return conn

    def call(self, method: str, path: str, body: Any = None, timeout: Optional[float] = None) -> Any:
        """Sends a request to a path, and returns the JSON of the answer."""
        end = time.monotonic() + (self._timeout if timeout is None else timeout)
        text = None if body is None else json.dumps(body, allow_nan=False).encode()
        try:
            conn = self._connect(max(0.001, end - time.monotonic()))
        except OSError as e:
            raise UnavailableError(f"the server cannot be reached: {e}") from e
        done = False
        try:
            conn.sock.settimeout(max(0.001, end - time.monotonic()))
            conn.request(method, self._url.path.rstrip("/") + path, text, self._headers)
            answer = conn.getresponse()
            data = b""
            while part := answer.read(1 << 16):
                data += part
                if conn.sock:
                    conn.sock.settimeout(max(0.001, end - time.monotonic()))
            done = answer.isclosed() and not answer.will_close and conn.sock is not None
            kind = answer.headers.get_content_type()
            out = json.loads(data, parse_float=decimal.Decimal) if kind.endswith("json") else None
        except (OSError, http.client.HTTPException, ValueError) as e:
            raise UnknownOutcomeError(f"no answer: {type(e).__name__}: {e}") from e
        finally:
            if done:
                self._idle.append((conn, time.monotonic()))
            else:
                conn.close()
        if answer.status != 200 or out is None:
            raise _failure(answer.status, out)
        return out

    def _post(self, verb: str, body: Any, timeout: Optional[float]) -> Any:
        return self.call("POST", "/v1/" + verb, body, timeout)
    def _decide(self, verb: str, timeout: Optional[float], *of: Any, **more: Any) -> Decision:
        return Decision(**self._post(verb, request(*of, **more), timeout))

    # limit is a limit, or a list of Charge in its place. more is id and life: a request with an id is charged once,
    # however often it is sent.
    def take(self, limit: Which, key=None, cost=None, keep=None, timeout=None, **more: Any) -> Decision:
        return self._decide("take", timeout, limit, key, cost, keep, **more)

    def check(self, limit: Which, key=None, cost=None, keep=None, timeout=None) -> Decision:
        return self._decide("check", timeout, limit, key, cost, keep)

    def fill_up(self, limit: Which, key=None, cost=None, timeout=None, **more: Any) -> Decision:
        return self._decide("fill-up", timeout, limit, key, cost, **more)

    def reserve(self, limit: Which, key=None, cost=None, keep=None, wait="0", timeout=None, **more: Any) -> Decision:
        """Takes for a start within wait, such as "30s"; the answer has delay_ms until the start."""
        return self._decide("reserve", timeout, limit, key, cost, keep, wait=wait, **more)

    def debit(self, id: str, limit: str, key=None, cost=None, timeout=None, **more: Any) -> Decision:
        """Charges work that is done already, under an id, whatever the level."""
        return self._decide("debit", timeout, limit, key, cost, id=id, **more)

    def extend(self, id: str, limit: Which, key=None, cost=None, timeout=None, **more: Any) -> Decision:
        """Charges more under an id: costs are totals."""
        return self._decide("extend", timeout, limit, key, cost, id=id, **more)

    def settle(self, id: str, limit: Which, key=None, cost=None, timeout=None) -> List[Cost]:
        """Corrects costs to the actual costs, and returns by how much each was corrected."""
        return self._post("settle", request(limit, key, cost, id=id), timeout)["corrected"]

    def cancel(self, id: str, limit: Which, key=None, timeout=None) -> List[Cost]:
        return self._post("cancel", request(limit, key, id=id), timeout)["corrected"]

    def batch(self, requests: List[Dict[str, Any]], timeout=None) -> List[Union[Decision, Error]]:
        """Decides many requests, made by request(). An invalid request fails alone, as an error in the list."""
        answers = self._post("batch", {"requests": requests}, timeout)["answers"]
        return [_failure(a["problem"].get("status", 0), a["problem"]) if "problem" in a else Decision(**a)
                for a in answers]

    def acquire(self, limit: Which, key=None, cost=None, timeout=None) -> Decision:
        return self._decide("acquire", timeout, limit, key, cost)

    def renew(self, held: List[Dict[str, Any]], timeout=None) -> bool:
        """Renews leases, and returns whether all are still held."""
        return not self._post("renew", {"held": held}, timeout)["lost"]

    def release(self, held: List[Dict[str, Any]], timeout=None) -> bool:
        return not self._post("release", {"held": held}, timeout)["lost"]

    def block(self, limit: str, key: str, duration: str, reason: str = "", timeout=None) -> Dict[str, Any]:
        """Refuses a key for a time such as "15m"; "0" lifts a block."""
        return self._post("block", {"limit": limit, "key": key, "for": duration, "reason": reason}, timeout)

    def refund(self, limit: str, key: str, cost: Cost, reason: str = "", timeout=None) -> Cost:
        """Gives back usage of a key, up to a cost, and returns how much. With an id use settle or cancel."""
        return self._post("refund", {"limit": limit, "key": key, "cost": cost, "reason": reason}, timeout)["returned"]

    def reset(self, limit: str, key: str, reason: str = "", timeout=None) -> bool:
        return self._post("reset", {"limit": limit, "key": key, "reason": reason}, timeout)["existed"]

    def observe(self, limit: str, key: str, status: int, headers: Dict[str, str], timeout=None) -> Dict[str, Any]:
        """Blocks a key if the headers of a response demand a pause, such as the Retry-After of a 429."""
        body = {"limit": limit, "key": key, "status": status, "headers": dict(headers)}
        return self._post("observe", body, timeout)

    def usage(self, key: str, *limits: str, timeout=None) -> Dict[str, Any]:
        query = urllib.parse.urlencode([("key", key)] + [("limit", one) for one in limits])
        return self.call("GET", "/v1/usage?" + query, None, timeout)

    def explain(self, method: str, uri: str, timeout=None, **more: Any) -> Dict[str, Any]:
        return self._post("explain", {"method": method, "uri": uri, **more}, timeout)

    def wait(self, limit: Which, key=None, cost=None, keep=None, wait: float = 60, **more: Any) -> Decision:
        """Takes, and retries for up to wait seconds; returns a refusal if the charge cannot pass within them."""
        end = time.monotonic() + wait
        while True:
            d = self.take(limit, key, cost, keep, **more)
            if d or d.retry_after_ms is None or d.retry_after_ms / 1000 > end - time.monotonic():
                return d
            time.sleep(max(d.retry_after_ms / 1000, 0.001))

    @contextlib.contextmanager
    def limited(self, limit: Which, key=None, cost=None, keep=None, wait: float = 0, **more: Any):
        """Runs a block, or as a decorator a function, when it is admitted, else raises Refused."""
        d = self.wait(limit, key, cost, keep, wait, **more)
        if not d:
            raise Refused(d)
        yield d

    @contextlib.contextmanager
    def holding(self, limit: Which, key=None, cost=None):
        """Holds a concurrency limit during a block: renews it in the background, and releases it at the end."""
        d = self.acquire(limit, key, cost)
        if not d:
            raise Refused(d)
        over = threading.Event()
        def renew() -> None:
            while not over.wait(d.ttl_ms / 3000):
                with contextlib.suppress(Error):
                    self.renew(d.held)
        threading.Thread(target=renew, daemon=True).start()
        try:
            yield d
        finally:
            over.set()
            with contextlib.suppress(Error):  # the lease ends by itself after its ttl
                self.release(d.held)
