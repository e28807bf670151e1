"""Many requests at a time to a server that speaks OpenAI's completions over HTTP, and what came of them. The client is one thread and the
same for every server: it keeps what comes with the time and reads it when all is over, so that it takes little of the cores that it shares.
"""

import asyncio
import json
import time
from dataclasses import dataclass

ASK_S = 900  # longest wait for one answer
PIECE_S = 0.0002  # events of a stream that are closer together are one piece: some servers send the tokens of a round one by one


class StreamError(Exception):
    """A server did not answer as it was asked to."""


@dataclass
class Stream:
    """One answer: its text, when it was asked for, when each piece came, and when it was over."""

    text: str
    begin: float
    pieces: list[float]
    end: float
    n_tokens: int

    def first_s(self):
        return self.pieces[0] - self.begin

    def gaps_s(self):
        return [after - before for before, after in zip(self.pieces, self.pieces[1:])]


@dataclass
class Streams:
    """Answers to all requests of one figure, in the order of the prompts."""

    answers: list[Stream]

    def tokens(self):
        return sum(answer.n_tokens for answer in self.answers)

    def tokens_per_s(self):
        """Of all streams together, prompts and all."""
        return self.tokens() / (max(answer.end for answer in self.answers) - min(answer.begin for answer in self.answers))

    def about(self):
        gaps = [gap for answer in self.answers for gap in answer.gaps_s()]
        first = [answer.first_s() for answer in self.answers]
        return {"gap_p50_ms": 1000 * share(gaps, 0.5), "gap_p99_ms": 1000 * share(gaps, 0.99), "first_p50_ms": 1000 * share(first, 0.5),
                "first_p99_ms": 1000 * share(first, 0.99), "pieces": sum(len(answer.pieces) for answer in self.answers)}


def share(values, part):
    """The value below which this part of them lies."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] if values else 0.0


async def post(port, body):
    """The bytes of an answer's body as they came, each with its time; the status first."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        content = json.dumps(body).encode()
        writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
                     f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode() + content)
        head = await reader.readuntil(b"\r\n\r\n")
        parts = []
        if b"transfer-encoding: chunked" in head.lower():
            while size := int(await reader.readuntil(b"\r\n"), 16):
                parts.append(((await reader.readexactly(size + 2))[:-2], time.monotonic()))
        else:
            while part := await reader.read(1 << 16):
                parts.append((part, time.monotonic()))
        return int(head.split()[1]), parts
    finally:
        writer.close()


def read(parts, begin, n):
    """The answer that these bytes are."""
    text, pieces, tokens, end, rest = "", [], n, begin, b""
    for part, when in parts:
        *events, rest = (rest + part).replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            data = b"".join(line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:"))
            if not data or data == b"[DONE]":
                continue
            said = json.loads(data)
            if "error" in said:
                raise StreamError(str(said["error"]))
            tokens = (said.get("usage") or {}).get("completion_tokens", tokens)
            new = "".join(choice.get("text") or "" for choice in said.get("choices", []))
            if new:
                text, end = text + new, when
                if not pieces or when - pieces[-1] > PIECE_S:
                    pieces.append(when)
    if not pieces:
        raise StreamError(f"an answer without text: {b''.join(part for part, _ in parts)[:200]!r}")
    if tokens < n:
        raise StreamError(f"{tokens} tokens came of {n} that were asked for")
    return Stream(text, begin, pieces, end, tokens)


async def ask_all(port, bodies, n_streams):
    """Every body, so many at a time: each stream takes the next one when its answer is over."""
    waiting, came = iter(enumerate(bodies)), {}

    async def stream():
        for index, body in waiting:
            begin = time.monotonic()
            came[index] = begin, await asyncio.wait_for(post(port, body), ASK_S)

    await asyncio.gather(*(stream() for _ in range(n_streams)))
    return [came[index] for index in range(len(bodies))]


def measure(port, bodies, n_streams, n):
    """The answers to these bodies, n tokens each."""
    try:
        came = asyncio.run(ask_all(port, bodies, n_streams))
    except (OSError, EOFError, TimeoutError) as error:
        raise StreamError(f"{type(error).__name__}: {error}") from error
    for _, (status, parts) in came:
        if status != 200:
            raise StreamError(f"status {status}: {b''.join(part for part, _ in parts)[:200].decode(errors='replace')}")
    return Streams([read(parts, begin, n) for begin, (_, parts) in came])
