"""A connection to the router's client door, and the requests under way on it. What it needs of time and of waiting, the clients add."""

from __future__ import annotations

import contextlib
import os
import time
from collections import OrderedDict, deque
from typing import Any, Callable, Iterator, Optional, Union

import zmq
from zmq.utils.monitor import parse_monitor_message

from ._answers import ForetokenError, ForetokenTimeout, Reply, answers_a_cancel, error_answer, is_last, unpack_answer
from ._requests import id_text, pack, pack_request

DEFAULT_ENDPOINT = "tcp://127.0.0.1:5555"  # unless FORETOKEN_BUS_CLIENT names another
DEFAULT_TIMEOUT_S = 600.0
MAX_WAITING_PIECES = 1024  # of one stream that is not read; later ones are added to the last
MAX_LEFT_IDS = 4096        # requests left early whose late answers are known as such
REOPEN_PAUSE_S = 0.1       # least time between two connections
MOST_CUT_SHORT = 3         # connections in a row that end in the greeting; one or two may be of a router that was just ended
CANCEL_PATIENCE_S = 1.0    # of an end for the answers to cancels: a closed socket drops what is not sent
MECHANISM_MISMATCH = 0x11000002  # ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH: one side has keys and the other has none
WATCHED_EVENTS = (zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
                  | zmq.EVENT_HANDSHAKE_FAILED_AUTH)
CurveKeys = tuple[Union[bytes, str], Union[bytes, str], Union[bytes, str]]  # the router's public key, one's own public and secret key


def runtime_directory() -> str:
    """The folder of the services' sockets, as the services find it without a configuration file."""
    configured, first = os.environ.get("FORETOKEN_BUS_RUNTIME_DIR"), os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    if configured or os.path.isabs(first):
        return configured or first
    return f"{session}/foretoken" if os.path.isabs(session) and os.path.isdir(session) else f"/tmp/foretoken-{os.geteuid()}"


def full_endpoint(endpoint: str) -> str:
    """ipc://NAME is a file of the runtime folder, ipc:///PATH is that path; anything else stays as it is."""
    if not endpoint.startswith("ipc://") or endpoint.startswith("ipc:///"):
        return endpoint
    return f"ipc://{runtime_directory()}/{endpoint[len('ipc://'):]}"


def is_bare_ipv6(endpoint: str) -> bool:
    """Whether a tcp:// endpoint has an address of IPv6 without brackets. A source address and a semicolon may come before it."""
    address = endpoint[len("tcp://"):].rpartition(";")[2].rpartition(":")[0]
    return endpoint.startswith("tcp://") and ":" in address and not address.startswith("[")


class Exchange:
    """One request under way: what was sent, and what came and is not read yet."""

    def __init__(self, request: dict[str, Any], timeout_s: float, wake: Callable[[], None]) -> None:
        self.id, self.data = id_text(request["request_id"]), pack_request(request)
        self.timeout_s, self.deadline = timeout_s, time.monotonic() + timeout_s
        self.wake = wake
        self.answers: deque[dict[str, Any]] = deque()
        self.done = False
        # Requests of this id were left and cancelled: what comes before the answers to that is theirs.
        self.cancels_unanswered = 0
        self._text, self._tokens = bytearray(), list[int]()  # that came
        self._received = (0, 0)  # bytes and tokens since it was last sent; of routers that give no positions

    def asked_again(self) -> None:
        self._received = (0, 0)
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
                         for key in ("text", "token_ids", "accepted", "logprobs", "token_ends") if key in answer})
        self.wake()

    def _cut(self, answer: dict[str, Any]) -> bool:
        """Removes what earlier answers brought; false if a piece has nothing new. A request sent again is answered from its beginning."""
        text, tokens = (answer.get("text") or "").encode(), answer.get("token_ids") or []
        offset, position = answer.get("offset"), answer.get("position")
        if offset is None or position is None:
            offset, position = self._received
            self._received = offset + len(text), position + len(tokens)
        had_bytes, had_tokens = len(self._text) - offset, len(self._tokens) - position
        if had_bytes < 0 or had_tokens < 0:  # of an earlier sending, whose beginning did not come here
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
        for key in ("logprobs", "token_ends"):
            if key in answer:
                answer[key] = answer[key][n_tokens:]
        for key in ("prompt_logprobs", "form", "prompt_token_ids"):  # came with what was cut
            answer.pop(key, None)
        if "accepted" in answer:
            answer["accepted"] = min(answer["accepted"], len(tokens) - n_tokens)
        return self.done or bool(answer["text"] or answer["token_ids"])

    def _fail(self, answer: dict[str, Any], message: str) -> None:
        answer.update(error_answer("internal", message))
        self.done = True


class Connection:
    """What both clients are: a DEALER socket, and the requests under way by id.

    A socket lives as long as its connection, so each request is said once on each, and answers are of that saying.
    """

    def __init__(self, endpoint: Optional[str] = None, timeout_s: float = DEFAULT_TIMEOUT_S,
                 curve: Optional[CurveKeys] = None) -> None:
        self._endpoint = full_endpoint(endpoint or os.environ.get("FORETOKEN_BUS_CLIENT") or DEFAULT_ENDPOINT)
        self._timeout_s = timeout_s
        # As a key file has them, or as pyzmq does.
        self._curve = curve and [key.encode() if isinstance(key, str) else key for key in curve]
        self._under_way: dict[str, Exchange] = {}
        self._left: OrderedDict[str, int] = OrderedDict()  # how many cancels of each are unanswered
        self._socket: Any = None
        self._closed = False
        self._refused = False  # and therefore without a socket, until the next request
        self.last_reply: Optional[Reply] = None  # of the last stream that was read to its end
        self._open()

    def cancel(self, request_id: Union[bytes, str]) -> None:
        """Ends a request, which is answered with what it has."""
        self._remember_left(id_text(request_id), cancels=1)
        self._send(pack({"request_id": request_id, "op": "cancel"}))

    def close(self) -> None:
        """What is under way ends with an error."""
        self._closed = True
        self._shut()
        for exchange in list(self._under_way.values()):
            if not exchange.done:
                exchange.take(error_answer("cancelled", "the client was closed"))

    def _expired(self, exchange: Exchange) -> ForetokenTimeout:
        where = "" if self._established else f": no router answers at {self._endpoint}"
        return ForetokenTimeout("deadline_exceeded", f"no answer within {exchange.timeout_s} s{where}")

    def _awaits_cancels(self) -> bool:
        return not self._closed and self._socket is not None and any(self._left.values())

    def _open(self) -> None:
        socket: Any = zmq.Context.instance().socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, 0)  # sending never waits: what may wait here is what the caller asked
        if self._endpoint.startswith("tcp://["):
            socket.setsockopt(zmq.IPV6, 1)
        self._monitor = socket.get_monitor_socket(WATCHED_EVENTS)
        self._established, self._opened_at, self._n_cut_short, self._refused = False, time.monotonic(), 0, False
        self._socket = socket
        try:
            self._connect()
        except ForetokenError:
            self._shut()
            raise
        self._left = OrderedDict.fromkeys(self._left, 0)  # nothing of the connection before comes any more
        for exchange in self._under_way.values():
            exchange.asked_again()
            self._send(exchange.data)

    def _connect(self) -> None:
        try:
            if self._curve:
                self._socket.curve_serverkey, self._socket.curve_publickey, self._socket.curve_secretkey = self._curve
        except (TypeError, ValueError, zmq.ZMQError) as error:
            raise ForetokenError("config", "curve= must be three keys of 32 bytes or 40 characters") from error
        if is_bare_ipv6(self._endpoint):  # ZeroMQ would retry without end and report nothing
            raise ForetokenError("config", f"cannot connect to {self._endpoint}: "
                                           "its address of IPv6 must be in brackets, as in tcp://[::1]:5555")
        try:
            self._socket.connect(self._endpoint)
        except zmq.ZMQError as error:
            raise ForetokenError("config", f"cannot connect to {self._endpoint}: {error}; "
                                           "it must be ipc://PATH or tcp://ADDRESS:PORT") from error

    def _shut(self) -> None:
        if self._socket is not None:
            self._socket.disable_monitor()
            self._monitor.close(0)
            self._socket.close(0)
            self._socket = None

    def _send(self, data: bytes) -> None:
        """Never waits. Where ZeroMQ has given the connection up nothing is sent: the monitor says why, and _turn() ends the requests."""
        if self._socket is not None:
            with contextlib.suppress(zmq.Again):
                self._socket.send(data, zmq.NOBLOCK)

    def _ask(self, request: dict[str, Any], wake: Callable[[], None]) -> Exchange:
        exchange = Exchange(request, self._timeout_s, wake)
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

    def _leave(self, exchange: Exchange, cancel: bool) -> None:
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
        # After the monitor: what a connection brought is there before its end is reported. In the other order an answer that comes
        # between the two looks, and with it the end, would be closed with the socket.
        for frames in self._received(self._socket):
            self._take(unpack_answer(frames[-1]))
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
