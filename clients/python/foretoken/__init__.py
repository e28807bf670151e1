"""A client for Foretoken: text in, the target's exact words out, over ZeroMQ and msgpack.

    from foretoken import Client
    with Client("tcp://127.0.0.1:5555") as client:
        print(client.generate("Once upon a time", max_tokens=64).text)
        for piece in client.stream("Once upon a time", max_tokens=64):
            print(piece.text, end="", flush=True)

Needs pyzmq and msgpack. A Client belongs to one thread; an AsyncClient to one event loop.
Every keyword of a request is described in docs/reference/client.md and passed on as it is.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, AsyncIterator, Iterator, Optional, Sequence, Union

import msgpack
import zmq

DEFAULT_ENDPOINT = "tcp://127.0.0.1:5555"
DEFAULT_TIMEOUT_S = 600.0
MAX_REQUEST_BYTES = 1 << 20  # the router's socket drops a larger one without a word
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
    """A part of a streamed answer. `accepted` of its tokens had been guessed ahead."""

    text: str
    token_ids: list[int]
    accepted: int = 0
    logprobs: list[dict] = field(default_factory=list)


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

    @property
    def speculative_decoding(self) -> dict[str, Any]:
        return self.metrics.get("speculative_decoding", {})


def request_map(prompt: Prompt, parameters: dict[str, Any]) -> dict[str, Any]:
    """The map that travels: a string is a prompt, dicts are chat messages, integers are token ids."""
    request = {key: value for key, value in parameters.items() if value is not None}
    if request.get("proposer") == "prediction" and not request.get("prediction"):
        raise ForetokenError("invalid_value", "the prediction proposer needs the expected answer", "prediction")
    if isinstance(prompt, str):
        request["prompt"] = prompt
    elif len(prompt) > 0 and isinstance(prompt[0], dict):
        request["messages"] = list(prompt)
    else:
        request["token_ids"] = list(prompt)
    request.setdefault("request_id", os.urandom(16))
    return request


def id_text(request_id: Union[bytes, str]) -> str:
    """The id as answers spell it. An id the router could not read would never be answered under it."""
    text = request_id.hex() if isinstance(request_id, bytes) else str(request_id).lower()
    if len(text) != 32 or not set(text) <= set("0123456789abcdef"):
        raise ForetokenError("invalid_value", "request_id must be 16 bytes or 32 hexadecimal digits", "request_id")
    return text


def pack_request(request: dict[str, Any]) -> bytes:
    data = msgpack.packb(request)
    if len(data) > MAX_REQUEST_BYTES:
        raise ForetokenError("invalid_value", f"the request has {len(data)} bytes; the limit is {MAX_REQUEST_BYTES}")
    return data


def read_answer(data: bytes) -> dict[str, Any]:
    answer = msgpack.unpackb(data, raw=False)
    if "error" in answer:
        error = answer["error"]
        raise ForetokenError(error.get("code", "internal"), error.get("message", ""), error.get("param") or "",
                             error.get("retry_after_ms", 0))
    return answer


def reply_of(answer: dict[str, Any], text: str = "", token_ids: Sequence[int] = (), logprobs: Sequence[dict] = ()) -> Reply:
    return Reply(
        id=answer["id"], text=text + answer["text"], token_ids=[*token_ids, *answer["token_ids"]],
        finish_reason=answer["finish_reason"], stop_reason=answer.get("stop_reason"), usage=answer["usage"],
        metrics=answer["metrics"], model=answer.get("model", ""),
        logprobs=[*logprobs, *answer.get("logprobs", [])], system_fingerprint=answer.get("system_fingerprint", ""))


def piece_of(answer: dict[str, Any]) -> Piece:
    return Piece(answer["text"], list(answer["token_ids"]), answer.get("accepted", 0), answer.get("logprobs", []))


def connected(socket: Any, endpoint: str, curve: Optional[CurveKeys]) -> Any:
    socket.setsockopt(zmq.LINGER, 0)
    if curve is not None:
        keys = [key.encode() if isinstance(key, str) else key for key in curve]  # as a key file has them, or as pyzmq does
        socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = keys
    socket.connect(endpoint)
    return socket


class _Stream:
    """Keeps what pieces carried, so that the reply at the end is whole."""

    def __init__(self) -> None:
        self.text, self.token_ids, self.logprobs = "", [], []
        self.reply: Optional[Reply] = None

    def take(self, answer: dict[str, Any]) -> Optional[Piece]:
        last = answer.get("done", True)
        piece = piece_of(answer)
        if last:
            self.reply = reply_of(answer, self.text, self.token_ids, self.logprobs)
        self.text += piece.text
        self.token_ids += piece.token_ids
        self.logprobs += piece.logprobs
        return piece if piece.text or piece.token_ids or not last else None


class Client:
    """Blocking client: one DEALER socket, one request at a time."""

    def __init__(self, endpoint: str = DEFAULT_ENDPOINT, timeout_s: float = DEFAULT_TIMEOUT_S,
                 curve: Optional[CurveKeys] = None) -> None:
        self._timeout_s = timeout_s
        self._socket = connected(zmq.Context.instance().socket(zmq.DEALER), endpoint, curve)
        self.last_reply: Optional[Reply] = None  # of the last stream that was read to its end

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def generate(self, prompt: Prompt, **parameters: Any) -> Reply:
        """The whole answer. Raises ForetokenError."""
        request = request_map(prompt, parameters)
        return reply_of(next(self._exchange(request)))

    def stream(self, prompt: Prompt, **parameters: Any) -> Iterator[Piece]:
        """Pieces as they come; afterwards `last_reply` is the whole answer. Leaving early cancels the request."""
        request = request_map(prompt, {**parameters, "stream": True})
        collected = _Stream()
        try:
            for answer in self._exchange(request):
                piece = collected.take(answer)
                if piece is not None:
                    yield piece
        finally:
            if collected.reply is None:
                self.cancel(request["request_id"])
        self.last_reply = collected.reply

    def status(self) -> dict[str, Any]:
        """Every service, as `foretoken ps` shows it."""
        return next(self._exchange({"op": "status", "request_id": os.urandom(16)}))

    def cancel(self, request_id: bytes) -> None:
        self._socket.send(msgpack.packb({"op": "cancel", "request_id": request_id}))

    def _exchange(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        own_id = id_text(request["request_id"])
        self._socket.send(pack_request(request))
        deadline = time.monotonic() + self._timeout_s
        while True:
            if not self._socket.poll(max(0, int(1000 * (deadline - time.monotonic())))):
                raise ForetokenTimeout("deadline_exceeded", f"no answer within {self._timeout_s} s")
            data = self._socket.recv_multipart()[-1]
            if msgpack.unpackb(data, raw=False).get("id") not in (own_id, "", None):
                continue  # the end of an earlier request that was left early
            answer = read_answer(data)
            yield answer
            if answer.get("done", True):
                return


class AsyncClient:
    """The same for asyncio: one socket, one request at a time."""

    def __init__(self, endpoint: str = DEFAULT_ENDPOINT, timeout_s: float = DEFAULT_TIMEOUT_S,
                 curve: Optional[CurveKeys] = None) -> None:
        import zmq.asyncio

        self._timeout_s = timeout_s
        self._socket = connected(zmq.asyncio.Context.instance().socket(zmq.DEALER), endpoint, curve)
        self.last_reply: Optional[Reply] = None

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._socket.close()

    async def generate(self, prompt: Prompt, **parameters: Any) -> Reply:
        async for answer in self._exchange(request_map(prompt, parameters)):
            return reply_of(answer)
        raise ForetokenError("internal", "the service closed the answer without one")

    async def stream(self, prompt: Prompt, **parameters: Any) -> AsyncIterator[Piece]:
        request = request_map(prompt, {**parameters, "stream": True})
        collected = _Stream()
        try:
            async for answer in self._exchange(request):
                piece = collected.take(answer)
                if piece is not None:
                    yield piece
        finally:
            if collected.reply is None:
                await self._socket.send(msgpack.packb({"op": "cancel", "request_id": request["request_id"]}))
        self.last_reply = collected.reply

    async def _exchange(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        own_id = id_text(request["request_id"])
        await self._socket.send(pack_request(request))
        deadline = time.monotonic() + self._timeout_s
        while True:
            if not await self._socket.poll(max(0, int(1000 * (deadline - time.monotonic())))):
                raise ForetokenTimeout("deadline_exceeded", f"no answer within {self._timeout_s} s")
            data = (await self._socket.recv_multipart())[-1]
            if msgpack.unpackb(data, raw=False).get("id") not in (own_id, "", None):
                continue
            answer = read_answer(data)
            yield answer
            if answer.get("done", True):
                return
