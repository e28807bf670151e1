"""Several models from one configuration, behind one router: every text is the one that its model gives alone, whatever the others do
and whichever of its targets dies; drafts work for their own model, or for one of the same vocabulary that has none."""
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

import tiny_model
from harness import BIN, Client, System, plain_answers, request, wait_for

DEMO = str(pathlib.Path(__file__).resolve().parents[2] / "models")
TOKENS, REQUESTS = 48, 12
SMALL = ("kv_cache.memory=128MiB", "draft.memory=64MiB", "target.threads=1", "draft.threads=1", "speculation.adaptive=false")


def write_random(folder, seed):
    """A model of random weights that reads and writes with the demo pair's tokenizer."""
    subprocess.run([os.path.join(BIN, "foretoken"), "model", "init-random", folder, "--seed", str(seed), "--tokenizer", "demo"],
                   check=True, capture_output=True, timeout=60)
    return folder


def several(models, *settings):
    """models: name -> the keys of its table."""
    system = System(target_model="of each model")
    base = [setting for setting in system.settings if not setting.startswith("model.")]
    tables = [f"model.{name}.{key}={value}" for name, keys in models.items() for key, value in keys.items()]
    system.settings = [*base, *SMALL, *tables, *settings]
    return system


def texts(client, model, count=REQUESTS, **more):
    ids = [client.send(request(i, TOKENS, model=model, **more)) for i in range(count)]
    return [client.wait(one)[-1] for one in ids]


def answer_of(reply):
    assert "text" in reply, reply
    return reply["text"], reply["token_ids"]


class Several(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="ftk-models-")
        own = lambda name: os.path.join(cls.folder.name, name)
        cls.models = {
            "demo": {"target": f"{DEMO}/demo-target", "draft": f"{DEMO}/demo-draft", "alias": "story"},
            # The vocabulary of the demo pair, and no draft of its own.
            "other": {"target": write_random(own("other"), 5), "name": "org/other"},
            # Another vocabulary.
            "tiny": {"target": tiny_model.write_model(own("tiny"), seed=1),
                     "draft": tiny_model.write_model(own("tiny-draft"), seed=1, noise=0.05)},
        }
        cls.alone = {name: cls.served_alone(keys["target"]) for name, keys in cls.models.items()}

    @classmethod
    def served_alone(cls, folder):
        with System(SMALL, target_model=folder) as system:
            system.start("router", "tokenizer", "target")
            system.wait_ready(drafts=0)
            client = Client(system)
            answers = [answer_of(reply) for reply in plain_answers(client, REQUESTS, TOKENS)]
            client.close()
            system.assert_alive()
            return answers

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.system = several(self.models, "router.default_model=story").__enter__()
        self.addCleanup(lambda: self.system.__exit__(None, None, None))
        self.names = {name: keys.get("name", name) for name, keys in self.models.items()}

    def start(self):
        self.system.start("router")
        for name, keys in self.models.items():
            self.system.start(f"tokenizer-{name}-0", f"target-{name}-0", *([f"draft-{name}-0"] if "draft" in keys else []))
        self.system.start("target-demo-1")
        self.system.wait_ready(targets=4, drafts=2)
        self.client = Client(self.system)
        self.addCleanup(self.client.close)
        wait_for(lambda: all(s["ready"] for s in self.client.ask(op="status")["model_states"]), "each model has its tokenizer")

    def links(self):
        return {s["name"]: s["links"].split(", ") for s in self.system.services("target")}

    def check(self, replies):
        for name, answers in replies.items():
            for number, reply in enumerate(answers):
                self.assertEqual(self.alone[name][number % REQUESTS], answer_of(reply), f"{name} {number}")
                self.assertEqual(self.names[name], reply["model"])

    def test_each_answers_as_it_does_alone_whichever_target_dies_and_with_drafts_of_its_own(self):
        self.start()
        ways = {"target-demo-0": "draft-demo-0", "target-demo-1": "draft-demo-0", "target-other-0": "draft-demo-0",
                "target-tiny-0": "draft-tiny-0"}
        wait_for(lambda: {name: [link.split()[0] for link in links if link] for name, links in self.links().items()} ==
                 {name: [draft] for name, draft in ways.items()}, f"each target has its draft: {ways}")

        def a_request_went_on_at_the_other_target():
            # Stopped, it has answered nothing of what it is given when it is killed, however fast the machine is.
            self.system.processes["target-demo-1"].send_signal(signal.SIGSTOP)
            asked = [(name, number, self.client.send(request(number, TOKENS, model=model)))
                     for _ in range(2) for number in range(REQUESTS) for name, model in self.names.items()]
            # The router has placed all of the demo model when all that the other target of it has were answered.
            answered = lambda: list(self.client.pump(0)) and any(self.client.inbox[own] for name, _, own in asked if name == "demo")
            wait_for(answered, "the requests are at the targets")
            self.system.kill("target-demo-1", signal.SIGKILL)
            replies = {name: [] for name in self.names}
            for name, number, own in asked:
                replies[name].append(self.client.wait(own)[-1])
            self.check(replies)
            migrated = [line for line in self.client.ask(op="metrics")["metrics_text"].splitlines()
                        if line.startswith("foretoken_request_migrations_total")]
            if float(migrated[0].split()[-1]) > 0:
                return True
            # On a slow machine it counted as gone before it was given anything.
            self.system.start("target-demo-1")
            self.system.wait_ready(targets=4, drafts=2)
            return False

        wait_for(a_request_went_on_at_the_other_target, "a request went on at the other target", 200)
        self.system.assert_alive()

        def guesses_of_each_own_draft_stood():
            """Heartbeats say it later than the answers, and a tiny model may be faster than its draft: asked until they did."""
            for name in ("demo", "tiny"):
                self.client.ask(**request(0, 512, model=self.names[name]))
            services = {s["name"]: s for s in self.system.services("target")}
            return all(name in services and services[name]["accepted_total"] > 0 for name in ("target-demo-0", "target-tiny-0"))

        wait_for(guesses_of_each_own_draft_stood, "guesses stood at target-demo-0 and target-tiny-0", 120)
        for service in self.system.services("target"):
            self.assertNotIn("vocabularies", service["note"], "a draft of another model is nothing to complain about")

    def test_status_metrics_names_and_tokenizers_are_of_the_model_that_is_meant(self):
        self.start()
        status = self.client.ask(op="status")
        self.assertEqual(["demo", "org/other", "story", "tiny"], status["models"])
        states = {state["name"]: state for state in status["model_states"]}
        self.assertEqual({"demo": (2, True, True), "org/other": (1, True, False), "tiny": (1, True, False)},
                         {name: (s["n_targets"], s["ready"], s["is_default"]) for name, s in states.items()})
        # No name and "default" are the default model; an alias is its model.
        for more in ({}, {"model": "default"}, {"model": "story"}):
            reply = self.client.ask(**request(0, TOKENS, **more))
            self.assertEqual((self.alone["demo"][0], "demo"), (answer_of(reply), reply["model"]))
        refused = self.client.ask(**request(0, TOKENS, model="code"))["error"]
        self.assertEqual(("model_not_found", "model"), (refused["code"], refused["param"]))
        self.assertIn("there is demo, org/other, tiny", refused["message"])
        ids = {name: self.client.ask(op="tokenize", prompt="the thing", model=model)["token_ids"]
               for name, model in self.names.items()}
        self.assertEqual(ids["demo"], ids["other"])
        self.assertNotEqual(ids["demo"], ids["tiny"])
        self.assertEqual(ids["demo"], self.client.ask(op="tokenize", prompt="the thing")["token_ids"])
        for model in self.names.values():
            texts(self.client, model, 2)
        metrics = self.client.ask(op="metrics")["metrics_text"].splitlines()
        for model, least in (("demo", 5), ("org/other", 2), ("tiny", 2)):
            counted = [line for line in metrics if line.startswith("foretoken_e2e_request_latency_seconds_count")
                       and f'model_name="{model}"' in line]
            self.assertEqual(1, len(counted), model)
            self.assertEqual(least, float(counted[0].split()[-1]), counted)

    def test_a_draft_of_its_own_takes_the_place_of_another_models(self):
        self.system.start("router", "tokenizer-demo-0", "target-demo-0", "tokenizer-other-0", "draft-other-0")
        self.assertEqual(78, self.system.processes.pop("draft-other-0").wait(60), "a model without a draft has none to run")
        self.system.settings.append(f"model.other.draft={self.models['other']['target']}")
        self.system.start("draft-other-0")
        self.system.wait_ready()
        first = lambda: [link.split()[0] for link in self.links().get("target-demo-0", []) if link]
        wait_for(lambda: first() == ["draft-other-0"], "the only draft of the vocabulary is used")
        self.system.start("draft-demo-0")
        wait_for(lambda: first() == ["draft-demo-0"], "its own draft is used alone")
        client = Client(self.system)
        self.addCleanup(client.close)
        self.check({"demo": texts(client, "demo")})
        self.system.kill("draft-demo-0")
        wait_for(lambda: first() == ["draft-other-0"], "the other one again")
        self.check({"demo": texts(client, "demo")})

    def test_a_name_of_two_models_is_refused_at_the_configuration_and_at_the_router(self):
        self.system.settings.append("model.tiny.alias=org/other")
        self.system.start("router")
        self.system.start("target-tiny-0")
        self.assertEqual(78, self.system.processes.pop("target-tiny-0").wait(60))
        with open(os.path.join(self.system.folder, "target-tiny-0.log")) as log:
            self.assertIn('the name "org/other" means two models, [model.other] and [model.tiny]', log.read())
        self.assertEqual(78, self.system.processes.pop("router").wait(60))
        # Another host with another configuration.
        self.system.settings.pop()
        self.system.start("router", "target-other-0", "tokenizer-other-0")
        self.system.wait_ready(drafts=0)
        self.system.settings = [*self.system.settings, "model.other.name=x", "model.tiny.alias=org/other"]
        self.system.start("target-tiny-0")
        note = wait_for(lambda: [s["note"] for s in self.system.services("target", "refused")], "it is refused")[0]
        self.assertRegex(note, r'the name "org/other" means one model, and target-tiny-0 \(model .*target-other-0 \(model .*differ')
        client = Client(self.system)
        self.addCleanup(client.close)
        self.check({"other": texts(client, "org/other", 4)})

    def test_an_id_without_a_model_is_refused_by_name(self):
        for name in ("target-0", "tokenizer-code-0", "draft-0"):
            self.system.start(name)
            self.assertEqual(78, self.system.processes.pop(name).wait(60))
            with open(os.path.join(self.system.folder, f"{name}.log")) as log:
                self.assertIn("there is demo, other, tiny", log.read())


if __name__ == "__main__":
    unittest.main()
