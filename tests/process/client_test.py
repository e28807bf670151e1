"""The Python client while services die: it asks again by itself, and every text is that of an undisturbed request."""
import asyncio
import pathlib
import sys
import threading
import unittest

from harness import PATIENCE, System, request, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients/python"))

import foretoken  # noqa: E402

TOKENS = 1024  # long enough to be killed in


class PythonClient(unittest.TestCase):
    def setUp(self):
        self.system = System().__enter__()
        self.addCleanup(lambda: self.system.__exit__(None, None, None))
        self.system.start("router", "tokenizer", "draft", "target")
        self.system.wait_ready()

    def restart_router(self):
        self.system.kill("router")
        self.system.start("router")

    def asked(self, index, **more):
        """The arguments of the undisturbed request and of those that are compared with it."""
        parameters = request(index, TOKENS, **more)
        return parameters.pop("prompt"), parameters

    def test_the_router_is_killed_under_a_blocking_stream(self):
        with foretoken.Client(self.system.client, timeout_s=PATIENCE) as client:
            prompt, parameters = self.asked(1)
            whole = client.generate(prompt, **parameters)
            pieces = []
            for piece in client.stream(prompt, **parameters):
                pieces.append(piece)
                if len(pieces) == 3:
                    self.restart_router()
            self.assertEqual(whole.text, "".join(piece.text for piece in pieces))
            self.assertEqual(whole.token_ids, [token for piece in pieces for token in piece.token_ids])
            self.assertEqual((whole.text, whole.token_ids), (client.last_reply.text, client.last_reply.token_ids))

    def test_the_router_is_killed_under_a_blocking_reply_without_a_seed(self):
        """The seed comes from the id, so the id must be the same: it is what the text shows."""
        own = bytes(range(16))
        _, parameters = self.asked(1, request_id=own)
        del parameters["seed"]
        with foretoken.Client(self.system.client, timeout_s=PATIENCE) as client:
            whole = client.generate("the thing", **parameters)
            self.restart_router()  # which has forgotten that one
            met = []

            def kill():
                with self.system.stopped("target"):  # the request has not ended, however fast the machine is
                    stopped.set()
                    wait_for(self.is_at_work, "the request runs")
                    self.restart_router()
                    met.append("the request")
            stopped, killer = threading.Event(), threading.Thread(target=kill)
            killer.start()
            self.assertTrue(stopped.wait(PATIENCE), "the target is stopped")
            again = client.generate("the thing", **parameters)
            killer.join()
            self.assertEqual(["the request"], met)
            self.assertEqual((own.hex(), whole.token_ids), (again.id, again.token_ids))

    def test_tokens_states_and_metrics_of_both_clients(self):
        text, talk = "the thing in there ü", [{"role": "user", "content": "the thing"}]
        with foretoken.Client(self.system.client, timeout_s=PATIENCE) as client:
            ids = client.tokenize(text)
            self.assertEqual(text, client.detokenize(ids))
            whole = client.generate(text, max_tokens=2)
            self.assertEqual(whole.usage["prompt_tokens"], len(ids))
            self.assertEqual(client.generate(talk, max_tokens=1).usage["prompt_tokens"], len(client.tokenize(talk)))
            self.assertLess(len(client.tokenize(talk, add_generation_prompt=False)), len(client.tokenize(talk)))
            with self.assertRaises(foretoken.ForetokenError) as refused:
                client.tokenize(text, model="other")
            self.assertEqual("model_not_found", refused.exception.code)
            self.assertIn("# TYPE foretoken_", client.metrics())
            states = {service["name"]: service["state"] for service in client.status()["services"]}
            self.assertEqual("ready", states["target-0"])

        async def ask():
            async with foretoken.AsyncClient(self.system.client, timeout_s=PATIENCE) as client:
                return await asyncio.gather(client.tokenize(text), client.detokenize(ids, model="tiny"), client.metrics(), client.status())

        asked = asyncio.run(ask())
        self.assertEqual([ids, text], asked[:2])
        self.assertIn("# TYPE foretoken_", asked[2])
        self.assertIn("tiny", asked[3]["models"])

    def is_at_work(self):
        status = self.system.status()
        return status and status["requests_active"] > 0

    def test_the_router_is_killed_under_many_asyncio_calls(self):
        async def use():
            async with foretoken.AsyncClient(self.system.client, timeout_s=PATIENCE) as client:
                asked = [self.asked(index) for index in range(6)]
                truth = await asyncio.gather(*(client.generate(prompt, **more) for prompt, more in asked))
                first = asyncio.Event()

                async def streamed(prompt, more):
                    pieces = []
                    async for piece in client.stream(prompt, **more):
                        pieces.append(piece)
                        if len(pieces) == 2:
                            first.set()
                    return "".join(piece.text for piece in pieces), [token for piece in pieces for token in piece.token_ids]

                async def restart():
                    await first.wait()
                    await asyncio.get_running_loop().run_in_executor(None, self.restart_router)

                beside = asyncio.ensure_future(restart())
                streams = asyncio.gather(*(streamed(prompt, more) for prompt, more in asked))
                replies = await asyncio.gather(*(client.generate(prompt, **more) for prompt, more in asked))
                streams = await streams
                await beside
                return truth, [(each.text, each.token_ids) for each in replies], streams

        truth, replies, streams = asyncio.run(use())
        truth = [(each.text, each.token_ids) for each in truth]
        self.assertEqual(truth, replies)
        self.assertEqual(truth, streams)


if __name__ == "__main__":
    unittest.main()
