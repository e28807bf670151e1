"""A client for Foretoken: text in, the target's exact words out, over ZeroMQ and msgpack.

    from foretoken import Client
    with Client("tcp://127.0.0.1:5555") as client:
        print(client.generate("Once upon a time", max_tokens=64).text)
        for piece in client.stream("Once upon a time", max_tokens=64):
            print(piece.text, end="", flush=True)

Needs pyzmq and msgpack. A Client belongs to one thread; an AsyncClient to one event loop, and any number of its calls may
be under way at once. A connection that breaks is made again and what is unanswered is asked again under the same
request_id, which gives the same text: it only takes longer. timeout_s is the bound of each call.
Every keyword of a request is described in docs/reference/client.md and passed on as it is.
"""

from __future__ import annotations

import asyncio
import collections.abc
import os
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, AsyncIterator, Callable, Iterator, Optional, Sequence, Union

import msgpack
import zmq
from zmq.utils.monitor import parse_monitor_message

DEFAULT_ENDPOINT = "tcp://127.0.0.1:5555"  # unless FORETOKEN_BUS_CLIENT names another
DEFAULT_TIMEOUT_S = 600.0
MAX_REQUEST_BYTES = 1 << 20  # the router's socket drops a larger one without a word
MAX_WAITING_PIECES = 1024  # of one stream that is not read; later ones are added to the last
MAX_LEFT_IDS = 4096        # requests left early whose late answers are known as such
REOPEN_PAUSE_S = 0.1       # least time between two connections
MOST_CUT_SHORT = 3         # connections in a row that end in the greeting; one or two may be of a router that was just ended
MECHANISM_MISMATCH = 0x11000002  # ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH: one side has keys and the other has none
WATCHED_EVENTS = (zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
                  | zmq.EVENT_HANDSHAKE_FAILED_AUTH)
CurveKeys = tuple[Union[bytes, str], Union[bytes, str], Union[bytes, str]]  # the router's public key, one's own public and secret key
Prompt = Union[str, Sequence[int], Sequence[dict]]


class ForetokenError(Exception):
    """The service refused or could not finish a request."""

    def __init__(self, code: str, message: str, param: str = "", retry_after_ms: int = 0) -> None:
        super().__init__(f"{code}: {message}" + (f" ({param})" if param else ""))
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_ms = retry_after_ms


class ForetokenTimeout(ForetokenError):
    """No answer in time; whether the request was done is unknown, and a retry under its id is harmless."""


@dataclass
class Piece:
    """A part of a streamed answer. `accepted` of its tokens had been guessed ahead; `position` tokens came before it.

    `prompt_logprobs` are in the first one, if they were asked for.
    """

    text: str
    token_ids: list[int]
    accepted: int = 0
    logprobs: list[dict] = field(default_factory=list)
    position: int = 0
    prompt_logprobs: list[dict] = field(default_factory=list)


@dataclass
class Reply:
    """A whole answer."""

    id: str
    text: str
    token_ids: list[int]
    finish_reason: str
    stop_reason: Union[str, int, None]
    usage: dict[str, int]
    metrics: dict[str, Any]
    model: str
    logprobs: list[dict] = field(default_factory=list)
    system_fingerprint: str = ""
    prompt_logprobs: list[dict] = field(default_factory=list)

    @property
    def speculative_decoding(self) -> dict[str, Any]:
        return self.metrics.get("speculative_decoding", {})


def prompt_entry(prompt: Prompt) -> tuple[str, Any]:
    """The key a prompt travels under: a string is a prompt, dicts are chat messages, integers are token ids."""
    if isinstance(prompt, str):
        return "prompt", prompt
    accepted = "a prompt is a string, a list of messages (dicts with role and content) or a list of token ids (integers)"
    if not isinstance(prompt, collections.abc.Sequence) or isinstance(prompt, (bytes, bytearray, memoryview)):
        raise TypeError(f"{accepted}; this one is of type {type(prompt).__name__}")
    items = list(prompt)
    kind = dict if items and isinstance(items[0], dict) else int
    for i, item in enumerate(items):
        if not isinstance(item, kind) or isinstance(item, bool):
            raise TypeError(f"{accepted}; item {i} of this one is of type {type(item).__name__}")
    return ("messages" if kind is dict else "token_ids"), items


def request_map(prompt: Prompt, parameters: dict[str, Any]) -> dict[str, Any]:
    """The map that travels, the id first: the router names it in an error even if it cannot read the rest."""
    given = {key: value for key, value in parameters.items() if value is not None}
    key, value = prompt_entry(prompt)
    request = {"request_id": given.pop("request_id") if "request_id" in given else os.urandom(16), key: value, **given}
    if request.get("proposer") == "prediction" and not request.get("prediction"):
        raise ForetokenError("invalid_value", "the prediction proposer needs the expected answer", "prediction")
    return request


def whole_map(prompt: Prompt, parameters: dict[str, Any]) -> dict[str, Any]:
    if parameters.get("stream"):
        raise ValueError("generate() returns the whole answer; for pieces as they come call stream()")
    return request_map(prompt, parameters)


def stream_map(prompt: Prompt, parameters: dict[str, Any]) -> dict[str, Any]:
    return request_map(prompt, {**parameters, "stream": True})


def id_text(request_id: Union[bytes, str]) -> str:
    """The id as answers spell it. An id the router could not read would never be answered under it."""
    text = request_id.hex() if isinstance(request_id, bytes) else str(request_id).lower()
    if len(text) != 32 or not set(text) <= set("0123456789abcdef"):
        raise ForetokenError("invalid_value", "request_id must be 16 bytes or 32 hexadecimal digits", "request_id")
    return text


def pack_request(request: dict[str, Any]) -> bytes:
    try:
        data = msgpack.packb(request)
    except (TypeError, ValueError, OverflowError):
        for key, value in request.items():
            try:
                msgpack.packb(value)
            except (TypeError, ValueError, OverflowError) as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(f"{key} cannot be sent: {error}") from error
        raise
    if len(data) > MAX_REQUEST_BYTES:
        raise ForetokenError("invalid_value", f"the request has {len(data)} bytes; the limit is {MAX_REQUEST_BYTES}")
    return data


def unpack_answer(data: bytes) -> dict[str, Any]:
    try:
        answer = msgpack.unpackb(data, raw=False)
        if isinstance(answer, dict):
            return answer
    except (ValueError, msgpack.exceptions.UnpackException):
        pass
    return error_answer("malformed", "an answer is not a msgpack map")


def error_answer(code: str, message: str) -> dict[str, Any]:
    return {"id": "", "done": True, "error": {"code": code, "message": message}}


def checked(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        error = answer["error"]
        raise ForetokenError(error.get("code", "internal"), error.get("message", ""), error.get("param") or "",
                             error.get("retry_after_ms", 0))
    return answer


def reply_of(answer: dict[str, Any], text: str = "", token_ids: Sequence[int] = (), logprobs: Sequence[dict] = (),
             prompt_logprobs: Sequence[dict] = ()) -> Reply:
    return Reply(
        id=answer["id"], text=text + answer["text"], token_ids=[*token_ids, *answer["token_ids"]],
        finish_reason=answer["finish_reason"], stop_reason=answer.get("stop_reason"), usage=answer["usage"],
        metrics=answer["metrics"], model=answer.get("model", ""),
        logprobs=[*logprobs, *answer.get("logprobs", [])], system_fingerprint=answer.get("system_fingerprint", ""),
        prompt_logprobs=[*(prompt_logprobs or answer.get("prompt_logprobs", []))])


def is_last(answer: dict[str, Any]) -> bool:
    return bool(answer.get("done", True))


def answers_a_cancel(answer: dict[str, Any]) -> bool:
    """Each cancel gets one: the request's end, or an error because none of that id runs."""
    error = answer.get("error") or {}
    return answer.get("finish_reason") == "cancelled" or (error.get("code"), error.get("param")) == ("not_found", "request_id")


def piece_of(answer: dict[str, Any]) -> Piece:
    return Piece(answer["text"], list(answer["token_ids"]), answer.get("accepted", 0), answer.get("logprobs", []),
                 answer.get("position") or 0, answer.get("prompt_logprobs", []))


class _Stream:
    """Keeps what pieces carried, so that the reply at the end is whole."""

    def __init__(self) -> None:
        self.text = ""
        self.token_ids: list[int] = []
        self.logprobs: list[dict] = []
        self.prompt_logprobs: list[dict] = []
        self.reply: Optional[Reply] = None

    def take(self, answer: dict[str, Any]) -> Optional[Piece]:
        last = is_last(answer)
        piece = piece_of(answer)
        if last:
            self.reply = reply_of(answer, self.text, self.token_ids, self.logprobs, self.prompt_logprobs)
        self.text += piece.text
        self.token_ids += piece.token_ids
        self.logprobs += piece.logprobs
        self.prompt_logprobs = self.prompt_logprobs or piece.prompt_logprobs
        return piece if piece.text or piece.token_ids or not last else None


class _Exchange:
    """One request under way: what was sent, and what came and is not read yet."""

    def __init__(self, request: dict[str, Any], timeout_s: float, wake: Callable[[], None]) -> None:
        self.id, self.data = id_text(request["request_id"]), pack_request(request)
        self.timeout_s, self.deadline = timeout_s, time.monotonic() + timeout_s
        self.wake = wake
        self.answers: deque[dict[str, Any]] = deque()
        self.done = False
        # Requests of this id were left and cancelled: what comes before the answers to that is theirs.
        self.cancels_unanswered = 0
        self._text, self._tokens = bytearray(), []  # that came
        self._told = (0, 0)  # bytes and tokens told since it was last asked; of routers that give no positions

    def asked_again(self) -> None:
        self._told = (0, 0)
        self.cancels_unanswered = 0

    def take(self, answer: dict[str, Any]) -> None:
        if self.cancels_unanswered:
            self.cancels_unanswered -= answers_a_cancel(answer)
            return
        self.done = is_last(answer)
        if "error" not in answer and not self._cut(answer):
            return
        last = self.answers[-1] if len(self.answers) >= MAX_WAITING_PIECES else None
        if last is None or self.done:
            self.answers.append(answer)
        else:
            last.update({key: last.get(key, type(answer[key])()) + answer[key]
                         for key in ("text", "token_ids", "accepted", "logprobs") if key in answer})
        self.wake()

    def _cut(self, answer: dict[str, Any]) -> bool:
        """Takes away what has come before; false if nothing is left of a piece. Told again is told from the beginning."""
        text, tokens = (answer.get("text") or "").encode(), answer.get("token_ids") or []
        offset, position = answer.get("offset"), answer.get("position")
        if offset is None or position is None:
            offset, position = self._told
            self._told = offset + len(text), position + len(tokens)
        had_bytes, had_tokens = len(self._text) - offset, len(self._tokens) - position
        if had_bytes < 0 or had_tokens < 0:  # of a telling before this one, whose beginning is not ours
            if self.done:
                self._fail(answer, "a part of the answer is missing")
            return self.done
        n_bytes, n_tokens = min(had_bytes, len(text)), min(had_tokens, len(tokens))
        if self._text[offset:offset + n_bytes] != text[:n_bytes] or self._tokens[position:position + n_tokens] != tokens[:n_tokens]:
            self._fail(answer, "the request asked again began with another text")
            return True
        self._text += text[n_bytes:]
        self._tokens += tokens[n_tokens:]
        if not n_bytes and not n_tokens:
            return True
        answer.update(text=text[n_bytes:].decode(), token_ids=tokens[n_tokens:], position=position + n_tokens)
        if "logprobs" in answer:
            answer["logprobs"] = answer["logprobs"][n_tokens:]
        answer.pop("prompt_logprobs", None)  # came with what was cut
        if "accepted" in answer:
            answer["accepted"] = min(answer["accepted"], len(tokens) - n_tokens)
        return self.done or bool(answer["text"] or answer["token_ids"])

    def _fail(self, answer: dict[str, Any], message: str) -> None:
        answer.update(error_answer("internal", message))
        self.done = True

    def expired(self) -> "ForetokenTimeout":
        return ForetokenTimeout("deadline_exceeded", f"no answer within {self.timeout_s} s")


class _Connection:
    """What both clients are: a DEALER socket, and the requests under way by id.

    A socket lives as long as its connection, so each request is said once on each, and answers are of that saying.
    """

    def __init__(self, endpoint: Optional[str] = None, timeout_s: float = DEFAULT_TIMEOUT_S,
                 curve: Optional[CurveKeys] = None) -> None:
        self._endpoint = endpoint or os.environ.get("FORETOKEN_BUS_CLIENT") or DEFAULT_ENDPOINT
        self._timeout_s = timeout_s
        # As a key file has them, or as pyzmq does.
        self._curve = curve and [key.encode() if isinstance(key, str) else key for key in curve]
        self._under_way: dict[str, _Exchange] = {}
        self._left: OrderedDict[str, int] = OrderedDict()  # how many cancels of each are unanswered
        self._socket: Any = None
        self._closed = False
        self._refused = False  # and therefore without a socket, until the next request
        self.last_reply: Optional[Reply] = None  # of the last stream that was read to its end
        self._open()

    def cancel(self, request_id: Union[bytes, str]) -> None:
        """Ends a request, which is answered with what it has."""
        self._remember_left(id_text(request_id), cancels=1)
        self._send(msgpack.packb({"request_id": request_id, "op": "cancel"}))

    def close(self) -> None:
        """What is under way ends with an error."""
        self._closed = True
        self._shut()
        for exchange in list(self._under_way.values()):
            if not exchange.done:
                exchange.take(error_answer("cancelled", "the client was closed"))

    def _open(self) -> None:
        socket: Any = zmq.Context.instance().socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, 0)  # sending never waits: what may wait here is what the caller asked
        if self._curve:
            socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = self._curve
        self._monitor = socket.get_monitor_socket(WATCHED_EVENTS)
        self._established, self._opened_at, self._n_cut_short, self._refused = False, time.monotonic(), 0, False
        self._socket = socket
        socket.connect(self._endpoint)
        self._left = OrderedDict.fromkeys(self._left, 0)  # nothing of the connection before comes any more
        for exchange in self._under_way.values():
            exchange.asked_again()
            socket.send(exchange.data)

    def _shut(self) -> None:
        if self._socket is not None:
            self._socket.disable_monitor()
            self._monitor.close(0)
            self._socket.close(0)
            self._socket = None

    def _send(self, data: bytes) -> None:
        if self._socket is not None:
            self._socket.send(data)

    def _ask(self, request: dict[str, Any], wake: Callable[[], None]) -> _Exchange:
        exchange = _Exchange(request, self._timeout_s, wake)
        if self._closed:
            raise ForetokenError("cancelled", "the client was closed")
        if exchange.id in self._under_way:
            raise ForetokenError("invalid_value", "this client has a request of this id under way", "request_id")
        self._turn()  # a connection may have broken since the last request
        exchange.cancels_unanswered = self._left.pop(exchange.id, 0)
        self._under_way[exchange.id] = exchange
        if self._refused:  # the router may be another one by now
            self._reconnect()
        else:
            self._send(exchange.data)
        return exchange

    def _leave(self, exchange: _Exchange, cancel: bool) -> None:
        self._under_way.pop(exchange.id, None)
        if exchange.done:
            return
        self._remember_left(exchange.id, cancels=exchange.cancels_unanswered)
        if cancel:
            self.cancel(exchange.id)

    def _remember_left(self, request_id: str, cancels: int) -> None:
        self._left[request_id] = self._left.get(request_id, 0) + cancels
        if len(self._left) > MAX_LEFT_IDS:
            self._left.popitem(last=False)

    def _turn(self) -> None:
        """Hands on what has arrived, and looks whether the connection still stands. Never waits for the network."""
        if self._socket is None:
            return
        for frames in self._received(self._socket):
            self._take(unpack_answer(frames[-1]))
        lost, refusal = False, ""
        for frames in self._received(self._monitor):
            event = parse_monitor_message(frames)
            if event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._established, self._n_cut_short = True, 0
            elif event["event"] != zmq.EVENT_DISCONNECTED:
                refusal = self._why_refused(event["event"], event["value"])
            elif self._established:
                lost = True
            else:  # nothing was sent, and ZeroMQ tries again
                self._n_cut_short += 1
        if self._n_cut_short >= MOST_CUT_SHORT and not refusal:
            refusal = "ends each connection in the greeting: it " + (
                "has no keys, has another one than curve= says, or does not list this client's" if self._curve else
                "takes only clients with a key (curve=)") + ", or it is no router"
        if refusal:
            self._refuse(f"the router at {self._endpoint} {refusal}")
        elif lost:
            self._shut()
            self._recover(max(0.0, self._opened_at + REOPEN_PAUSE_S - time.monotonic()))

    def _why_refused(self, event: int, value: int) -> str:
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            return "refuses this client's key: its bus.curve_peers must list the key as client:NAME"
        if value != MECHANISM_MISMATCH:
            return "does not understand this client's greeting, or does not have the public key that curve= says"
        if self._curve:
            return "has no keys and takes no client with one: ask it without curve=, or start it with a key"
        return "takes only clients with a key: pass curve=(its public key, one's own public key, one's own secret key)"

    def _refuse(self, message: str) -> None:
        """Each further try would end in the same way: what is under way ends with an error."""
        self._shut()
        self._refused = True
        for exchange in list(self._under_way.values()):
            if not exchange.done:
                exchange.asked_again()
                exchange.take(error_answer("config", message))

    def _reconnect(self) -> None:
        self._open()

    @staticmethod
    def _received(socket: Any) -> Iterator[list[bytes]]:
        while True:
            try:
                yield socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return

    def _recover(self, pause_s: float) -> None:
        raise NotImplementedError

    def _take(self, answer: dict[str, Any]) -> None:
        answer_id = answer.get("id") or ""
        exchange = self._under_way.get(answer_id)
        if self._left.get(answer_id) and answers_a_cancel(answer) and not (exchange and exchange.cancels_unanswered):
            self._left[answer_id] -= 1
        if exchange is None and "error" in answer and answer_id not in self._left and len(self._under_way) == 1:
            exchange = next(iter(self._under_way.values()))  # the router could not read the id of what it refuses
        if exchange is not None and not exchange.done:
            exchange.take(answer)


class Client(_Connection):
    """Blocking client, of one thread. Streams may be read in turns: each gets its own pieces."""

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def generate(self, prompt: Prompt, **parameters: Any) -> Reply:
        """The whole answer. Raises ForetokenError."""
        return reply_of(self._answer(whole_map(prompt, parameters)))

    def stream(self, prompt: Prompt, **parameters: Any) -> Iterator[Piece]:
        """Pieces as they come; afterwards `last_reply` is the whole answer. Leaving early cancels the request."""
        return self._pieces(stream_map(prompt, parameters))

    def status(self) -> dict[str, Any]:
        """Every service, as `foretoken ps` shows it."""
        return self._answer({"request_id": os.urandom(16), "op": "status"})

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        exchange = self._ask(request, lambda: None)
        try:
            return self._next(exchange)
        finally:
            self._leave(exchange, cancel=False)

    def _pieces(self, request: dict[str, Any]) -> Iterator[Piece]:
        exchange, collected = self._ask(request, lambda: None), _Stream()
        try:
            while collected.reply is None:
                piece = collected.take(self._next(exchange))
                if piece is not None:
                    yield piece
        finally:
            self._leave(exchange, cancel=True)
        self.last_reply = collected.reply

    def _next(self, exchange: _Exchange) -> dict[str, Any]:
        while not exchange.answers:
            left_s = exchange.deadline - time.monotonic()
            if left_s <= 0:
                raise exchange.expired()
            poller = zmq.Poller()
            poller.register(self._socket, zmq.POLLIN)
            poller.register(self._monitor, zmq.POLLIN)
            poller.poll(1 + int(1000 * min(left_s, 3600)))
            self._turn()
        return checked(exchange.answers.popleft())

    def _recover(self, pause_s: float) -> None:
        time.sleep(pause_s)
        self._open()


class AsyncClient(_Connection):
    """The same for asyncio, of one event loop: any number of calls at once."""

    _loop: Optional[asyncio.AbstractEventLoop] = None
    _reopening: Optional[asyncio.TimerHandle] = None

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    async def generate(self, prompt: Prompt, **parameters: Any) -> Reply:
        return reply_of(await self._answer(whole_map(prompt, parameters)))

    def stream(self, prompt: Prompt, **parameters: Any) -> AsyncIterator[Piece]:
        return self._pieces(stream_map(prompt, parameters))

    async def status(self) -> dict[str, Any]:
        return await self._answer({"request_id": os.urandom(16), "op": "status"})

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        ready = asyncio.Event()
        exchange = self._ask(request, ready.set)
        try:
            return await self._next(exchange, ready)
        finally:
            self._leave(exchange, cancel=False)

    async def _pieces(self, request: dict[str, Any]) -> AsyncIterator[Piece]:
        ready = asyncio.Event()
        exchange, collected = self._ask(request, ready.set), _Stream()
        try:
            while collected.reply is None:
                piece = collected.take(await self._next(exchange, ready))
                if piece is not None:
                    yield piece
        finally:
            self._leave(exchange, cancel=True)
        self.last_reply = collected.reply

    async def _next(self, exchange: _Exchange, ready: asyncio.Event) -> dict[str, Any]:
        while not exchange.answers:
            left_s = exchange.deadline - time.monotonic()
            if left_s <= 0:
                raise exchange.expired()
            ready.clear()
            try:
                await asyncio.wait_for(ready.wait(), min(left_s, 3600))
            except asyncio.TimeoutError:
                pass
        return checked(exchange.answers.popleft())

    def _ask(self, request: dict[str, Any], wake: Callable[[], None]) -> _Exchange:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._watch(self._loop)
        elif self._loop is not asyncio.get_running_loop():
            raise RuntimeError("an AsyncClient belongs to one event loop, that of its first request")
        return super()._ask(request, wake)

    def _send(self, data: bytes) -> None:
        super()._send(data)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon(self._turn)  # sending may have used up the sign that something arrived

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        for socket in (self._socket, self._monitor):
            loop.add_reader(socket.getsockopt(zmq.FD), self._turn)
        loop.call_soon(self._turn)

    def _shut(self) -> None:
        if self._reopening is not None:
            self._reopening.cancel()
        if self._socket is not None and self._loop is not None and not self._loop.is_closed():
            for socket in (self._socket, self._monitor):
                self._loop.remove_reader(socket.getsockopt(zmq.FD))
        super()._shut()

    def _recover(self, pause_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._reopening = loop.call_later(pause_s, self._reopen, loop)

    def _reopen(self, loop: asyncio.AbstractEventLoop) -> None:
        self._open()
        self._watch(loop)

    def _reconnect(self) -> None:
        self._reopen(asyncio.get_running_loop())
