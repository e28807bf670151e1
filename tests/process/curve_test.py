"""Services that speak TCP with keys: a request is served; whoever has no key, or one that is not listed, gets nothing and is
counted."""
import os
import re
import unittest

import zmq
from harness import Client, System, free_port, plain_answers, request, wait_for

ROLES = ("router", "tokenizer", "draft", "target")


class Curve(unittest.TestCase):
    def setUp(self):
        self.router, self.draft = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
        self.system = System(settings=[f"bus.router={self.router}", f'bus.draft=["{self.draft}"]']).__enter__()
        self.addCleanup(lambda: self.system.__exit__(None, None, None))
        self.keys = {role: zmq.curve_keypair() for role in ROLES}
        where = {"router": self.router, "draft": self.draft}
        self.peers = self.write("peers", "".join(
            f"{public.decode()} {role}:{role}-0 {where.get(role, '')}\n" for role, (public, _) in self.keys.items()))

    def write(self, name, text):
        path = os.path.join(self.system.folder, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(text)
        return path

    def start(self, role, key=None):
        public, secret = key or self.keys[role]
        file = self.write(f"{role}.secret", f'public = "{public.decode()}"\nsecret = "{secret.decode()}"\n')
        before = list(self.system.settings)
        self.system.settings += [f"bus.curve_secret={file}", f"bus.curve_peers={self.peers}"]
        self.system.start(role)
        self.system.settings = before

    def dealer(self, endpoint, server_role=None):
        """A stranger: plain, or with a key of its own that nobody listed."""
        socket = self.system.context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        if server_role is not None:
            socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
            socket.curve_serverkey = self.keys[server_role][0]
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

    def test_with_keys_it_serves_and_without_it_does_not(self):
        for role in ROLES:
            self.start(role)
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
        self.assertEqual(0, self.refused(client, "internal"))
        for endpoint, role in ((self.router, "router"), (self.draft, "draft")):
            for server_role in (None, role):
                link = "draft" if role == "draft" else "internal"
                before = self.refused(client, link)
                stranger = self.dealer(endpoint, server_role)
                wait_for(lambda: self.refused(client, link) > before,
                         f"a stranger at {role} is counted")
                self.assertEqual(0, stranger.poll(50), "it hears nothing")
                stranger.close()
        self.assertEqual(64, len(client.ask(**request(0))["token_ids"]))
        self.system.assert_alive()

    def test_a_service_whose_key_is_not_listed_serves_nobody(self):
        for role in ("router", "tokenizer", "target"):
            self.start(role)
        self.system.wait_ready(drafts=0)
        client = Client(self.system)
        self.addCleanup(client.close)
        self.start("draft", key=zmq.curve_keypair())
        wait_for(lambda: self.refused(client, "internal") > 0, "its handshake is refused")
        self.assertEqual([], self.system.services("draft"))
        self.assertEqual(64, len(client.ask(**request(0))["token_ids"]))
        self.assertEqual(0, self.system.kill("draft", 15))


if __name__ == "__main__":
    unittest.main(verbosity=2)
