"""`foretoken up` as watchdog, and `down` under load, with the demo pair: no stream is cut and no text is another.

usage: up_test.py FOLDER_WITH_PROGRAMS
"""

import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BIN = pathlib.Path(sys.argv.pop(1))
ROOT = pathlib.Path(__file__).resolve().parents[2]
STREAMS = int(os.environ.get("FORETOKEN_TEST_STREAMS", "12"))
TOKENS = int(os.environ.get("FORETOKEN_TEST_TOKENS", "256"))
WATCHDOG_S = 5
sys.path[:0] = [str(ROOT / "clients/python"), str(ROOT / "tests/support")]

import foretoken  # noqa: E402
from ports import free_port  # noqa: E402


class Stream(threading.Thread):
    """A stream with a client of its own; what it ended with."""

    def __init__(self, endpoint, index):
        super().__init__(daemon=True)
        self.endpoint, self.index = endpoint, index
        self.begun = threading.Event()
        self.ended = None
        self.start()

    def run(self):
        prompts = ["Tell me a story.", "Once upon a time", "The old man and the dog"]
        text, ids = "", []
        try:
            with foretoken.Client(self.endpoint, timeout_s=240) as client:
                for piece in client.stream(f"{prompts[self.index % 3]} {self.index}", max_tokens=TOKENS, temperature=0.8,
                                           seed=self.index, ignore_eos=True):
                    text, ids = text + piece.text, ids + piece.token_ids
                    self.begun.set()
            self.ended = (text, ids)
        except foretoken.ForetokenError as error:
            self.ended = error
        self.begun.set()


class System(unittest.TestCase):
    """One that `up` has started."""

    FLAGS = ()

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-up-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.endpoint = f"tcp://127.0.0.1:{free_port()}"
        self.settings = ["--set", "edge.port=0", "--set", f"bus.client={self.endpoint}", "--set", f"bus.runtime_dir={self.folder}",
                         "--set", f"limits.watchdog_s={WATCHDOG_S}", "--set", "limits.drain_s=150", "--set", "limits.max_running=64"]
        done = self.run_verb("up", "--detach", *self.FLAGS)
        self.assertEqual(0, done.returncode, done.stderr)
        self.addCleanup(self.run_verb, "down")  # harmless if it has ended

    def run_verb(self, *words, own=True):
        """`own`: with the settings of this system."""
        return subprocess.run([str(BIN / "foretoken"), *words, *(self.settings if own else ())], capture_output=True, text=True, timeout=280)

    def services(self):
        done = self.run_verb("ps", "--json")
        return {s["role"]: s for s in json.loads(done.stdout)["services"]} if done.returncode == 0 else {}

    def begin(self, count=STREAMS):
        streams = [Stream(self.endpoint, index) for index in range(count)]
        for stream in streams:
            self.assertTrue(stream.begun.wait(120), stream.index)
        return streams

    def compare(self, truth, streams):
        for stream in streams:
            stream.join(240)
        errors = [(s.index, str(s.ended)) for s in streams if not isinstance(s.ended, tuple)]
        different = [s.index for s, t in zip(streams, truth) if isinstance(s.ended, tuple) and s.ended != t.ended]
        self.assertEqual(([], []), (errors, different), "cut, other text")

    def undisturbed(self):
        streams = self.begin()
        self.compare(streams, streams)
        return streams


class Up(System):
    def test_down_lets_running_streams_end(self):
        truth = self.undisturbed()
        pids = [s["pid"] for s in self.services().values()]
        streams = self.begin()
        met = sum(stream.is_alive() for stream in streams)
        begin = time.monotonic()
        done = self.run_verb("down")
        took = time.monotonic() - begin
        self.assertEqual(0, done.returncode, done.stderr)
        self.compare(truth, streams)
        self.assertGreater(met, 0, "it must meet running streams")
        for pid in pids:
            self.assertFalse(os.path.exists(f"/proc/{pid}"), "and nothing is left")
        print(f"down met {met} running streams, none cut; it took {took:.1f} s")

    def test_doctor_finds_what_others_have_started(self):
        port = re.search(r"http://127\.0\.0\.1:(\d+)", (self.folder / "log/edge-0.log").read_text())[1]
        elsewhere = tempfile.mkdtemp(prefix="foretoken-up-")  # as seen by another user, without the lock of `up`
        self.addCleanup(shutil.rmtree, elsewhere)
        done = self.run_verb("doctor", "--json", *(word for setting in (f"bus.client={self.endpoint}", f"edge.port={port}", f"bus.runtime_dir={elsewhere}")
                                                   for word in ("--set", setting)), own=False)
        self.assertEqual(0, done.returncode, done.stdout)
        found = {f["subject"]: f["sentence"] for f in json.loads(done.stdout)["findings"]}
        self.assertEqual(f"{self.endpoint} is served by this installation", found["client port"])
        self.assertEqual(f"http://127.0.0.1:{port} is served by this installation", found["HTTP port"])

    def test_doctor_of_a_second_system_does_not_take_ports_of_the_first_for_its_own(self):
        port = re.search(r"http://127\.0\.0\.1:(\d+)", (self.folder / "log/edge-0.log").read_text())[1]
        elsewhere = tempfile.mkdtemp(prefix="foretoken-up-")
        self.addCleanup(shutil.rmtree, elsewhere)
        for setting, subject in ((f"edge.port={port}", "HTTP port"), (f"metrics.listen=127.0.0.1:{port}", "metrics port")):
            settings = ("edge.port=0", f"bus.client=tcp://127.0.0.1:{free_port()}", f"bus.runtime_dir={elsewhere}", setting)
            done = self.run_verb("doctor", "--json", *(word for setting in settings for word in ("--set", setting)), own=False)
            found = {f["subject"]: f for f in json.loads(done.stdout)["findings"]}
            self.assertEqual((6, "bad"), (done.returncode, found[subject]["level"]), found)
            self.assertIn("is taken by another program", found[subject]["sentence"])

    def test_a_second_down_ends_at_once(self):
        self.begin()
        target = self.services()["target"]["pid"]
        os.kill(target, signal.SIGSTOP)  # or all might end before
        self.addCleanup(lambda: os.path.exists(f"/proc/{target}") and os.kill(target, signal.SIGKILL))
        first = threading.Thread(target=self.run_verb, args=("down",))
        first.start()
        deadline = time.monotonic() + 60
        while "stopping" not in (self.folder / "log/up.log").read_text() and time.monotonic() < deadline:
            time.sleep(0.02)
        done = self.run_verb("down")
        first.join()
        self.assertEqual(0, done.returncode, done.stderr)

    def test_what_is_stopped_is_found_and_started_again(self):
        truth = self.undisturbed()
        for roles in (("draft", "tokenizer", "target"), ("router",)):
            before = self.services()
            streams = self.begin()
            for role in roles:
                os.kill(before[role]["pid"], signal.SIGSTOP)
            met = sum(stream.is_alive() for stream in streams)
            self.compare(truth, streams)
            deadline = time.monotonic() + 120
            while True:
                after = self.services()
                if after and all(s["state"] == "ready" and s["pid"] != before[r]["pid"] for r, s in after.items() if r in roles):
                    break
                self.assertLess(time.monotonic(), deadline, after)
                time.sleep(0.1)
            for role in roles:
                self.assertIn(f"watchdog: no sign of life for {WATCHDOG_S} s", after[role]["note"])
            print(f"stopped {', '.join(roles)} under {met} running streams: started again, {STREAMS} of {STREAMS} texts equal")
        log = (self.folder / "log/up.log").read_text()
        for role in ("draft", "tokenizer", "target", "router"):
            self.assertIn(f"{role}-0 watchdog: no sign of life for {WATCHDOG_S} s; starts again in", log)


class InForeground(unittest.TestCase):
    def test_the_end_of_its_terminal_ends_it_but_for_one_that_ignores_that(self):
        for is_ignored in (False, True):
            folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-up-"))
            self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
            command = [str(BIN / "foretoken"), "up", "--set", "edge.port=0", "--set", f"bus.client=tcp://127.0.0.1:{free_port()}",
                       "--set", f"bus.runtime_dir={folder}"]
            up = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                                  preexec_fn=(lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) if is_ignored else None)
            self.addCleanup(up.kill)
            while "serving at" not in (line := up.stdout.readline()):
                self.assertTrue(line, "it ended")
            up.send_signal(signal.SIGHUP)
            if is_ignored:
                with self.assertRaises(subprocess.TimeoutExpired):
                    up.wait(2)
                up.send_signal(signal.SIGTERM)
            up.communicate(timeout=60)
            self.assertGreaterEqual(up.returncode, 0, "a signal has killed it")
            self.assertFalse((folder / "notify").exists())


class LogFormat(unittest.TestCase):
    def test_logs_are_json_where_that_is_configured(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-up-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        # One value of a matrix that float16 cannot hold, which is found while it is loaded.
        shutil.copytree(ROOT / "models/demo-draft", folder / "model")
        weights = folder / "model/model.safetensors"
        data = bytearray(weights.read_bytes())
        n = int.from_bytes(data[:8], "little")
        matrix = json.loads(data[8:8 + n])["model.layers.0.mlp.down_proj.weight"]
        self.assertEqual("BF16", matrix["dtype"])
        at = 8 + n + matrix["data_offsets"][0]
        data[at:at + 2] = b"\x7f\x7f"
        weights.write_bytes(data)
        settings = ["--set", "edge.port=0", "--set", f"bus.client=tcp://127.0.0.1:{free_port()}", "--set", f"bus.runtime_dir={folder}/r"]
        for variables, is_json in (({}, False), ({"FORETOKEN_LOG_FORMAT": "json"}, True), ({"FORETOKEN_LOG_FORMAT": "text"}, False)):
            done = subprocess.run([str(BIN / "foretoken"), "up", "--detach", "--target", str(folder / "model"), "--draft=", "--dtype", "float16",
                                   *settings], env={**os.environ, **variables}, capture_output=True, text=True, timeout=280)
            self.assertEqual(4, done.returncode, done.stderr)
            self.assertIn("beyond the range of float16", done.stderr)
            first = (folder / "r/log/target-0.log").read_text().splitlines()[0]
            self.assertEqual(is_json, first.startswith("{"), first)


class ReplacedPrograms(unittest.TestCase):
    def test_up_again_says_that_a_service_runs_an_old_program(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-up-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        programs = folder / "bin"
        programs.mkdir()
        for program in BIN.glob("foretoken-*"):
            (programs / program.name).symlink_to(program.resolve())
        target = programs / "foretoken-target"
        target.unlink()
        shutil.copy(BIN / target.name, target)
        settings = ["--set", "edge.port=0", "--set", f"bus.client=tcp://127.0.0.1:{free_port()}", "--set", f"bus.runtime_dir={folder}/r"]

        def run_verb(*words):
            # Detached, up runs the command of that folder.
            return subprocess.run([str(BIN / "foretoken"), *words, *settings], env={**os.environ, "FORETOKEN_PROGRAMS": str(programs)},
                                  capture_output=True, text=True, timeout=280)
        (programs / "foretoken").symlink_to((BIN / "foretoken").resolve())
        self.addCleanup(run_verb, "down")
        self.assertEqual(0, run_verb("up", "--detach").returncode)
        done = run_verb("up", "--detach")
        self.assertEqual((0, False), (done.returncode, "replaced" in done.stderr), done.stderr)
        shutil.copy(BIN / target.name, folder / "fresh")
        os.replace(folder / "fresh", target)
        done = run_verb("up", "--detach")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertRegex(done.stderr, r"already serving at .*\nnote: programs of that system have been replaced")


class InterruptedStart(unittest.TestCase):
    """`up --detach` that ends before the system serves."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-up-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        # No watchdog: it would start the stopped target again. A short drain: what is left is killed 10 s later.
        self.settings = ["--set", "edge.port=0", "--set", f"bus.client=tcp://127.0.0.1:{free_port()}",
                         "--set", f"bus.runtime_dir={self.folder}", "--set", "limits.watchdog_s=0", "--set", "limits.drain_s=1"]

    def until(self, fact, what):
        deadline = time.monotonic() + 120
        while not (seen := fact()):
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.005)
        return seen

    def pid_of_target(self):
        try:
            services = json.loads((self.folder / "up.json").read_text())["services"]
        except FileNotFoundError:
            return 0
        return next(service["pid"] for service in services if service["role"] == "target")

    def supervisor_has_ended(self):
        with open(self.folder / "up.pid", "rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def test_leaves_nothing_whatever_ends_it(self):
        for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
            with self.subTest(ending.name), open(self.folder / "said", "w+", encoding="utf-8") as said:
                up = subprocess.Popen([str(BIN / "foretoken"), "up", "--detach", *self.settings], stdin=subprocess.DEVNULL,
                                      stdout=said, stderr=said)
                self.addCleanup(up.kill)
                self.addCleanup(subprocess.run, [str(BIN / "foretoken"), "down", "--quiet", *self.settings], timeout=280)
                target = self.until(self.pid_of_target, "the target runs")
                os.kill(target, signal.SIGSTOP)  # so that it cannot serve
                self.addCleanup(lambda pid=target: os.path.exists(f"/proc/{pid}") and os.kill(pid, signal.SIGKILL))
                self.assertIsNone(up.poll(), "it must not serve yet")
                pids = [service["pid"] for service in json.loads((self.folder / "up.json").read_text())["services"]]
                up.send_signal(ending)
                self.assertEqual(-ending, up.wait(120))
                os.kill(target, signal.SIGCONT)  # a stopped process ends by SIGKILL alone
                self.until(self.supervisor_has_ended, "the supervisor ends")
                left = {path.name for path in self.folder.iterdir() if path.name.startswith("up.")}
                self.assertEqual({"up.pid"}, left)
                for pid in pids:
                    self.assertFalse(os.path.exists(f"/proc/{pid}"), "and no service is left")
                said.seek(0)
                words = said.read()
                self.assertNotIn("serving at", words)
                self.assertNotIn("error", words)


class UpWithAMemory(System):
    FLAGS = ("--memory",)
    REQUEST = {"prompt": "Once upon a time there was a dog", "max_tokens": 96, "temperature": 0.8, "seed": 5, "ignore_eos": True}

    def memory(self):
        """As `ps` shows it."""
        services = json.loads(self.run_verb("ps", "--json").stdout)["services"]
        return next((service for service in services if service["name"] == "draft-memory"), {})

    def until(self, fact, what):
        deadline = time.monotonic() + 120
        while not fact():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.05)

    def test_it_is_a_service_of_its_own_and_knows_what_was_written_before(self):
        shown = self.memory()
        self.assertEqual(("draft", "ready", "memory"), (shown["role"], shown["state"], shown["model"]))
        with foretoken.Client(self.endpoint, timeout_s=240) as client:
            plain = client.generate(**self.REQUEST, proposer="none")

            # How many guesses come in time is a matter of speed.
            def is_guessed():
                again = client.generate(**self.REQUEST, proposer="memory")
                self.assertEqual((plain.text, plain.token_ids), (again.text, again.token_ids))
                return again.speculative_decoding["num_accepted_draft_tokens"] > 10
            self.until(is_guessed, "guesses from the memory are accepted")
        done = self.run_verb("up", "--detach")
        self.assertIn("memory.start: it runs with true, not false", done.stderr)

    def test_killed_it_takes_no_text_with_it_and_is_started_again(self):
        truth = self.undisturbed()
        before = self.memory()["pid"]
        streams = self.begin()
        os.kill(before, signal.SIGKILL)
        met = sum(stream.is_alive() for stream in streams)
        self.compare(truth, streams)
        self.until(lambda: self.memory().get("state") == "ready" and self.memory()["pid"] != before, "it is started again")
        self.assertIn("was ended by signal 9", self.memory()["note"])
        print(f"killed the memory under {met} running streams: {STREAMS} of {STREAMS} texts equal")


if __name__ == "__main__":
    unittest.main(verbosity=1)
