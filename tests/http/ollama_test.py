"""Ollama's own client asks which models there are, and is sent to OpenAI's protocol for the rest; nothing of it is there by default."""

import json
import sys
import unittest

import ollama

from edge_system import EdgeSystem
from harness import wait_for  # behind edge_system, which finds it


class Ollama(unittest.TestCase):
    def start(self, *settings):
        system = EdgeSystem(settings).__enter__()
        self.addCleanup(lambda: system.__exit__(None, None, None))
        return system.start_all()

    def test_the_official_client_finds_the_models(self):
        system = self.start("edge.ollama=true", "model.alias=little")
        client = ollama.Client(host=f"http://127.0.0.1:{system.port}")
        # A target says how much memory it has with its first heartbeat.
        wait_for(lambda: client.list().models[1].size > 0, "the target's size is known")
        listed = client.list().models
        self.assertEqual(["little", "tiny"], [model.model for model in listed])
        self.assertEqual(("safetensors", listed[0].digest), (listed[1].details.format, listed[1].digest))
        running = client.ps().models
        self.assertEqual(["little", "tiny"], [model.model for model in running])
        self.assertEqual({2048}, {model.context_length for model in running})
        self.assertLess(listed[1].modified_at, running[1].expires_at)
        shown = client.show("tiny")
        self.assertEqual((["completion"], 2048), (shown.capabilities, shown.modelinfo["foretoken.context_length"]))
        with self.assertRaises(ollama.ResponseError) as caught:
            client.show("other")
        self.assertEqual(404, caught.exception.status_code)
        for call in (lambda: client.chat("tiny", [{"role": "user", "content": "x"}]), lambda: client.generate("tiny", "x"),
                     lambda: client.pull("x"), lambda: client.delete("tiny")):
            with self.assertRaises(ollama.ResponseError) as caught:
                call()
            self.assertEqual(501, caught.exception.status_code)
            self.assertIn("/v1/chat/completions", caught.exception.error)
        self.assertEqual("0.11.0", json.loads(system.http("GET", "/api/version")[2])["version"])
        self.assertEqual("Ollama is running", system.http("GET", "/")[2])
        self.assertIn("<html", system.http("GET", "/", headers={"Accept": "text/html,*/*"})[2])
        system.assert_alive()

    def test_without_the_key_of_the_configuration_nothing_of_it_is_there(self):
        system = self.start()
        for method, path in (("GET", "/api/tags"), ("GET", "/api/version"), ("POST", "/api/show"), ("POST", "/api/pull")):
            status, _, text = system.http(method, path, {} if method == "POST" else None)
            self.assertEqual((404, f"no such endpoint: {method} {path} (edge.ollama is false)"), (status, json.loads(text)["error"]))
        self.assertNotIn("edge.ollama", system.http("GET", "/nothing")[2])
        self.assertIn("<html", system.http("GET", "/")[2])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
