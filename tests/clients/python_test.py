"""The Python client against a ROUTER socket under the test's control: broken connections, several requests at once,
answers in any order, and what is refused before anything is sent."""

import asyncio
import contextlib
import os
import pathlib
import select
import socket
import sys
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

import msgpack
import zmq

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "clients/python"), str(ROOT / "tests/support")]

import foretoken  # noqa: E402
from ports import free_port  # noqa: E402

PATIENCE = 30.0  # only a hang reaches it


def free_endpoint():
    """One that no other test and no outgoing connection takes, also while nothing is bound to it for a moment."""
    return f"tcp://127.0.0.1:{free_port()}"


def ipv6_is_here():
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


class Double:
    """The router's client door, played by a function in a thread of its own."""

    def __init__(self, endpoint):
        self.context = zmq.Context()
        self.socket = None
        self.endpoint = endpoint
        self.open()

    def open(self):
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 1000)
        self.socket.setsockopt(zmq.IPV6, self.endpoint.startswith("tcp://["))
        for _ in range(1000):
            try:
                self.socket.bind(self.endpoint)
                break
            except zmq.ZMQError:  # the port of the life before is not free yet
                threading.Event().wait(0.01)
        else:
            raise AssertionError(f"{self.endpoint} is not free")
        self.endpoint = self.socket.getsockopt(zmq.LAST_ENDPOINT).decode()

    def die_and_come_back(self):
        self.socket.close()
        self.open()

    def hear(self):
        """Who asks, the bytes, and the map."""
        if not self.socket.poll(int(1000 * PATIENCE)):
            raise AssertionError("the client said nothing")
        peer, data = self.socket.recv_multipart()
        return peer, data, msgpack.unpackb(data, strict_map_key=False)

    def say(self, peer, **answer):
        self.socket.send_multipart([peer, msgpack.packb(answer)])


def hex_id(request):
    value = request["request_id"]
    return value.hex() if isinstance(value, bytes) else value


def piece(request, text, tokens):
    return {"id": hex_id(request), "done": False, "index": 0, "text": text, "token_ids": tokens, "accepted": len(tokens) - 1,
            "logprobs": [{"token_id": token} for token in tokens]}


def final(request, text, tokens=()):
    return {**piece(request, text, list(tokens)), "done": True, "model": "m", "finish_reason": "length", "stop_reason": None,
            "usage": {}, "metrics": {}}


@contextlib.contextmanager
def played(script, endpoint=None):
    """Runs script(double) beside the test; what fails in it fails the test."""
    double, failed = Double(endpoint or free_endpoint()), []

    def run():
        try:
            script(double)
        except BaseException as error:  # told below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield double
    finally:
        thread.join(PATIENCE)
        if not thread.is_alive():
            double.socket.close(0)
            double.context.term()
    if failed:
        raise failed[0]
    if thread.is_alive():
        raise AssertionError("the script has not ended")


class LostConnection(unittest.TestCase):
    def test_an_unanswered_request_is_asked_again_word_for_word(self):
        def script(double):
            _, first, _ = double.hear()
            double.die_and_come_back()
            peer, second, request = double.hear()
            self.assertEqual(first, second)
            double.say(peer, **final(request, "Once", [1]))

        with played(script) as double, foretoken.Client(double.endpoint, timeout_s=PATIENCE) as client:
            self.assertEqual("Once", client.generate("x").text)

    def script_of_a_stream_cut_in_two(self, read):
        def script(double):
            peer, first, request = double.hear()
            double.say(peer, **piece(request, "On", [1]))
            double.say(peer, **piece(request, "ce ü", [2, 3]))
            self.assertTrue(read.wait(PATIENCE))
            double.die_and_come_back()
            peer, second, request = double.hear()
            self.assertEqual(first, second)
            # Cut elsewhere this time: within what was delivered, and across its end.
            double.say(peer, **piece(request, "Once", [1, 2]))
            double.say(peer, **piece(request, " üpo", [3, 4]))
            double.say(peer, **final(request, "n", [5]))
        return script

    def check_whole(self, pieces, reply):
        self.assertEqual(["On", "ce ü", "po", "n"], [each.text for each in pieces])
        self.assertEqual([[1], [2, 3], [4], [5]], [each.token_ids for each in pieces])
        self.assertEqual([1, 2, 3, 4, 5], [entry["token_id"] for each in pieces for entry in each.logprobs])
        self.assertEqual(("Once üpon", [1, 2, 3, 4, 5]), (reply.text, reply.token_ids))
        self.assertEqual(5, len(reply.logprobs))

    def test_a_stream_goes_on_where_it_was(self):
        read = threading.Event()
        with played(self.script_of_a_stream_cut_in_two(read)) as double:
            with foretoken.Client(double.endpoint, timeout_s=PATIENCE) as client:
                stream = client.stream("x")
                pieces = [next(stream), next(stream)]
                read.set()
                self.check_whole(pieces + list(stream), client.last_reply)

    def test_an_asyncio_stream_goes_on_where_it_was(self):
        read = threading.Event()

        async def use(endpoint):
            async with foretoken.AsyncClient(endpoint, timeout_s=PATIENCE) as client:
                pieces = []
                async for each in client.stream("x"):
                    pieces.append(each)
                    if len(pieces) == 2:
                        read.set()
                return pieces, client.last_reply

        with played(self.script_of_a_stream_cut_in_two(read)) as double:
            self.check_whole(*asyncio.run(use(double.endpoint)))

    def check_a_last_answer(self, use, n):
        """A router that goes says the last answer and closes, after the n-th of the looks that a client takes at its two sockets."""
        read, looked, n_looks = threading.Event(), threading.Event(), 0

        def script(double):
            peer, _, request = double.hear()
            double.say(peer, **piece(request, "On", [1]))
            self.assertTrue(read.wait(PATIENCE))
            double.say(peer, **piece(request, "ce", [2]))
            self.assertTrue(looked.wait(PATIENCE))
            double.say(peer, **final(request, ".", [3]))
            double.socket.close()

        def received(socket, look=foretoken.Client._received):
            nonlocal n_looks
            yield from look(socket)
            n_looks += read.is_set()
            if n_looks == n and not looked.is_set():
                looked.set()
                select.select([clients[0]._monitor.getsockopt(zmq.FD)], [], [], PATIENCE)  # the end is here, unread

        clients = []
        with played(script) as double, mock.patch.object(foretoken._connection.Connection, "_received", staticmethod(received)):
            reply = use(double.endpoint, clients, read)
        self.assertEqual("Once.", reply.text)

    def test_an_answer_right_before_the_end_is_read(self):
        def use(endpoint, clients, read):
            with foretoken.Client(endpoint, timeout_s=PATIENCE) as client:
                clients.append(client)
                for _ in client.stream("x"):
                    read.set()
                return client.last_reply

        for n in (1, 2):
            with self.subTest(n):
                self.check_a_last_answer(use, n)

    def test_an_asyncio_answer_right_before_the_end_is_read(self):
        async def stream(endpoint, clients, read):
            async with foretoken.AsyncClient(endpoint, timeout_s=PATIENCE) as client:
                clients.append(client)
                async for _ in client.stream("x"):
                    read.set()
                return client.last_reply

        for n in (1, 2):
            with self.subTest(n):
                self.check_a_last_answer(lambda *what: asyncio.run(stream(*what)), n)

    def test_a_finished_answer_given_again_as_a_whole_is_cut(self):
        read = threading.Event()

        def script(double):
            peer, _, request = double.hear()
            double.say(peer, **piece(request, "On", [1]))
            self.assertTrue(read.wait(PATIENCE))
            double.die_and_come_back()
            peer, _, request = double.hear()
            double.say(peer, **final(request, "Once", [1, 2]))

        with played(script) as double, foretoken.Client(double.endpoint, timeout_s=PATIENCE) as client:
            stream = client.stream("x")
            texts = [next(stream).text]
            read.set()
            texts += [each.text for each in stream]
            self.assertEqual((["On", "ce"], "Once", [1, 2]), (texts, client.last_reply.text, client.last_reply.token_ids))

    def test_a_connection_lost_between_two_requests(self):
        idle = threading.Event()

        def script(double):
            peer, _, request = double.hear()
            double.say(peer, **final(request, "a"))
            self.assertTrue(idle.wait(PATIENCE))
            double.die_and_come_back()
            idle.clear()
            peer, _, request = double.hear()
            double.say(peer, **final(request, "b"))

        with played(script) as double, foretoken.Client(double.endpoint, timeout_s=PATIENCE) as client:
            self.assertEqual("a", client.generate("x").text)
            idle.set()
            while idle.is_set():
                threading.Event().wait(0.001)
            self.assertEqual("b", client.generate("x").text)

    def test_the_timeout_holds_over_any_number_of_lives(self):
        def script(double):
            for _ in range(3):
                double.hear()
                double.die_and_come_back()

        with played(script) as double, foretoken.Client(double.endpoint, timeout_s=3) as client:
            with self.assertRaises(foretoken.ForetokenTimeout):
                client.generate("x")

    def test_nobody_there_is_a_timeout(self):
        async def use():
            async with foretoken.AsyncClient("tcp://127.0.0.1:1", timeout_s=0.3) as client:
                await client.generate("x")

        with foretoken.Client("tcp://127.0.0.1:1", timeout_s=0.3) as client:
            for call in (lambda: client.generate("x"), lambda: asyncio.run(use())):
                with self.assertRaisesRegex(foretoken.ForetokenTimeout, "no router answers at tcp://127.0.0.1:1$"):
                    call()

    def test_a_router_that_does_not_answer_is_another_timeout(self):
        with played(lambda double: double.hear()) as double, foretoken.Client(double.endpoint, timeout_s=0.5) as client:
            with self.assertRaisesRegex(foretoken.ForetokenTimeout, "no answer within 0.5 s$"):
                client.generate("x")


def placed(answer, position, offset):
    """As routers that know of positions say it."""
    return {**answer, "position": position, "offset": offset}


class SameConnection(unittest.TestCase):
    """One id asked more than once on one connection: what was under way of the telling before comes first."""

    def read(self, script):
        with played(script) as double, foretoken.Client(double.endpoint, timeout_s=PATIENCE) as client:
            pieces = list(client.stream("x"))
            return pieces, client.last_reply

    def test_what_is_told_twice_is_kept_once(self):
        def script(double):
            peer, _, request = double.hear()
            double.say(peer, **placed(piece(request, "On", [1]), 0, 0))
            double.say(peer, **placed(piece(request, "ce ü", [2, 3]), 1, 2))
            double.say(peer, **placed(piece(request, "Once ", [1, 2]), 0, 0))  # another asked, too: from the beginning
            double.say(peer, **placed(piece(request, "üpo", [3, 4]), 2, 5))
            double.say(peer, **placed(final(request, "n", [5]), 4, 9))

        pieces, reply = self.read(script)
        self.assertEqual(["On", "ce ü", "po", "n"], [each.text for each in pieces])
        self.assertEqual([[1], [2, 3], [4], [5]], [each.token_ids for each in pieces])
        self.assertEqual([0, 1, 3, 4], [each.position for each in pieces])
        self.assertEqual(("Once üpon", [1, 2, 3, 4, 5]), (reply.text, reply.token_ids))
        self.assertEqual([1, 2, 3, 4, 5], [entry["token_id"] for entry in reply.logprobs])

    def test_logprobs_of_a_prompt_that_are_told_twice_are_kept_once(self):
        prompt = [{"token_id": 7, "logprob": None}, {"token_id": 8, "logprob": -1.5}]

        def script(double):
            peer, _, request = double.hear()
            double.say(peer, **placed({**piece(request, "On", [1]), "prompt_logprobs": prompt}, 0, 0))
            double.say(peer, **placed({**piece(request, "Once", [1, 2]), "prompt_logprobs": prompt}, 0, 0))
            double.say(peer, **placed(final(request, "."), 2, 4))

        pieces, reply = self.read(script)
        self.assertEqual([prompt, []], [each.prompt_logprobs for each in pieces[:2]])
        self.assertEqual(prompt, reply.prompt_logprobs)

    def test_ends_of_tokens_that_are_told_twice_are_kept_once(self):
        form = {"tool_format": "hermes", "marker_tokens": ["<think>"], "reasons": True, "begun": ""}
        first = {"prompt_token_ids": [7, 8], "form": form}

        def script(double):
            peer, _, request = double.hear()
            double.say(peer, **placed({**piece(request, "On", [1]), **first, "token_ends": [2]}, 0, 0))
            double.say(peer, **placed({**piece(request, "Once", [1, 2]), **first, "token_ends": [2, 4]}, 0, 0))
            double.say(peer, **placed({**final(request, ".", [3]), "token_ends": [5], "form": None}, 2, 4))

        pieces, reply = self.read(script)
        self.assertEqual([[2], [4], [5]], [each.token_ends for each in pieces])
        self.assertEqual([[7, 8], [], []], [each.prompt_token_ids for each in pieces])
        self.assertEqual([form, None, None], [each.form for each in pieces])
        self.assertEqual(([2, 4, 5], [7, 8], form), (reply.token_ends, reply.prompt_token_ids, reply.form))

    def test_pieces_of_a_telling_whose_beginning_went_elsewhere_are_not_taken(self):
        def script(double):
            peer, _, request = double.hear()
            double.say(peer, **placed(piece(request, "ce", [2]), 1, 2))
            double.say(peer, **placed(piece(request, "Once", [1, 2]), 0, 0))
            double.say(peer, **placed(final(request, ""), 2, 4))

        pieces, reply = self.read(script)
        self.assertEqual((["Once"], "Once", [1, 2]), ([each.text for each in pieces], reply.text, reply.token_ids))

    def test_another_text_or_a_missing_part_is_an_error_and_not_spliced_in(self):
        for answers in ([(piece, "On", [1], 0, 0), (piece, "Xn", [1], 0, 0)], [(piece, "On", [1], 0, 0), (piece, "On", [9], 0, 0)],
                        [(final, "ce", [2], 1, 2)]):
            def script(double):
                peer, _, request = double.hear()
                for make, text, tokens, position, offset in answers:
                    double.say(peer, **placed(make(request, text, tokens), position, offset))

            with self.assertRaises(foretoken.ForetokenError) as refused:
                self.read(script)
            self.assertEqual("internal", refused.exception.code)

    def test_a_stream_that_was_left_may_be_asked_again_under_its_id(self):
        own = os.urandom(16)
        ended = {"cancelled": lambda request: placed({**final(request, ""), "finish_reason": "cancelled"}, 2, 4),
                 "too late": lambda request: {"id": hex_id(request), "done": True, "error": {
                     "code": "not_found", "message": "none runs", "param": "request_id", "retry_after_ms": 0}}}
        for name, answer_to_cancel in ended.items():
            def script(double):
                peer, _, request = double.hear()
                double.say(peer, **placed(piece(request, "On", [1]), 0, 0))
                for _ in range(2):  # left twice; all of it is under way when it is asked again
                    self.assertEqual("cancel", double.hear()[2]["op"])
                    again = double.hear()[2]
                    self.assertEqual(request, again)
                    double.say(peer, **placed(piece(request, "ce", [2]), 1, 2))
                    if name == "too late":
                        double.say(peer, **placed(final(request, "", []), 2, 4))
                    double.say(peer, **answer_to_cancel(request))
                    double.say(peer, **placed(piece(request, "Once", [1, 2]), 0, 0))
                double.say(peer, **placed(final(request, ""), 2, 4))

            with self.subTest(name), played(script) as double, foretoken.Client(double.endpoint, timeout_s=PATIENCE) as client:
                for _ in range(2):
                    stream = client.stream("x", request_id=own)
                    self.assertIn(next(stream).text, ("On", "Once"))
                    stream.close()
                pieces = list(client.stream("x", request_id=own))
                self.assertEqual((["Once"], [1, 2]), ([each.text for each in pieces], client.last_reply.token_ids))


def answer_cancel(double, request_id):
    """Hears a cancel of this id; the answer says that none of it runs."""
    peer, _, request = double.hear()
    if (request.get("op"), hex_id(request)) != ("cancel", request_id):
        raise AssertionError(f"{request} is no cancel of {request_id}")
    double.say(peer, id=request_id, done=True,
               error={"code": "not_found", "message": "none runs", "param": "request_id", "retry_after_ms": 0})


class Cancels(unittest.TestCase):
    def test_a_cancel_right_before_the_end_arrives(self):
        n, own = 20, os.urandom(16)

        async def use(endpoint):
            async with foretoken.AsyncClient(endpoint, timeout_s=PATIENCE) as client:
                client.cancel(own)

        def script(double):
            for _ in range(2 * n):
                answer_cancel(double, own.hex())

        with played(script) as double:
            for _ in range(n):
                with foretoken.Client(double.endpoint, timeout_s=PATIENCE) as client:
                    client.cancel(own)
                asyncio.run(use(double.endpoint))

    def script_of_an_interrupted_call(self, heard=lambda: None):
        def script(double):
            _, _, request = double.hear()
            heard()
            answer_cancel(double, hex_id(request))
        return script

    def test_an_asyncio_call_whose_task_is_cancelled_cancels_its_request(self):
        heard = threading.Event()

        async def use(endpoint):
            async with foretoken.AsyncClient(endpoint, timeout_s=PATIENCE) as client:
                task = asyncio.ensure_future(client.generate("x"))
                self.assertTrue(await asyncio.get_running_loop().run_in_executor(None, heard.wait, PATIENCE))
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task

        with played(self.script_of_an_interrupted_call(heard.set)) as double:
            asyncio.run(use(double.endpoint))

    def test_an_interrupted_call_cancels_its_request(self):
        with played(self.script_of_an_interrupted_call()) as double:
            with foretoken.Client(double.endpoint, timeout_s=PATIENCE) as client:
                with mock.patch.object(client, "_wait", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
                    client.generate("x")

    def test_a_call_that_runs_out_of_time_is_not_cancelled(self):
        def script(double):
            _, _, request = double.hear()
            self.assertEqual(request, double.hear()[2], "asked again, and nothing before it")

        own = os.urandom(16)
        with played(script) as double, foretoken.Client(double.endpoint, timeout_s=0.5) as client:
            for _ in range(2):
                with self.assertRaises(foretoken.ForetokenTimeout):
                    client.generate("x", request_id=own)


class SeveralAtOnce(unittest.TestCase):
    def test_asyncio_calls_get_their_own_answers_in_any_order(self):
        def script(double):
            heard = [double.hear() for _ in range(4)]
            for peer, _, request in reversed(heard):
                if request.get("stream"):
                    double.say(peer, **piece(request, request["prompt"], [1]))
            for peer, _, request in reversed(heard):
                double.say(peer, **final(request, request["prompt"], [2]))

        async def use(endpoint):
            async with foretoken.AsyncClient(endpoint, timeout_s=PATIENCE) as client:
                async def streamed(prompt):
                    return "".join([each.text async for each in client.stream(prompt)])
                replies = await asyncio.gather(client.generate("a"), client.generate("b"), streamed("c"), streamed("d"))
                return [each if isinstance(each, str) else each.text for each in replies]

        with played(script) as double:
            self.assertEqual(["a", "b", "cc", "dd"], asyncio.run(use(double.endpoint)))

    def test_each_asyncio_call_keeps_its_time_and_the_loop_turns(self):
        def script(double):
            for _ in range(3):
                peer, _, request = double.hear()
                if request["prompt"] == "b":
                    double.say(peer, **final(request, "b"))

        async def use(endpoint):
            async with foretoken.AsyncClient(endpoint, timeout_s=1) as client:
                turns = 0

                async def turning():
                    nonlocal turns
                    while True:
                        await asyncio.sleep(0.01)
                        turns += 1
                beside = asyncio.ensure_future(turning())
                replies = await asyncio.wait_for(
                    asyncio.gather(*(client.generate(prompt) for prompt in "abc"), return_exceptions=True), PATIENCE)
                beside.cancel()
                return replies, turns

        with played(script) as double:
            replies, turns = asyncio.run(use(double.endpoint))
        self.assertEqual("b", replies[1].text)
        self.assertIsInstance(replies[0], foretoken.ForetokenTimeout)
        self.assertIsInstance(replies[2], foretoken.ForetokenTimeout)
        self.assertGreater(turns, 1)

    def test_streams_read_in_turns_lose_nothing(self):
        n = 9

        def script(double):
            heard = []
            for _ in range(2):  # a stream asks when it is first read
                heard.append(double.hear())
                double.say(heard[-1][0], **piece(heard[-1][2], heard[-1][2]["prompt"] + "0", [0]), token_ends=[2])
            for i in range(1, n):
                for peer, _, request in heard:
                    double.say(peer, **piece(request, request["prompt"] + str(i), [i]), token_ends=[2 * i + 2])
            for peer, _, request in heard:
                double.say(peer, **final(request, "."))

        for limit in (foretoken._connection.MAX_WAITING_PIECES, 2):  # within the queue, and beyond it
            with mock.patch("foretoken._connection.MAX_WAITING_PIECES", limit), played(script) as double:
                with foretoken.Client(double.endpoint, timeout_s=PATIENCE) as client:
                    one, two = client.stream("a"), client.stream("b")
                    text_one, text_two = next(one).text, next(two).text
                    text_two += "".join(each.text for each in two)
                    rest = list(one)
                    text_one += "".join(each.text for each in rest)
                    reply = client.last_reply
            self.assertEqual("".join(f"a{i}" for i in range(n)) + ".", text_one)
            self.assertEqual("".join(f"b{i}" for i in range(n)) + ".", text_two)
            self.assertEqual((text_one, list(range(n))), (reply.text, reply.token_ids))
            self.assertEqual(list(range(n)), [entry["token_id"] for entry in reply.logprobs])
            self.assertEqual([2 * i + 2 for i in range(n)], reply.token_ends)
            self.assertLessEqual(len(rest), limit + 1)

    def test_an_id_under_way_is_refused(self):
        def script(double):
            peer, _, request = double.hear()
            double.say(peer, **piece(request, "a", [1]))
            answer_cancel(double, hex_id(request))

        with played(script) as double, foretoken.Client(double.endpoint, timeout_s=PATIENCE) as client:
            own = os.urandom(16)
            stream = client.stream("x", request_id=own)
            next(stream)
            with self.assertRaises(foretoken.ForetokenError) as refused:
                client.generate("x", request_id=own.hex().upper())
            self.assertEqual(("invalid_value", "request_id"), (refused.exception.code, refused.exception.param))
            stream.close()


class Answers(unittest.TestCase):
    def test_a_whole_answer_has_what_was_asked_for(self):
        form = {"tool_format": "none", "marker_tokens": [], "reasons": False, "begun": ""}

        def script(double):
            for extra in ({"token_ends": [2, 4], "form": form, "prompt_token_ids": [7, 8]}, {"token_ends": [], "form": None}):
                peer, _, request = double.hear()
                self.assertEqual((True, True), (request["token_ends"], request["return_prompt_token_ids"]))
                double.say(peer, **{**final(request, "Once", [1, 2]), **extra})

        with played(script) as double, foretoken.Client(double.endpoint, timeout_s=PATIENCE) as client:
            replies = [client.generate("x", token_ends=True, return_prompt_token_ids=True) for _ in range(2)]
        self.assertEqual([([2, 4], form, [7, 8]), ([], None, [])],
                         [(reply.token_ends, reply.form, reply.prompt_token_ids) for reply in replies])

    error = {"code": "malformed", "message": "m", "param": "temperature", "retry_after_ms": 0}

    def test_an_error_without_the_id_belongs_to_the_only_request(self):
        for answer_id in ("", "f" * 32):
            def script(double):
                peer, _, request = double.hear()
                self.assertEqual("request_id", next(iter(request)))
                double.say(peer, id=answer_id, done=True, error=self.error)

            with played(script) as double, foretoken.Client(double.endpoint, timeout_s=PATIENCE) as client:
                with self.assertRaises(foretoken.ForetokenError) as refused:
                    client.generate("x", temperature=float("nan"))
                self.assertEqual(("malformed", "temperature"), (refused.exception.code, refused.exception.param))

    def test_a_late_error_of_another_request_is_not_taken_for_ones_own(self):
        def script(double):
            _, _, late = double.hear()
            peer, _, request = double.hear()
            double.say(peer, id=hex_id(late), done=True, error=self.error)
            double.say(peer, **final(request, "b"))

        with played(script) as double, foretoken.Client(double.endpoint, timeout_s=0.5) as client:
            with self.assertRaises(foretoken.ForetokenTimeout):
                client.generate("a")
            client._timeout_s = PATIENCE
            self.assertEqual("b", client.generate("b").text)

    def test_what_is_no_map_ends_the_only_request(self):
        def script(double):
            peer, _, _ = double.hear()
            double.socket.send_multipart([peer, b"\xc1"])

        with played(script) as double, foretoken.Client(double.endpoint, timeout_s=PATIENCE) as client:
            with self.assertRaises(foretoken.ForetokenError) as refused:
                client.generate("a")
            self.assertEqual("malformed", refused.exception.code)

    def test_closing_ends_what_is_under_way(self):
        async def use():
            client = foretoken.AsyncClient("tcp://127.0.0.1:1", timeout_s=PATIENCE)
            waiting = asyncio.ensure_future(client.generate("a"))
            await asyncio.sleep(0)
            client.close()
            with self.assertRaises(foretoken.ForetokenError) as ended:
                await waiting
            self.assertEqual("cancelled", ended.exception.code)

        asyncio.run(use())


class Keys(unittest.TestCase):
    """A door that takes no connection says so at once; patience here is that of a hang."""

    def setUp(self):
        self.sockets = []  # a door that nothing refers to would be closed

    def refusal(self, endpoint, **options):
        async def use():
            async with foretoken.AsyncClient(endpoint, timeout_s=PATIENCE, **options) as client:
                return await asyncio.gather(*(client.generate("x") for _ in range(3)), return_exceptions=True)

        errors = asyncio.run(use())
        with foretoken.Client(endpoint, timeout_s=PATIENCE, **options) as client:
            for _ in range(2):  # asked again it is tried again
                with self.assertRaises(foretoken.ForetokenError) as refused:
                    client.generate("x")
                errors.append(refused.exception)
            with self.assertRaises(foretoken.ForetokenError) as refused:
                list(client.stream("x"))
            errors.append(refused.exception)
        for error in errors:
            self.assertIsInstance(error, foretoken.ForetokenError)
            self.assertEqual("config", error.code, error)
            self.assertIn(endpoint, str(error))
        return " ".join(map(str, errors))

    def door(self, **options):
        context = zmq.Context()
        self.addCleanup(context.destroy, 0)
        socket = context.socket(zmq.ROUTER)
        self.sockets.append(socket)
        for name, value in options.items():
            setattr(socket, name, value)
        socket.bind(free_endpoint())
        return socket.getsockopt(zmq.LAST_ENDPOINT).decode()

    def test_a_client_with_a_key_is_told_that_the_router_has_none(self):
        server, own = zmq.curve_keypair(), zmq.curve_keypair()
        self.assertIn("has no keys", self.refusal(self.door(), curve=(server[0], *own)))

    def test_sending_does_not_wait_where_the_connection_was_given_up(self):
        with foretoken.Client(self.door(), timeout_s=0.5) as client:
            client._socket.disconnect(client._endpoint)  # as ZeroMQ does after a greeting that cannot succeed
            deadline = time.monotonic() + PATIENCE
            while client._socket.poll(0, zmq.POLLOUT):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            client.cancel(bytes(16))
            with self.assertRaises(foretoken.ForetokenTimeout):
                client.generate("x")

    def test_a_client_without_a_key_is_told_that_the_router_wants_one(self):
        public, secret = zmq.curve_keypair()
        self.assertIn("takes only clients with a key",
                      self.refusal(self.door(curve_server=True, curve_publickey=public, curve_secretkey=secret)))

    def test_a_client_that_does_not_have_the_routers_key_is_told(self):
        public, secret = zmq.curve_keypair()
        another, own = zmq.curve_keypair(), zmq.curve_keypair()
        self.assertIn("has another one than curve= says",
                      self.refusal(self.door(curve_server=True, curve_publickey=public, curve_secretkey=secret),
                                   curve=(another[0], *own)))

    def test_a_client_that_was_refused_works_when_the_router_has_changed(self):
        def script(double):
            peer, _, request = double.hear()
            double.say(peer, **final(request, "a"))

        public, secret = zmq.curve_keypair()
        context = zmq.Context()
        door = context.socket(zmq.ROUTER)
        door.curve_server, door.curve_publickey, door.curve_secretkey = True, public, secret
        door.bind(free_endpoint())
        endpoint = door.getsockopt(zmq.LAST_ENDPOINT).decode()
        with foretoken.Client(endpoint, timeout_s=PATIENCE) as client:
            with self.assertRaises(foretoken.ForetokenError) as refused:
                client.generate("x")
            self.assertEqual("config", refused.exception.code)
            context.destroy(0)
            with played(script, endpoint):
                self.assertEqual("a", client.generate("x").text)


class Arguments(unittest.TestCase):
    def setUp(self):
        self.client = foretoken.Client("tcp://127.0.0.1:1", timeout_s=0)
        self.addCleanup(self.client.close)

    def test_what_is_no_prompt_is_refused_by_type(self):
        for prompt, name in ((b"x", "bytes"), (None, "NoneType"), (5, "int"), ({"role": "user"}, "dict"), ([1, "x"], "item 1"),
                             (["x"], "str"), ([True], "bool"), ([{"role": "user"}, 1], "item 1")):
            for call in (self.client.generate, self.client.stream):
                with self.assertRaisesRegex(TypeError, f"list of messages.*token ids.*{name}"):
                    call(prompt)

    def test_what_is_a_prompt(self):
        for prompt, key in (("x", "prompt"), ([1, 2], "token_ids"), ((1, 2), "token_ids"), ([{"role": "user"}], "messages")):
            self.assertIn(key, foretoken._requests.request_map(prompt, {}))

    def test_a_stream_is_not_asked_of_generate(self):
        with self.assertRaisesRegex(ValueError, r"call stream\(\)"):
            self.client.generate("x", stream=True)
        with self.assertRaises(foretoken.ForetokenTimeout):
            self.client.generate("x", stream=False)

    def test_a_parameter_that_cannot_be_packed_is_named(self):
        with self.assertRaisesRegex(TypeError, "^stop cannot be sent"):
            self.client.generate("x", stop={"a"})
        with self.assertRaisesRegex(ValueError, "^seed cannot be sent"):
            self.client.generate("x", seed=1 << 64)

    def test_sequences_and_mappings_of_any_class_are_sent(self):
        def script(double):
            peer, _, request = double.hear()
            self.assertEqual(([1, 2], {7: 0.5}, ["a"], [{"role": "user", "content": "x"}]),
                             (request["stop_token_ids"], request["logit_bias"], request["stop"], request["messages"]))
            double.say(peer, **final(request, ""))

        with played(script) as double, foretoken.Client(double.endpoint, timeout_s=PATIENCE) as client:
            client.generate((types.MappingProxyType({"role": "user", "content": "x"}),), stop_token_ids=range(1, 3), stop=("a",),
                            logit_bias=types.MappingProxyType({7: 0.5}))

    def test_a_schema_may_be_a_mapping_whose_keys_keep_their_order(self):
        schema = types.MappingProxyType({"type": "object", "properties": {"b": {"const": "é"}, "a": {}}})
        sent = foretoken._requests.request_map("x", {"json_schema": schema})["json_schema"]
        self.assertEqual('{"type": "object", "properties": {"b": {"const": "é"}, "a": {}}}', sent)
        self.assertEqual("{}", foretoken._requests.request_map("x", {"json_schema": "{}"})["json_schema"])
        with self.assertRaisesRegex(TypeError, "^json_schema cannot be sent"):
            self.client.generate("x", json_schema={"enum": {1, 2}})
        with self.assertRaisesRegex(ValueError, "^json_schema cannot be sent"):
            self.client.generate("x", json_schema={"const": float("nan")})

    def test_the_endpoint_is_that_of_the_environment(self):
        def script(double):
            peer, _, request = double.hear()
            double.say(peer, **final(request, "a"))

        with played(script) as double, mock.patch.dict(os.environ, FORETOKEN_BUS_CLIENT=double.endpoint):
            with foretoken.Client(timeout_s=PATIENCE) as client:
                self.assertEqual("a", client.generate("x").text)

    def test_an_address_of_ipv6_is_reached(self):
        def script(double):
            peer, _, request = double.hear()
            double.say(peer, **final(request, "a"))

        if not ipv6_is_here():
            self.skipTest("this machine has no IPv6")
        with played(script, "tcp://[::1]:*") as double, foretoken.Client(double.endpoint, timeout_s=PATIENCE) as client:
            self.assertEqual("a", client.generate("x").text)

    def test_an_endpoint_of_another_form_is_refused_and_leaves_no_socket(self):
        for kind in (foretoken.Client, foretoken.AsyncClient):
            for endpoint in ("localhost:5555", "tcp://127.0.0.1", "http://127.0.0.1:5555"):
                self.check_refused(kind, f"^config: cannot connect to {endpoint}: .*tcp://ADDRESS:PORT", endpoint)

    def test_an_address_of_ipv6_without_brackets_is_refused_and_leaves_no_socket(self):
        for kind in (foretoken.Client, foretoken.AsyncClient):
            for endpoint in ("tcp://::1:5555", "tcp://fd00::1"):
                self.check_refused(kind, f"^config: cannot connect to {endpoint}: .* in brackets, as in tcp://", endpoint)

    def test_keys_of_another_form_are_refused_and_leave_no_socket(self):
        key = bytes(32)
        for keys in ((key, key, key[1:]), (key, key), ("x" * 39, key, key), (key, 5, key)):
            self.check_refused(foretoken.Client, "^config: curve= must be three keys of 32 bytes", "tcp://127.0.0.1:1", curve=keys)

    def check_refused(self, kind, pattern, *endpoint, **options):
        client = kind.__new__(kind)
        with self.assertRaisesRegex(foretoken.ForetokenError, pattern):
            client.__init__(*endpoint, **options)
        self.assertIsNone(client._socket)

    def test_an_ipc_name_is_in_the_runtime_directory_of_the_services(self):
        def script(double):
            peer, _, request = double.hear()
            double.say(peer, **final(request, "a"))

        variables = {"FORETOKEN_BUS_CLIENT": "ipc://client"}
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(f"{folder}/foretoken")
            for added, place in (({"XDG_RUNTIME_DIR": folder}, f"{folder}/foretoken"),
                                 ({"RUNTIME_DIRECTORY": f"{folder}:/nowhere"}, folder),
                                 ({"FORETOKEN_BUS_RUNTIME_DIR": f"{folder}/foretoken"}, f"{folder}/foretoken")):
                variables.update(added)  # each comes before those that were there
                with played(script, f"ipc://{place}/client") as double, mock.patch.dict(os.environ, variables):
                    with foretoken.Client(timeout_s=PATIENCE) as client:
                        self.assertEqual((double.endpoint, "a"), (client._endpoint, client.generate("x").text))

    def test_where_the_services_sockets_are(self):
        default = f"ipc:///tmp/foretoken-{os.geteuid()}/client"
        for variables in ({}, {"XDG_RUNTIME_DIR": "/no/folder"}, {"XDG_RUNTIME_DIR": "."}, {"RUNTIME_DIRECTORY": "second:/third"}, dict.fromkeys(
                ("FORETOKEN_BUS_RUNTIME_DIR", "RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"), "")):
            with mock.patch.dict(os.environ, variables, clear=True):
                self.assertEqual(default, foretoken._connection.full_endpoint("ipc://client"))
        for endpoint in ("ipc:///run/client", "tcp://127.0.0.1:5555"):
            self.assertEqual(endpoint, foretoken._connection.full_endpoint(endpoint))


if __name__ == "__main__":
    unittest.main()
