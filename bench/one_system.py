"""A system of services on this machine for the scripts beside it: `foretoken up` with a client's socket, its client, its counters and
the processor time of its services. Needs Python with zmq and msgpack."""
import collections
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import msgpack
import zmq

READY_S = 300


class Client:
    def __init__(self, context, endpoint):
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDHWM, 0)
        self.socket.connect(endpoint)

    def send(self, **request):
        request_id = os.urandom(16).hex()
        self.socket.send(msgpack.packb({"request_id": request_id, **request}))
        return request_id

    def next(self, patience=120):
        if not self.socket.poll(int(patience * 1000)):
            raise SystemExit(f"no answer within {patience} s")
        return msgpack.unpackb(self.socket.recv(), strict_map_key=False)

    def ask(self, **request):
        """Seconds, the longest gap between two maps, the last map."""
        begin = last = time.monotonic()
        gap = 0.0
        self.send(**request)
        while True:
            reply = self.next()
            now = time.monotonic()
            gap, last = max(gap, now - last), now
            if reply["done"]:
                if "error" in reply:
                    raise SystemExit(f"an error: {reply}")
                return now - begin, gap, reply

    def counters(self):
        """{'name{labels}': value} of all services, summed over them; without buckets."""
        sums = collections.Counter()
        for line in self.ask(op="metrics")[2]["metrics_text"].splitlines():
            if not line.startswith("#") and "_bucket" not in line:
                name, value = line.rsplit(" ", 1)
                sums[name] += float(value)
        return sums


def end(up):
    """Ends a system that `up` started."""
    up.terminate()
    try:
        up.wait(60)
    except subprocess.TimeoutExpired:
        up.kill()


def processor_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class System:
    def __init__(self, endpoint, folder):
        self.endpoint, self.context = endpoint, zmq.Context()
        self.client = Client(self.context, endpoint)
        self.folder = folder

    def pids(self, *roles):
        services = json.loads((self.folder / "run" / "up.json").read_text())["services"]
        return [s["pid"] for s in services if s["role"] in roles]


@contextlib.contextmanager
def started(bin_dir, settings, words=()):
    """A ready System of `foretoken up WORDS` with these settings ("section.key=value"); ended on the way out."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the services end too
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ftk-bench-"))
    (folder / "run").mkdir()
    endpoint = f"ipc://{folder}/client"
    command = [os.path.join(bin_dir, "foretoken"), "up", *words]
    for setting in ["edge.port=0", f"bus.client={endpoint}", f"bus.runtime_dir={folder}/run", *settings]:
        command += ["--set", setting]
    with open(folder / "up.log", "wb") as log:
        up = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        system = System(endpoint, folder)
        last = time.monotonic() + READY_S
        while not system.client.ask(op="status")[2]["ready"]:
            if time.monotonic() > last or up.poll() is not None:
                raise SystemExit(f"not ready; see {folder}/up.log")
            time.sleep(0.1)
        yield system
    finally:
        end(up)
    shutil.rmtree(folder, ignore_errors=True)  # after a failure its log is still there
