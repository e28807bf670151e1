"""Many streams at once over the Python client, which asks again under the same request id, and busy neighbours.

For the long tests: each stream's text, error and times of pieces are kept, to be compared with those of an undisturbed run."""
import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Optional

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "clients", "python"))
sys.path.insert(0, os.path.join(ROOT, "tests", "process"))
import foretoken  # noqa: E402


@dataclass
class Stream:
    text: str = ""
    token_ids: list = field(default_factory=list)
    error: Optional[str] = None
    finish_reason: str = ""
    times: list = field(default_factory=list)  # of its pieces
    drafted: int = 0
    accepted: int = 0

    def same_as(self, other):
        return (self.error, other.error) == (None, None) and \
            (self.text, self.token_ids) == (other.text, other.token_ids)

    def longest_gap(self, begin=0.0, end=float("inf")):
        """The longest time between two pieces that overlaps the span."""
        pairs = zip(self.times, self.times[1:])
        return max((b - a for a, b in pairs if b >= begin and a <= end), default=0.0)


class Streams:
    """Runs the requests side by side in a thread of its own. `clients`: how many connections share them."""

    def __init__(self, endpoint, requests, clients=4, timeout_s=3600.0, curve=None):
        self.results = [Stream() for _ in requests]
        self._endpoint, self._requests, self._clients = endpoint, requests, clients
        self._timeout_s, self._curve = timeout_s, curve
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()

    async def _run(self):
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(foretoken.AsyncClient(self._endpoint, self._timeout_s, self._curve))
                       for _ in range(min(self._clients, len(self._requests)))]
            await asyncio.gather(*(self._one(clients[i % len(clients)], request, result)
                                   for i, (request, result) in enumerate(zip(self._requests, self.results))))

    @staticmethod
    async def _one(client, request, result):
        request = dict(request)
        try:
            if request.pop("stream", True):
                async for piece in client.stream(request.pop("prompt"), **request):
                    result.times.append(time.monotonic())
                    result.text += piece.text
                    result.token_ids += piece.token_ids
                result.finish_reason = "read"
            else:
                reply = await client.generate(request.pop("prompt"), **request)
                result.text, result.token_ids, result.finish_reason = reply.text, reply.token_ids, reply.finish_reason
                result.times.append(time.monotonic())
                spec = reply.metrics["speculative_decoding"]
                result.drafted, result.accepted = spec["num_draft_tokens"], spec["num_accepted_draft_tokens"]
        except foretoken.ForetokenError as error:
            result.error = str(error)

    def n_begun(self):
        return sum(1 for result in self.results if result.times)

    def n_running(self):
        return sum(1 for result in self.results if not result.finish_reason and result.error is None)

    def wait(self, patience=3600.0):
        self._thread.join(patience)
        assert not self._thread.is_alive(), f"{self.n_running()} streams still run after {patience:.0f} s"
        return self.results


def run_streams(endpoint, requests, **options):
    return Streams(endpoint, requests, **options).wait()


def compare(truth, results):
    """How many ended in an error, how many changed; and the first few of both, in words."""
    errors = [f"{i}: {r.error}" for i, r in enumerate(results) if r.error is not None]
    changed = [i for i, (t, r) in enumerate(zip(truth, results)) if r.error is None and not r.same_as(t)]
    words = "".join(f"\n  error {e}" for e in errors[:5])
    words += "".join(f"\n  changed {i}: {len(results[i].token_ids)} tokens, {len(truth[i].token_ids)} expected" for i in changed[:5])
    return len(errors), len(changed), words


@contextlib.contextmanager
def busy_loops(count):
    """So many processes that take all the time they get."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def count_in_log(system, name, words):
    with open(os.path.join(system.folder, f"{name}.log"), errors="replace") as log:
        return sum(words in line for line in log)


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0
