"""What a client sees when nothing goes wrong: REQ and DEALER, plain and speculative, streams, stops, bad input, retries."""
import os
import pathlib
import unittest

import msgpack
import zmq
from harness import Client, System, plain_answers, request, text_of, wait_for


class Happy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.system = System(settings=["limits.max_waiting=64"]).__enter__()
        cls.system.start("router", "tokenizer", "draft", "target")
        cls.system.wait_ready()

    @classmethod
    def tearDownClass(cls):
        cls.system.assert_alive()
        cls.system.__exit__(None, None, None)

    def setUp(self):
        self.client = Client(self.system)
        self.addCleanup(self.client.close)

    def req(self, *options):
        socket = self.system.context.socket(zmq.REQ)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, 60000)
        for option in options:
            socket.setsockopt(option, 1)
        socket.connect(self.system.client)
        self.addCleanup(socket.close)
        return socket

    def test_a_req_client_of_any_kind_gets_one_map(self):
        for options in ((), (zmq.REQ_RELAXED, zmq.REQ_CORRELATE)):
            socket = self.req(*options)
            for _ in range(3):
                socket.send(msgpack.packb({"prompt": "the thing", "max_tokens": 8, "temperature": 0.0, "ignore_eos": True}))
                reply = msgpack.unpackb(socket.recv())
                self.assertEqual(8, len(reply["token_ids"]))
                self.assertEqual(8, reply["usage"]["completion_tokens"])
                self.assertEqual("length", reply["finish_reason"])

    def test_speculation_changes_speed_never_text(self):
        truth = plain_answers(self.client, 8)
        for more in ({}, {"num_draft_tokens": 1}, {"num_draft_tokens": 8}, {"proposer": "ngram"}, {"proposer": "none"}):
            ids = [self.client.send(request(i, **more)) for i in range(8)]
            for plain, one in zip(truth, ids):
                reply = self.client.wait(one)[-1]
                self.assertEqual(plain["token_ids"], reply["token_ids"], more)
                spec = reply["metrics"]["speculative_decoding"]
                histogram = spec["acceptance_histogram"]
                self.assertEqual(spec["num_spec_tokens"] + 1, len(histogram), more)
                self.assertEqual(spec["num_spec_steps"], sum(histogram), more)
                self.assertEqual(spec["num_accepted_draft_tokens"], sum(i * n for i, n in enumerate(histogram)), more)

    def test_choices_of_one_seed_differ_and_each_is_reproducible(self):
        asked = {**request(1, max_tokens=48), "temperature": 1.0}
        first = self.client.ask(**asked)
        answers = [self.client.ask(**asked, choice=choice) for choice in range(4)]
        self.assertEqual(first["token_ids"], answers[0]["token_ids"])
        self.assertEqual([0, 1, 2, 3], [answer["index"] for answer in answers])
        self.assertEqual(4, len({tuple(answer["token_ids"]) for answer in answers}))
        for choice, answer in enumerate(answers):
            for more in ({}, {"num_draft_tokens": 0}, {"num_draft_tokens": 8}, {"proposer": "ngram"}):
                again = self.client.ask(**asked, choice=choice, **more)
                self.assertEqual(answer["token_ids"], again["token_ids"], (choice, more))

    def test_the_draft_is_really_used(self):
        def used():
            reply = self.client.ask(**request(0, max_tokens=512, num_draft_tokens=4))
            spec = reply["metrics"]["speculative_decoding"]
            return spec["num_accepted_draft_tokens"] > 0 and "draft" in spec["proposer"]
        wait_for(used, "an accepted token of the draft")

    def test_a_stream_is_the_reply_in_pieces(self):
        whole = self.client.ask(**request(1))
        maps = self.client.wait(self.client.send(request(1, stream=True)))
        self.assertGreater(len(maps), 2)
        self.assertFalse(any(m["done"] for m in maps[:-1]))
        text, ids = text_of(maps)
        self.assertEqual(whole["text"], text)
        self.assertEqual(whole["token_ids"], ids)

    def test_a_dealer_that_sends_the_delimiter_gets_pieces_behind_one(self):
        whole = self.client.ask(**request(1))
        dealer = self.system.context.socket(zmq.DEALER)
        self.addCleanup(dealer.close, 0)
        dealer.setsockopt(zmq.RCVTIMEO, 60000)
        dealer.connect(self.system.client)
        dealer.send_multipart([b"", msgpack.packb(request(1, stream=True))])
        maps = []
        while not (maps and maps[-1]["done"]):
            delimiter, answer = dealer.recv_multipart()
            self.assertEqual(b"", delimiter)
            maps.append(msgpack.unpackb(answer))
        self.assertGreater(len(maps), 2)
        self.assertEqual((whole["text"], whole["token_ids"]), text_of(maps))

    def test_a_stop_string_cuts_text_ids_logprobs_and_usage(self):
        whole = self.client.ask(**request(2, max_tokens=64))
        stop = whole["text"][20:23]
        at = whole["text"].index(stop)
        for more in ({"num_draft_tokens": 0}, {"num_draft_tokens": 8}):
            reply = self.client.ask(**request(2, max_tokens=64, stop=[stop], logprobs=2, **more))
            self.assertEqual(whole["text"][:at], reply["text"])
            self.assertEqual("stop", reply["finish_reason"])
            self.assertEqual(stop, reply["stop_reason"])
            count = len(reply["token_ids"])
            self.assertEqual(whole["token_ids"][:count], reply["token_ids"])
            self.assertEqual(count, reply["usage"]["completion_tokens"])
            self.assertEqual(count, len(reply["logprobs"]))
            self.assertLess(count, 64)

    def test_logprobs_have_the_bytes_of_their_tokens_in_pieces_and_in_whole(self):
        asked = request(3, max_tokens=48, skip_special_tokens=False, logprobs=3)
        whole = self.client.ask(**asked)
        maps = self.client.wait(self.client.send({**asked, "stream": True}))
        self.assertGreater(len(maps), 2)
        self.assertEqual(whole["logprobs"], [entry for each in maps for entry in each["logprobs"]])
        self.assertEqual(whole["text"], b"".join(entry["bytes"] for entry in whole["logprobs"]).decode(errors="replace"))
        for token, entry in zip(whole["token_ids"], whole["logprobs"]):
            self.assertEqual((token, 3, 3), (entry["token_id"], len(entry["top_bytes"]), len(entry["top_tokens"])))
            self.assertEqual(entry["token"], entry["bytes"].decode(errors="replace"))
            self.assertEqual(entry["top_tokens"], [each.decode(errors="replace") for each in entry["top_bytes"]])
            if token in entry["top_ids"]:
                self.assertEqual(entry["bytes"], entry["top_bytes"][entry["top_ids"].index(token)])

    def test_a_prompt_has_the_logprobs_that_its_tokens_had_in_the_answer(self):
        told = self.client.ask(**request(4, max_tokens=64, logprobs=3))
        begin = self.client.ask(op="tokenize", prompt=request(4)["prompt"])["token_ids"]
        scored = {"token_ids": begin + told["token_ids"], "prompt_logprobs": 3, "max_tokens": 0}
        first = self.client.ask(**scored)
        self.assertEqual(("length", [], ""), (first["finish_reason"], first["token_ids"], first["text"]))
        entries = first["prompt_logprobs"]
        self.assertEqual(scored["token_ids"], [entry["token_id"] for entry in entries])
        self.assertIsNone(entries[0]["logprob"])
        self.assertEqual(told["logprobs"], entries[len(begin):])
        for entry in entries[1:]:
            if entry["token_id"] in entry["top_ids"]:
                self.assertEqual(entry["logprob"], entry["top_logprobs"][entry["top_ids"].index(entry["token_id"])])
        for more in ({}, {"num_draft_tokens": 0}, {"max_tokens": 1}, {"max_tokens": 20, "num_draft_tokens": 8}, {"logprobs": 2}):
            again = self.client.ask(**{**scored, "ignore_eos": True, **more})
            self.assertEqual(entries, again["prompt_logprobs"], more)
            self.assertEqual(0, again["usage"]["cached_tokens"], "what is cached has no logits")
        cached = self.client.ask(token_ids=scored["token_ids"], max_tokens=1)
        self.assertEqual([], cached["prompt_logprobs"])
        self.assertGreater(cached["usage"]["cached_tokens"], 0)

    def test_the_logprobs_of_a_prompt_are_in_the_first_map_of_a_stream(self):
        asked = request(5, max_tokens=48, prompt_logprobs=1)
        whole = self.client.ask(**asked)
        maps = self.client.wait(self.client.send({**asked, "stream": True}))
        self.assertGreater(len(maps), 2)
        self.assertEqual(whole["usage"]["prompt_tokens"], len(whole["prompt_logprobs"]))
        self.assertEqual(whole["prompt_logprobs"], maps[0]["prompt_logprobs"])
        self.assertFalse(any(each["prompt_logprobs"] for each in maps[1:]))
        only = self.client.wait(self.client.send({**asked, "stream": True, "max_tokens": 0}))
        self.assertEqual(1, len(only))
        self.assertEqual(whole["prompt_logprobs"], only[0]["prompt_logprobs"])

    def test_chat_messages_pass_through_the_template(self):
        chat = self.client.ask(messages=[{"role": "user", "content": "the thing"}], max_tokens=4, temperature=0.0)
        text = self.client.ask(prompt="user: the thing\nassistant: ", max_tokens=4, temperature=0.0)
        self.assertEqual(text["token_ids"], chat["token_ids"])
        self.assertEqual(text["usage"]["prompt_tokens"], chat["usage"]["prompt_tokens"])

    def test_the_same_request_id_is_answered_once_and_again_the_same(self):
        one = os.urandom(16).hex()
        first = self.client.wait(self.client.send({"prompt": "in the", "max_tokens": 16}, one))[-1]
        before = self.system.status()["requests_total"]
        again = self.client.wait(self.client.send({"prompt": "in the", "max_tokens": 16}, one))[-1]
        self.assertEqual(first, again)
        self.assertEqual(before, self.system.status()["requests_total"])
        other = self.client.wait(self.client.send({"prompt": "in the inn", "max_tokens": 16}, one))[-1]
        self.assertEqual("invalid_value", other["error"]["code"])
        self.assertEqual("request_id", other["error"]["param"])

    def test_a_missing_seed_follows_from_the_request_id(self):
        one, two = os.urandom(16).hex(), os.urandom(16).hex()
        ask = {"prompt": "in the", "max_tokens": 32, "temperature": 1.0, "ignore_eos": True}
        first = self.client.wait(self.client.send(ask, one))[-1]
        self.assertNotEqual(first["token_ids"], self.client.wait(self.client.send(ask, two))[-1]["token_ids"])

    def test_bad_input_is_refused_at_once_naming_the_field(self):
        cases = [
            ({"prompt": "x", "temperature": -1.0}, "temperature"), ({"prompt": "x", "temperature": float("nan")}, "temperature"),
            ({"prompt": "x", "top_p": 0.0}, "top_p"), ({"prompt": "x", "max_tokens": 0}, "max_tokens"),
            ({"prompt": "x", "max_tokens": 10**6}, "max_tokens"), ({"prompt": "x " * 4000, "max_tokens": 1}, "prompt"),
            ({"prompt": ""}, "prompt"), ({"token_ids": [1, 2, 10**6]}, "token_ids"), ({"prompt": "x", "nonsense": 1}, "nonsense"),
            ({"prompt": "x", "model": "another"}, "model"), ({"prompt": "x", "stop": [""]}, "stop"),
            ({"prompt": "x", "token_ids": [1]}, None), ({}, None),
        ]
        for ask, param in cases:
            with self.subTest(ask=str(ask)[:60]):
                reply = self.client.ask(**ask)
            self.assertIn("error", reply, ask)
            self.assertTrue(reply["error"]["message"], ask)
            if param is not None:
                self.assertEqual(param, reply["error"]["param"], (ask, reply))
        socket = self.req()
        for body in (b"", b"\xc1", msgpack.packb([1, 2]), b"\x81\xa6prompt\xc4\x02\xff\xff", msgpack.packb("x") * 3):
            socket.send(body)
            self.assertIn("error", msgpack.unpackb(socket.recv()), body)
        socket.send(msgpack.packb({"prompt": "x", "stream": True}))
        self.assertEqual("stream", msgpack.unpackb(socket.recv())["error"]["param"])

    def test_tokens_and_text_without_a_target(self):
        text = "the thing in there"
        tokens = self.client.ask(op="tokenize", prompt=text)
        used = self.client.ask(prompt=text, max_tokens=1)["usage"]["prompt_tokens"]
        self.assertEqual(used, tokens["n_tokens"])
        self.assertEqual(used, len(tokens["token_ids"]))
        back = self.client.ask(op="detokenize", token_ids=tokens["token_ids"])
        self.assertEqual((text, used), (back["text"], back["n_tokens"]))
        chat = self.client.ask(op="tokenize", messages=[{"role": "user", "content": "the thing"}])
        plain = self.client.ask(op="tokenize", prompt="user: the thing\nassistant: ")
        self.assertEqual(plain["token_ids"], chat["token_ids"])
        for ask, param in (({"op": "detokenize", "token_ids": [1, 10**6]}, "token_ids"), ({"op": "detokenize"}, "token_ids"),
                           ({"op": "tokenize", "token_ids": [1]}, "token_ids"), ({"op": "tokenize"}, "prompt"),
                           ({"op": "tokenize", "prompt": "x", "model": "another"}, "model")):
            self.assertEqual(param, self.client.ask(**ask)["error"]["param"], ask)

    def test_messages_of_a_wrong_shape_are_answered_in_words(self):
        socket = self.system.context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, 60000)
        socket.connect(self.system.client)
        self.addCleanup(socket.close)
        for parts in ([b""], [b"a", b"b"], [b"x"] * 100, [b"x"] * 2000):
            socket.send_multipart(parts)
            self.assertIn("error", msgpack.unpackb(socket.recv()), len(parts))

    def test_cancel_ends_a_request_and_frees_its_place(self):
        one = self.client.send(request(4, max_tokens=1900, stream=True, num_draft_tokens=0))
        wait_for(lambda: list(self.client.pump()) or self.client.inbox[one], "the first piece")
        other = Client(self.system)
        self.addCleanup(other.close)
        said = other.wait(other.send({"op": "cancel"}, one))[-1]
        end = self.client.wait(one)[-1]
        if end["finish_reason"] != "length":  # it may have been quicker than the cancel
            self.assertEqual("cancelled", end["finish_reason"])
            self.assertEqual("cancelled", said["finish_reason"])
            self.assertLess(end["usage"]["completion_tokens"], 1900)
        wait_for(lambda: self.idle(), "no sequence left")

    def test_a_client_that_vanishes_is_cancelled(self):
        other = Client(self.system)
        for i in range(8):
            other.send(request(i, max_tokens=1900, stream=True, num_draft_tokens=0))
        list(other.pump(5))
        other.close()
        wait_for(lambda: self.idle(), "no sequence left")

    def test_a_deadline_ends_a_request(self):
        reply = self.client.ask(**request(5, max_tokens=1900, timeout_ms=5, num_draft_tokens=0))
        self.assertTrue(reply.get("finish_reason") in ("deadline", "length") or reply["error"]["code"] == "deadline_exceeded", reply)

    def test_overload_is_refused_at_once(self):
        ids = [self.client.send(request(i, max_tokens=400, num_draft_tokens=0)) for i in range(200)]
        ends = [self.client.wait(one)[-1] for one in ids]
        refused = [end for end in ends if "error" in end]
        self.assertGreater(len(refused), 0)
        self.assertEqual({"queue_full"}, {end["error"]["code"] for end in refused})
        self.assertGreaterEqual(len(ends) - len(refused), 75)  # of 80 places five are kept for others

    def test_metrics_of_all_services_are_one_text(self):
        text = self.client.ask(op="metrics")["metrics_text"]
        for name in ("foretoken_generation_tokens_total", "foretoken_requests_total", "foretoken_draft_steps_total",
                     "foretoken_transport_messages_total"):
            self.assertEqual(1, text.count(f"# TYPE {name} "), name)

    def idle(self):
        status = self.system.status()
        return status and status["requests_active"] == 0 and all(
            s["active"] == 0 and s["queued"] == 0 for s in status["services"] if s["role"] == "target")


class SelfDraft(unittest.TestCase):
    def test_a_target_guesses_for_itself_with_its_weights_in_four_bits(self):
        """Beside a target of the demo's kind, that has what four bits keep."""
        target = str(pathlib.Path(__file__).resolve().parents[2] / "models/demo-target")
        with System(target_model=target, settings=["model.draft=self:int4", "kv_cache.memory=256MiB", "draft.memory=256MiB",
                                                   "target.threads=1", "draft.threads=1"]) as system:
            system.start("router", "tokenizer", "draft", "target")
            system.wait_ready()
            self.assertIn("int4", system.services("draft")[0]["dtype"])
            self.assertNotIn("int4", system.services("target")[0]["dtype"])
            client = Client(system)
            self.addCleanup(client.close)
            asked = {"prompt": "Once upon a time", "max_tokens": 64, "temperature": 0.7, "seed": 3, "ignore_eos": True}
            plain = client.ask(**asked, num_draft_tokens=0)
            guesses = accepted = 0

            def enough_guesses():
                """One answer may have few: a draft that is slow to follow its prompt guesses late."""
                nonlocal guesses, accepted
                reply = client.ask(**asked, num_draft_tokens=3)
                self.assertEqual(plain["token_ids"], reply["token_ids"])
                spec = reply["metrics"]["speculative_decoding"]
                guesses += spec["num_draft_tokens"]
                accepted += spec["num_accepted_draft_tokens"]
                return guesses >= 60
            wait_for(enough_guesses, "60 tokens that the draft guessed")
            self.assertGreater(accepted, guesses / 2)
            system.assert_alive()


if __name__ == "__main__":
    unittest.main(verbosity=2)
