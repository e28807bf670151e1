"""Services that speak TCP with keys, also to their clients on this host: a request is served; a client that has no key, or one that
is not listed, gets nothing and is counted."""
import json
import os
import re
import subprocess
import sys
import unittest

import zmq
from harness import BIN, Client, System, free_port, plain_answers, request, wait_for

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../clients/python"))
import foretoken  # noqa: E402


class Curve(unittest.TestCase):
    def setUp(self):
        self.router, self.draft = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
        self.system = System(settings=[f"bus.router={self.router}", f'bus.draft=["{self.draft}"]']).__enter__()
        self.addCleanup(lambda: self.system.__exit__(None, None, None))
        self.system.make_keys(self.router, self.draft)

    def stranger(self, endpoint, server_role, pair):
        """Who knocks without a key, or with one of no use at that door."""
        socket = self.system.context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        if pair is not None:
            socket.curve_publickey, socket.curve_secretkey = pair
            socket.curve_serverkey = self.system.keys[server_role][0]
        socket.connect(endpoint)
        self.addCleanup(socket.close)
        for _ in range(10):
            socket.send_multipart([b"let me in", b""])
        return socket

    def refused(self, client, link):
        """Handshakes that the services refused on links of this kind, each counted where it was refused."""
        text = client.ask(op="metrics")["metrics_text"]
        found = re.findall(r'^foretoken_transport_handshakes_refused_total\{(.*)\} (\d+)$', text, re.M)
        return sum(int(count) for labels, count in found if f'link="{link}"' in labels)

    def tool(self, *words, key="test"):
        settings = [s for s in self.system.settings if s.startswith("bus.")] + (self.system.key_settings(key) if key else [])
        return subprocess.run([os.path.join(BIN, "foretoken"), *words, *(word for s in settings for word in ("--set", s))],
                              capture_output=True, text=True, timeout=120)

    def test_with_keys_it_serves_and_without_it_does_not(self):
        self.system.start("router", "tokenizer", "draft", "target")
        self.system.wait_ready()
        client = Client(self.system)
        self.addCleanup(client.close)
        truth = plain_answers(client, 2)

        def drafted():
            answers = [client.ask(**request(i, num_draft_tokens=4)) for i in range(2)]
            for plain, answer in zip(truth, answers):
                self.assertEqual(plain["token_ids"], answer["token_ids"])
            return any(a["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"] > 0 for a in answers)
        wait_for(drafted, "an accepted token of the draft, over TCP with keys")
        self.assertEqual(0, self.refused(client, "internal") + self.refused(client, "client"))
        keys = self.system.keys
        for endpoint, role, link, wrong in ((self.router, "router", "internal", self.system.curve[1:]),
                                            (self.draft, "draft", "draft", self.system.curve[1:]),
                                            (self.system.client, "router", "client", keys["draft"])):
            for pair in (None, zmq.curve_keypair(), wrong):
                before = self.refused(client, link)
                stranger = self.stranger(endpoint, role, pair)
                wait_for(lambda: self.refused(client, link) > before, f"a stranger at {endpoint} is counted")
                self.assertEqual(0, stranger.poll(50), "it hears nothing")
                stranger.close()
        self.assertEqual(64, len(client.ask(**request(0))["token_ids"]))
        self.system.assert_alive()

    def test_the_command_and_the_python_client_use_their_keys_on_this_host_too(self):
        self.system.start("router", "tokenizer", "target")
        self.system.wait_ready(drafts=0)
        with foretoken.Client(self.system.client, curve=self.system.curve) as client:
            text = client.generate("Once", max_tokens=8, temperature=0, ignore_eos=True).text
        done = self.tool("generate", "--raw", "-n", "8", "-t", "0", "--ignore-eos", "--no-stream", "Once")
        self.assertEqual((0, text + "\n"), (done.returncode, done.stdout), done.stderr)
        done = self.tool("ps", "--json")
        self.assertTrue(json.loads(done.stdout)["ready"], done.stderr)
        for key, words in ((None, "takes only clients with a key; set bus.curve_secret and bus.curve_peers"),
                           ("tokenizer", f"refuses the key of {self.system.folder}/tokenizer.key")):
            for verb in (("ps",), ("generate", "Once"), ("demo",), ("bench", "serve")):
                done = self.tool(*verb, key=key)
                self.assertEqual((2, ""), (done.returncode, done.stdout), done.stderr)
                self.assertIn(words, done.stderr)

    def test_a_service_whose_key_is_not_listed_serves_no_request(self):
        self.system.start("router", "tokenizer", "target")
        self.system.wait_ready(drafts=0)
        client = Client(self.system)
        self.addCleanup(client.close)
        self.system.keys["draft"] = zmq.curve_keypair()
        self.system.start("draft")
        wait_for(lambda: self.refused(client, "internal") > 0, "its handshake is refused")
        self.assertEqual([], self.system.services("draft"))
        self.assertEqual(64, len(client.ask(**request(0))["token_ids"]))
        self.assertEqual(0, self.system.kill("draft", 15))


if __name__ == "__main__":
    unittest.main(verbosity=2)
