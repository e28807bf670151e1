"""A cable in software between this network namespace and another: delay, loss and cuts, without any module of the kernel but tun.

Each end is a tun device; a process of its own carries the packets. Needs root and /dev/net/tun. Run in a namespace of your own
(`alone()`), so that nothing of the machine's network is touched."""
import ctypes
import fcntl
import mmap
import os
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque

HERE_ADDRESS, THERE_ADDRESS = "10.77.0.1", "10.77.0.2"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
SETTINGS = struct.Struct("dd?")  # one-way delay in s, share of packets lost, cut


def why_not():
    """What keeps this machine from having a cable; None if nothing does."""
    if os.geteuid() != 0:
        return "namespaces need root"
    for program in ("ip", "unshare", "nsenter"):
        if not shutil.which(program):
            return f"no {program}"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "no /dev/net/tun"
    return None


def alone():
    """Starts this program again in a network namespace of its own, once."""
    if os.environ.get("FORETOKEN_TEST_ALONE") != "1":
        os.environ["FORETOKEN_TEST_ALONE"] = "1"
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])
    run("ip", "link", "set", "lo", "up")


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def tun(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    return fd


class Cable:
    """Use as a context manager. `there()` is what to put before a command that is to run at the other end."""

    def __init__(self, seed=1):
        self.memory = mmap.mmap(-1, SETTINGS.size)
        self.seed = seed
        self.set()

    def set(self, delay_s=0.0, loss=0.0, cut=False):
        SETTINGS.pack_into(self.memory, 0, delay_s, loss, cut)

    def there(self):
        return ["nsenter", "-t", str(self.host.pid), "--net"]

    def __enter__(self):
        self.host = subprocess.Popen(["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep infinity"],
                                     stdout=subprocess.PIPE)
        self.host.stdout.readline()
        here, there = tun("cable0"), tun("cable1")
        run("ip", "link", "set", "cable1", "netns", str(self.host.pid))
        run("ip", "addr", "add", HERE_ADDRESS, "peer", THERE_ADDRESS, "dev", "cable0")
        run("ip", "link", "set", "cable0", "up")
        run(*self.there(), "ip", "addr", "add", THERE_ADDRESS, "peer", HERE_ADDRESS, "dev", "cable1")
        run(*self.there(), "ip", "link", "set", "cable1", "up")
        self.carrier = os.fork()
        if self.carrier == 0:
            try:
                self._carry(here, there)
            finally:
                os._exit(1)
        os.close(here)
        os.close(there)
        return self

    def round_trip_s(self, patience_s=5.0):
        """How long a packet takes there and its answer back: a connection to a port where nothing listens; None if none came."""
        begin = time.monotonic()
        with socket.socket() as probe:
            probe.settimeout(patience_s)
            try:
                probe.connect((THERE_ADDRESS, 9))
            except ConnectionRefusedError:
                return time.monotonic() - begin
            except TimeoutError:
                return None

    def __exit__(self, kind, value, trace):
        os.kill(self.carrier, signal.SIGKILL)
        os.waitpid(self.carrier, 0)
        self.host.kill()
        self.host.wait()

    def _carry(self, here, there):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # ends with the test
        chance = random.Random(self.seed)
        ends = {here: there, there: here}
        waiting = {here: deque(), there: deque()}  # by where they go: when, packet
        while True:
            now = time.monotonic()
            due = None
            for to, queue in waiting.items():
                while queue and queue[0][0] <= now:
                    try:
                        os.write(to, queue.popleft()[1])
                    except OSError:
                        pass  # the device's queue is full: lost, as on a wire
                if queue:
                    due = min(due or queue[0][0], queue[0][0])
            readable, _, _ = select.select(list(ends), [], [], 0.05 if due is None else max(0.0, due - now))
            delay, loss, cut = SETTINGS.unpack_from(self.memory, 0)
            for end in readable:
                for _ in range(64):
                    try:
                        packet = os.read(end, 65536)
                    except BlockingIOError:
                        break
                    if not cut and chance.random() >= loss:
                        waiting[ends[end]].append((time.monotonic() + delay, packet))
