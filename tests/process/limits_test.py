"""Services under limits of the system: too few descriptors, idle peers that use them up, too little memory. Each ends with a
sentence or serves on; none is ended by a library."""
import json
import os
import re
import resource
import signal
import socket
import unittest

from harness import Client, System, plain_answers, request, wait_for

ROLES = ("router", "tokenizer", "draft", "target")
MIB = 1 << 20


class Limits(unittest.TestCase):
    def fresh(self, **options):
        system = System(**options).__enter__()
        self.addCleanup(lambda: system.__exit__(None, None, None))
        return system

    def ends(self, system, name, before):
        """How a service ends that is started so: its exit code and what it said. Asked to stop once it is ready."""
        path = os.path.join(system.folder, f"{name}.log")
        if os.path.exists(path):
            os.unlink(path)
        system.start(name, before=before)
        process = system.processes.pop(name)

        def said():
            with open(path, errors="replace") as log:
                return log.read()

        wait_for(lambda: process.poll() is not None or " ready" in said(), f"{name} is ready or ends")
        if process.poll() is None:
            os.kill(process.pid, signal.SIGTERM)
        return process.wait(60), said()

    def test_too_few_descriptors_are_refused_and_a_soft_limit_is_raised(self):
        system = self.fresh()
        for role in ROLES:
            code, said = self.ends(system, role, ("prlimit", "--nofile=32:32"))
            self.assertEqual(75, code, said)
            self.assertIn("this process may have 32 files and sockets open and needs 128 at least: raise the limit (ulimit -n", said)
        system.start(*ROLES, before=("prlimit", "--nofile=32:128"))
        system.wait_ready()
        for role in ROLES:
            with open(f"/proc/{system.processes[role].pid}/limits") as limits:
                self.assertRegex(limits.read(), r"Max open files +128 +128 ")

    def test_idle_peers_that_use_up_all_descriptors_end_no_service(self):
        system = self.fresh()
        system.start(*ROLES, before=("prlimit", "--nofile=128:128"))
        system.wait_ready()
        client = Client(system)
        self.addCleanup(client.close)
        truth = plain_answers(client, 2)
        doors = [os.path.join(system.folder, "r", name) for name in ("router", "draft-0", "draft-0.memory")]
        idle = []

        def knock(door):
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            peer.setblocking(False)
            try:
                peer.connect(door)
                idle.append(peer)
            except OSError:
                peer.close()  # its backlog is full

        def turned_away(name):
            """Those whom the service has turned away read the end; the others hear nothing, or a greeting."""
            with open(os.path.join(system.folder, f"{name}.log"), errors="replace") as log:
                return "no descriptor left: connections are turned away (ulimit -n)" in log.read()

        def flooded():
            for door in doors:
                for _ in range(40):
                    knock(door)
            system.assert_alive()
            while len(idle) > 600:
                idle.pop(0).close()
            return turned_away("router") and turned_away("draft")

        wait_for(flooded, "router and draft have turned peers away")
        for peer in idle:
            peer.close()
        for i, plain in enumerate(truth):
            self.assertEqual(plain["token_ids"], client.ask(**request(i))["token_ids"])
        system.assert_alive()

    def test_a_tokenizer_without_memory_to_start_ends_with_a_sentence(self):
        system = self.fresh()
        codes = {}
        for mib in range(32, 132, 4):
            code, said = self.ends(system, "tokenizer", ("prlimit", f"--as={mib * MIB}"))
            codes[mib] = code
            if code == 75:
                self.assertRegex(said, r"address space more than the limit of|takes more memory than|no memory to|out of memory|MemoryError")
            else:
                self.assertEqual(0, code, f"at {mib} MiB: {said}")
        self.assertEqual({0, 75}, set(codes.values()), codes)

    def test_a_tokenizer_file_too_large_for_the_memory_is_named_with_its_size(self):
        system = self.fresh()
        path = os.path.join(system.target_model, "tokenizer.json")
        with open(path) as file:
            content = json.load(file)
        vocabulary = content["model"]["vocab"]
        first = max(vocabulary.values()) + 1
        vocabulary.update({f"unused{i}": first + i for i in range(400_000)})
        with open(path, "w") as file:
            json.dump(content, file)
        code, said = self.ends(system, "tokenizer", ("prlimit", f"--as={160 * MIB}"))
        self.assertEqual(75, code, said)
        self.assertRegex(said, rf"tokenizer(: {re.escape(path)} has|.json: no memory to parse) {os.path.getsize(path)} bytes")

    def test_a_prompt_too_large_for_the_memory_fails_alone(self):
        system = self.fresh()
        system.start("router", "target")
        system.start("tokenizer", before=("prlimit", f"--as={200 * MIB}"))
        system.wait_ready(drafts=0)
        client = Client(system)
        self.addCleanup(client.close)
        truth = plain_answers(client, 1)[0]
        process = system.processes["tokenizer"]
        with open(f"/proc/{process.pid}/status") as status:
            used = int(re.search(r"VmSize:\s+(\d+) kB", status.read())[1]) * 1024
        # Room for the message and its copies, and not for what encoding makes of it.
        resource.prlimit(process.pid, resource.RLIMIT_AS, (used + 8 * MIB, 200 * MIB))
        text = "Words and words. " * 58_000
        for question, size in (({"prompt": text}, 986_000), ({"messages": [{"role": "user", "content": text}]}, 986_030)):
            answer = client.ask(op="tokenize", **question)
            self.assertEqual("out_of_memory", answer["error"]["code"], answer)
            self.assertIn(f"encoding {size} bytes takes more memory than the tokenizer may have", answer["error"]["message"])
        self.assertEqual(truth["token_ids"], client.ask(**request(0, num_draft_tokens=0))["token_ids"])
        self.assertIsNone(process.poll())


if __name__ == "__main__":
    unittest.main(verbosity=2)
