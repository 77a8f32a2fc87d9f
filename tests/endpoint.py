"""A fake model endpoint on 127.0.0.1, for real clients: it says what a script says, and keeps what it was asked.

::

    with FakeEndpoint([call("bash", command="ls"), say("Done.")]) as endpoint:
        ...  # endpoint.base_url is "http://127.0.0.1:PORT/v1"; endpoint.root has no /v1 (Anthropic's clients add it)
    endpoint.requests[0]["messages"]

It serves /v1/chat/completions, /v1/responses and /v1/messages, streamed or not as the request says, and 404 for all
else. *script* is a list of turns (the last is repeated for ever), or a function of the request that gives one; a turn
is an ``Answer`` (``say``, ``call``, ``calls``) or a ``Failure`` (``status``, ``limited``, ``HANG``, ``EMPTY``,
``MALFORMED``, ``CUT``, ``INVALID_UTF8``, ``HUGE``). A request that offers no tools while the script holds tool calls
(clients ask for a title of the session) is answered ``A title.`` and takes no turn; ``titles=False`` turns that off.

``requests`` holds every body in order, as a dict with ``path`` and ``headers`` besides. A hanging answer ends when its
client leaves or the endpoint closes. Not promised: that a body is checked; tests look at ``requests``.
"""

from __future__ import annotations

import contextlib
import json
import select
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.wire import FORMATS, Answer, Call, Wire

__all__ = [
    "CUT",
    "EMPTY",
    "HANG",
    "HUGE",
    "INVALID_UTF8",
    "MALFORMED",
    "Answer",
    "Call",
    "Failure",
    "FakeEndpoint",
    "Request",
    "call",
    "calls",
    "limited",
    "say",
    "status",
]

HUGE_BYTES = 8 * 1024 * 1024
_HANG_TICK_S = 0.05


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer that is none. ``kind``: status, hang, empty, malformed, cut, invalid_utf8 or huge.

    ``body`` is what a ``status`` says instead of the error object of the format.
    """

    kind: str
    code: int = 200
    message: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] | None = None


Turn = Answer | Failure
HANG = Failure("hang")
EMPTY = Failure("empty")
MALFORMED = Failure("malformed")
CUT = Failure("cut", message="this sentence is never fin")
INVALID_UTF8 = Failure("invalid_utf8")
HUGE = Failure("huge")


def say(text: str, **fields: Any) -> Answer:
    """A turn of text; *fields* are of Answer (``input_tokens``, ``output_tokens``)."""
    return Answer(text=text, **fields)


def call(name: str, /, **args: Any) -> Answer:
    """A turn of one tool call."""
    return Answer(calls=(Call(name, args),))


def calls(*wanted: Call, text: str = "") -> Answer:
    """A turn of several tool calls, and perhaps a word before them."""
    return Answer(text=text, calls=wanted)


def status(code: int, message: str = "the server is on fire", **headers: str) -> Failure:
    """An HTTP error with the body that the format has for it."""
    return Failure(
        "status", code, message, {name.replace("_", "-"): value for name, value in headers.items()}
    )


def limited(retry_after_s: float = 3600, message: str = "rate limit reached, try again later") -> Failure:
    """429 with every header that says when it is over."""
    left = f"{retry_after_s:g}"
    return status(
        429,
        message,
        retry_after=left,
        x_ratelimit_reset_requests=f"{left}s",
        x_ratelimit_remaining_requests="0",
    )


class Request(dict[str, Any]):
    """One request's JSON body, with where it went and its headers (lower case)."""

    path: str = ""
    headers: dict[str, str]


class FakeEndpoint:
    """The endpoint; ``with`` starts and ends it."""

    def __init__(self, script: Sequence[Turn] | Callable[[Request], Turn], *, titles: bool = True) -> None:
        self.script = script
        self.titles = titles
        self.requests: list[Request] = []
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._taken = 0
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="endpoint"
        )

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self.root}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self.close()

    def close(self) -> None:
        """Listen no more; one that was never entered then is an address where nobody is."""
        self._server.server_close()

    def turn(self, request: Request) -> Turn:
        """What is due for *request*, which is kept."""
        with self._lock:
            self.requests.append(request)
            if not isinstance(self.script, Sequence):
                return self.script(request)
            if self.titles and not request.get("tools") and self._has_calls():
                return say("A title.")
            turn = self.script[min(self._taken, len(self.script) - 1)]
            self._taken += 1
            return turn

    def _has_calls(self) -> bool:
        return any(isinstance(turn, Answer) and turn.calls for turn in self.script)  # type: ignore[union-attr]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves in the middle is what some tests are about; pytest must not see a traceback."""


def _handler(endpoint: FakeEndpoint) -> type[BaseHTTPRequestHandler]:
    return type("Handler", (_Handler,), {"endpoint": endpoint})


class _Handler(BaseHTTPRequestHandler):
    endpoint: FakeEndpoint
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""

    def do_GET(self) -> None:
        self._plain(404, b'{"error": {"message": "no such path"}}')

    do_HEAD = do_GET  # noqa: N815 - the name is the protocol's

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0]
        wire = FORMATS.get(path)
        if wire is None:
            self._plain(404, b'{"error": {"message": "no such path"}}')
            return
        body = json.loads(raw)
        request = Request(body)
        request.path = path
        request.headers = {name.lower(): value for name, value in self.headers.items()}
        turn = self.endpoint.turn(request)
        if isinstance(turn, Failure):
            self._fail(turn, wire, streamed=bool(body.get("stream")))
            return
        wants_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        turn = replace(turn, model=str(body.get("model") or turn.model), include_usage=wants_usage)
        if body.get("stream"):
            self._stream(wire, turn)
        else:
            self._plain(200, json.dumps(wire.whole(turn)).encode())

    # --- good answers -----------------------------------------------------------------------------------

    def _plain(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.send_header("connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.close_connection = True

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _event(self, name: str, data: object) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        self._chunk((f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode())

    def _stream(self, wire: Wire, answer: Answer) -> None:
        self._begin_stream()
        for name, data in wire.events(answer):
            self._event(name, data)
        if wire.end:
            self._event("", wire.end)
        self.wfile.write(b"0\r\n\r\n")

    # --- failures ---------------------------------------------------------------------------------------

    def _fail(self, failure: Failure, wire: Wire, *, streamed: bool) -> None:
        if failure.kind == "status":
            said = failure.body or wire.error(failure.code, failure.message)
            self._plain(failure.code, json.dumps(said).encode(), failure.headers)
        elif failure.kind == "hang":
            if streamed:
                self._begin_stream()
            self._hang()
        elif failure.kind == "cut":
            self._cut(wire, Answer(text=failure.message), streamed=streamed)
        elif streamed:
            self._begin_stream()
            if failure.kind != "empty":
                self._chunk(_bad(failure.kind))
            self.wfile.write(b"0\r\n\r\n")
        else:
            self._plain(200, b"" if failure.kind == "empty" else _bad(failure.kind))

    def _hang(self) -> None:
        """Say nothing more until the client leaves or the endpoint closes."""
        while not self.endpoint.closing.is_set():
            readable, _, _ = select.select([self.connection], [], [], _HANG_TICK_S)
            if readable:
                with contextlib.suppress(OSError):
                    self.connection.recv(1)
                break
        self.close_connection = True

    def _cut(self, wire: Wire, answer: Answer, *, streamed: bool) -> None:
        """Begin well, and leave in the middle of the stream or of the body."""
        if streamed:
            self._begin_stream()
            events = list(wire.events(answer))
            for name, data in events[: max(1, len(events) // 2)]:
                self._event(name, data)
            return
        body = json.dumps(wire.whole(answer)).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2])
        self.close_connection = True


def _bad(kind: str) -> bytes:
    if kind == "invalid_utf8":
        return b'data: {"id": "\xff\xfe", "choices": [{"delta": {"content": "\xed\xa0\x80"}}]}\n\n'
    if kind == "huge":
        return b'data: {"choices": [{"delta": {"content": "' + b"x" * HUGE_BYTES + b'"}}]}\n\n'
    return b'data: {"choices": [{"delta": {"cont\n\n'
