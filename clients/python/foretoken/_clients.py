"""Client and AsyncClient: how each waits for what its connection brings."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Iterator, Optional, Sequence, Union, cast

import zmq

from ._answers import ForetokenTimeout, Piece, Reply, Stream, checked, reply_of
from ._connection import CANCEL_PATIENCE_S, Connection, Exchange
from ._requests import Messages, Prompt, op_map, stream_map, tokenize_map, whole_map
from .messages import Parameters, StatusReply

if TYPE_CHECKING:
    from typing_extensions import Unpack

ANSWER_LOOK_S = 0.005  # between two looks for the answers to cancels


class Client(Connection):
    """Blocking client, of one thread. Streams may be read in turns: each gets its own pieces."""

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def generate(self, prompt: Prompt, **parameters: Unpack[Parameters]) -> Reply:
        """The whole answer. Raises ForetokenError. A call that any other exception ends cancels its request."""
        return reply_of(self._answer(whole_map(prompt, parameters)))

    def stream(self, prompt: Prompt, **parameters: Unpack[Parameters]) -> Iterator[Piece]:
        """Pieces as they come; afterwards `last_reply` is the whole answer. Leaving early cancels the request."""
        return self._pieces(stream_map(prompt, parameters))

    def tokenize(self, prompt: Union[str, Messages], *, model: Optional[str] = None, add_special_tokens: Optional[bool] = None,
                 add_generation_prompt: Optional[bool] = None) -> list[int]:
        """The token ids of a prompt, as generate() would use them."""
        answer = self._answer(tokenize_map(prompt, model=model, add_special_tokens=add_special_tokens,
                                           add_generation_prompt=add_generation_prompt))
        return list(answer["token_ids"])

    def detokenize(self, token_ids: Sequence[int], *, model: Optional[str] = None, skip_special_tokens: Optional[bool] = None) -> str:
        """The text of token ids."""
        answer = self._answer(op_map("detokenize", token_ids=token_ids, model=model, skip_special_tokens=skip_special_tokens))
        return str(answer["text"])

    def status(self) -> StatusReply:
        """Every service, as `foretoken ps` shows it."""
        return cast(StatusReply, self._answer(op_map("status")))

    def metrics(self) -> str:
        """Prometheus text of all services."""
        return str(self._answer(op_map("metrics"))["metrics_text"])

    def close(self) -> None:
        """What is under way ends with an error. Waits up to a second for the answers to cancels, so that these are not lost."""
        end = time.monotonic() + CANCEL_PATIENCE_S
        try:
            while self._awaits_cancels() and (left_s := end - time.monotonic()) > 0:
                self._wait(left_s)
        finally:
            super().close()

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        exchange = self._ask(request, lambda: None)
        cancel = "op" not in request
        try:
            return self._next(exchange)
        except ForetokenTimeout:  # the caller may ask again under the same id
            cancel = False
            raise
        finally:
            self._leave(exchange, cancel=cancel)

    def _pieces(self, request: dict[str, Any]) -> Iterator[Piece]:
        exchange, collected = self._ask(request, lambda: None), Stream()
        try:
            while collected.reply is None:
                piece = collected.take(self._next(exchange))
                if piece is not None:
                    yield piece
        finally:
            self._leave(exchange, cancel=True)
        self.last_reply = collected.reply

    def _next(self, exchange: Exchange) -> dict[str, Any]:
        while not exchange.answers:
            left_s = exchange.deadline - time.monotonic()
            if left_s <= 0:
                raise self._expired(exchange)
            self._wait(left_s)
        return checked(exchange.answers.popleft())

    def _wait(self, left_s: float) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        poller.poll(1 + int(1000 * min(left_s, 3600)))
        self._turn()

    def _recover(self, pause_s: float) -> None:
        time.sleep(pause_s)
        self._open()


class AsyncClient(Connection):
    """The same for asyncio, of one event loop: any number of calls at once."""

    _loop: Optional[asyncio.AbstractEventLoop] = None
    _reopening: Optional[asyncio.TimerHandle] = None

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        end = time.monotonic() + CANCEL_PATIENCE_S
        try:
            while self._awaits_cancels() and time.monotonic() < end:
                await asyncio.sleep(ANSWER_LOOK_S)
                self._turn()  # no loop watches the sockets of a client that made no request
        finally:
            self.close()

    async def generate(self, prompt: Prompt, **parameters: Unpack[Parameters]) -> Reply:
        return reply_of(await self._answer(whole_map(prompt, parameters)))

    def stream(self, prompt: Prompt, **parameters: Unpack[Parameters]) -> AsyncIterator[Piece]:
        return self._pieces(stream_map(prompt, parameters))

    async def tokenize(self, prompt: Union[str, Messages], *, model: Optional[str] = None, add_special_tokens: Optional[bool] = None,
                       add_generation_prompt: Optional[bool] = None) -> list[int]:
        answer = await self._answer(tokenize_map(prompt, model=model, add_special_tokens=add_special_tokens,
                                                 add_generation_prompt=add_generation_prompt))
        return list(answer["token_ids"])

    async def detokenize(self, token_ids: Sequence[int], *, model: Optional[str] = None,
                         skip_special_tokens: Optional[bool] = None) -> str:
        answer = await self._answer(op_map("detokenize", token_ids=token_ids, model=model, skip_special_tokens=skip_special_tokens))
        return str(answer["text"])

    async def status(self) -> StatusReply:
        return cast(StatusReply, await self._answer(op_map("status")))

    async def metrics(self) -> str:
        return str((await self._answer(op_map("metrics")))["metrics_text"])

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        ready = asyncio.Event()
        exchange = self._ask(request, ready.set)
        cancel = "op" not in request
        try:
            return await self._next(exchange, ready)
        except ForetokenTimeout:  # the caller may ask again under the same id
            cancel = False
            raise
        finally:
            self._leave(exchange, cancel=cancel)

    async def _pieces(self, request: dict[str, Any]) -> AsyncIterator[Piece]:
        ready = asyncio.Event()
        exchange, collected = self._ask(request, ready.set), Stream()
        try:
            while collected.reply is None:
                piece = collected.take(await self._next(exchange, ready))
                if piece is not None:
                    yield piece
        finally:
            self._leave(exchange, cancel=True)
        self.last_reply = collected.reply

    async def _next(self, exchange: Exchange, ready: asyncio.Event) -> dict[str, Any]:
        while not exchange.answers:
            left_s = exchange.deadline - time.monotonic()
            if left_s <= 0:
                raise self._expired(exchange)
            ready.clear()
            try:
                await asyncio.wait_for(ready.wait(), min(left_s, 3600))
            except asyncio.TimeoutError:
                pass
        return checked(exchange.answers.popleft())

    def _ask(self, request: dict[str, Any], wake: Callable[[], None]) -> Exchange:
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
