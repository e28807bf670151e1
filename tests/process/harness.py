"""Starts real services in a folder of their own, talks to them over ZeroMQ, kills them, and always cleans up.

Standard library, python3-zmq and python3-msgpack only. No sleeps as synchronisation: everything waits for a fact,
with a deadline that only a hang can reach."""
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import msgpack
import zmq

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../support")]
import tiny_model  # noqa: E402
from ports import free_port  # noqa: E402

BIN = os.environ.get("FORETOKEN_BIN_DIR", "build/release/bin")
PATIENCE = float(os.environ.get("FORETOKEN_TEST_PATIENCE", "120"))


def wait_for(fact, what, patience=PATIENCE):
    """The first true value of fact(); fails after the patience."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        value = fact()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {patience:.0f} s: {what}")


def wait_while_growing(count, least, what, patience=PATIENCE):
    """Until count() is above `least`; fails when it has not grown for the patience, however long it takes in all."""
    value, end = count(), time.monotonic() + patience
    while value <= least:
        assert time.monotonic() < end, f"{what}: {value:.0f}, and no more for {patience:.0f} s"
        time.sleep(0.02)
        now = count()
        if now > value:
            value, end = now, time.monotonic() + patience
    return value


class Client:
    """A DEALER: one map out, maps in, sorted by request id."""

    def __init__(self, system):
        self.socket = system.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        if system.curve:
            self.socket.curve_serverkey, self.socket.curve_publickey, self.socket.curve_secretkey = system.curve
        self.socket.connect(system.client)
        self.inbox = {}
        self.count = 0

    def send(self, request, request_id=None):
        if request_id is None:
            self.count += 1
            request_id = os.urandom(16).hex()
        self.socket.send(msgpack.packb({"request_id": request_id, **request}))
        self.inbox.setdefault(request_id, [])
        return request_id

    def pump(self, timeout=0.05):
        if self.socket.poll(int(timeout * 1000)):
            while self.socket.poll(0):
                reply = msgpack.unpackb(self.socket.recv(), strict_map_key=False)
                self.inbox.setdefault(reply["id"], []).append(reply)
                yield reply

    def wait(self, request_id, patience=PATIENCE):
        """All maps of a request, the last with done."""
        end = time.monotonic() + patience
        while not (self.inbox[request_id] and self.inbox[request_id][-1]["done"]):
            if time.monotonic() > end:
                raise AssertionError(f"no answer to {request_id} within {patience:.0f} s")
            for _ in self.pump():
                pass
        return self.inbox.pop(request_id)

    def ask(self, patience=PATIENCE, **request):
        return self.wait(self.send(request), patience)[-1]

    def close(self):
        self.socket.close()


class System:
    """Services in a temporary folder. Use as a context manager. With `target_model`, a folder, all settings are the default ones but
    for ports, folders and what `settings` say; without, a tiny pair is written and services are made small."""

    def __init__(self, settings=(), noise=0.05, changed_draft_vocabulary=False, target_model=None):
        self.folder = tempfile.mkdtemp(prefix="ftk-")
        self.client = f"tcp://127.0.0.1:{free_port()}"
        self.context = zmq.Context()
        self.processes = {}
        self.crashed = []
        self.keys = {}  # role: (public, secret), once make_keys() was called
        self.curve = None  # and then what a client needs: the router's public key, its own public and secret key
        if target_model:
            self.settings = [f"model.target={target_model}", "model.name=random", f"bus.client={self.client}",
                             f"bus.runtime_dir={self.folder}/r", f"model.packed_cache={self.folder}/packed", "log.format=text",
                             *settings]
            return
        models = os.environ.get("FORETOKEN_TEST_MODELS")  # a folder with demo-target and demo-draft, for runs by hand
        if models and not changed_draft_vocabulary:
            self.target_model, self.draft_model = os.path.join(models, "demo-target"), os.path.join(models, "demo-draft")
        else:
            self.write_models(noise, changed_draft_vocabulary)
        self.settings = [f"model.target={self.target_model}", f"model.draft={self.draft_model}", "model.name=tiny",
                         f"bus.client={self.client}", f"bus.runtime_dir={self.folder}/r", "kv_cache.memory=256MiB",
                         "draft.memory=128MiB", "target.threads=1", "draft.threads=1", "target.pin=false", "draft.pin=false",
                         "speculation.adaptive=false", "log.format=text", *settings]

    def write_models(self, noise, changed_draft_vocabulary):
        self.target_model = tiny_model.write_model(os.path.join(self.folder, "t"), seed=1)
        self.draft_model = tiny_model.write_model(os.path.join(self.folder, "d"), seed=1, noise=noise,
                                                  changed_vocabulary=changed_draft_vocabulary)

    def make_keys(self, router, draft):
        """From now on each service (of number 0) starts with a key of its own, and the test is the client `test`. The endpoints: where
        they take one another."""
        self.keys = {role: zmq.curve_keypair() for role in ("router", "tokenizer", "draft", "target")}
        own = zmq.curve_keypair()
        endpoints = {"router": router, "draft": draft}
        lines = [f"{public.decode()} {role}:{role}-0 {endpoints.get(role, '')}\n" for role, (public, _) in self.keys.items()]
        lines += [f"{self.keys['router'][0].decode()} router:router-0 {self.client}\n", f"{own[0].decode()} client:test\n"]
        self.write("peers", "".join(lines))
        self.write_key("test", own)
        self.curve = (self.keys["router"][0], *own)

    def write_key(self, name, pair):
        public, secret = pair
        return self.write(f"{name}.key", f'public = "{public.decode()}"\nsecret = "{secret.decode()}"\n')

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        return path

    def key_settings(self, name):
        """What a service or a tool with that key is started with."""
        return [f"bus.curve_secret={self.folder}/{name}.key", f"bus.curve_peers={self.folder}/peers"]

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for name in list(self.processes):
            self.kill(name, signal.SIGKILL)
        if kind is not None or self.crashed:
            for log in sorted(os.listdir(self.folder)):
                if log.endswith(".log"):
                    with open(os.path.join(self.folder, log), errors="replace") as lines:
                        print(f"--- {log}\n" + "".join(lines.readlines()[-25:]), file=sys.stderr)
        self.context.destroy(linger=0)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, *names, environment=None, before=()):
        """Names such as "router", "draft-1", and "draft-memory", which is one of texts. The environment is added to this process's own; `before` goes before the command."""
        for name in names:
            role, _, number = name.partition("-")
            command = [*before, os.path.join(BIN, f"foretoken-{role}"), "--config", "/dev/null", "--id", number or "0"]
            if name == "draft-memory":
                command.append("--memory")
            settings = list(self.settings)
            if self.keys:
                self.write_key(role, self.keys[role])
                settings += self.key_settings(role)
            for setting in settings:
                command += ["--set", setting]
            log = open(os.path.join(self.folder, f"{name}.log"), "ab")
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                                    start_new_session=True, env={**os.environ, **(environment or {})})
            log.close()
        return self

    def kill(self, name, which=signal.SIGKILL):
        """Ends a whole process group; returns the exit code."""
        process = self.processes.pop(name)
        try:
            os.killpg(process.pid, which)
        except ProcessLookupError:
            pass
        try:
            return process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise AssertionError(f"{name} did not end")

    @contextlib.contextmanager
    def stopped(self, name):
        """The service stands still (SIGSTOP) for the length of a block: what it has been given has not ended, however fast the machine."""
        process = self.processes[name]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)  # nothing where a test has killed it

    def assert_alive(self):
        for name, process in self.processes.items():
            if process.poll() is not None:
                self.crashed.append(name)
        assert not self.crashed, f"ended by themselves: {self.crashed}"

    def status(self):
        """What the router says of the system; None where it says nothing for the whole patience. One that dies loses the question, so it
        is asked again."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            client = Client(self)
            try:
                return client.ask(patience=5, op="status")
            except AssertionError:
                pass
            finally:
                client.close()
        return None

    def services(self, role, state="ready"):
        status = self.status()
        return [s for s in status["services"] if s["role"] == role and s["state"] == state] if status else []

    def wait_ready(self, targets=1, drafts=1, patience=PATIENCE):
        """A request could be served, and this many targets and drafts have registered. Returns how long it took."""
        begin = time.monotonic()

        def ready():
            self.assert_alive()
            status = self.status()
            if not status or not status["ready"]:
                return False
            count = {"target": 0, "draft": 0}
            for service in status["services"]:
                if service["role"] in count and service["state"] == "ready":
                    count[service["role"]] += 1
            return count["target"] >= targets and count["draft"] >= drafts

        wait_for(ready, f"{targets} targets and {drafts} drafts ready", patience)
        return time.monotonic() - begin

    def cpu_ticks(self, name):
        with open(f"/proc/{self.processes[name].pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def rss(self, name):
        with open(f"/proc/{self.processes[name].pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def use_demo_pair():
    """From now on systems have the demo pair: its target takes long enough for a draft to guess, which the tiny one may not."""
    os.environ["FORETOKEN_TEST_MODELS"] = os.path.join(HERE, "../../models")


PROMPTS = ["the thing in there", "in the winter, when snow", "error: the file", "0123456789", "ß ü é 漢字 🎉 mixed",
           "Once upon a time", "def f(x):\n    return x", "the the the the"]


def request(index, max_tokens=64, **more):
    """Request number `index` of a fixed list: half greedy, half sampled with a seed."""
    sampled = {"temperature": 0.8, "top_p": 0.95, "seed": 1000 + index} if index % 2 else {"temperature": 0.0}
    return dict(prompt=PROMPTS[index % len(PROMPTS)] + f" {index}", max_tokens=max_tokens, ignore_eos=True, **sampled, **more)


def plain_answers(client, count, max_tokens=64):
    """What each request gets by plain decoding: the truth of every comparison."""
    ids = [client.send(request(i, max_tokens, num_draft_tokens=0)) for i in range(count)]
    answers = [client.wait(one)[-1] for one in ids]
    for answer in answers:
        assert "text" in answer, answer
    return answers


def text_of(maps):
    """The text of a stream: pieces and the last part. An error map has none."""
    assert "finish_reason" in maps[-1], maps[-1]
    return "".join(m["text"] for m in maps), [t for m in maps for t in m["token_ids"]]
