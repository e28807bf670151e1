"""A target over two hosts by hostfile: ssh starts the ranks, TCP joins them. The hosts are namespaces (hosts.py)."""
import os
import shutil
import signal
import subprocess
import time
import unittest

import tiny_model
from harness import BIN, Client, System, request, text_of, wait_for
from hosts import TwoHosts, why_not
from ranks_test import DEATH_ALONE, GONE, is_alive

REASON = why_not()


def is_rank(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as line:
            words = line.read().split(b"\0")
            return words[0].endswith(b"foretoken-target") and b"--rank-host" not in words
    except OSError:
        return False


def is_sshd(pid):
    """A session of the host's own sshd, which lasts until that notices that the other host is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as line:
            return line.read().startswith(b"sshd:")
    except OSError:
        return False


class SystemOnHosts(System):
    """All services are processes of the first host; ranks are where the hostfile says."""

    def __init__(self, hosts, settings, target=None):
        super().__init__(settings=settings)
        self.hosts = hosts
        self.programs = {"target": target} if target else {}
        self.client = f"ipc://{self.folder}/client"
        self.settings.append(f"bus.client={self.client}")

    def start(self, *names):
        for name in names:
            program = self.programs.get(name) or os.path.join(os.path.abspath(BIN), f"foretoken-{name}")
            command = [*self.hosts.on(0), program, "--config", "/dev/null", "--id", "0"]
            for setting in self.settings:
                command += ["--set", setting]
            with open(os.path.join(self.folder, f"{name}.log"), "ab") as log:
                self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                                        start_new_session=True, env=self.hosts.environment())


@unittest.skipIf(REASON, REASON)
class Hosts(unittest.TestCase):
    def setUp(self):
        self.hosts = TwoHosts().__enter__()
        self.addCleanup(self.hosts.__exit__, None, None, None)
        self.before = [set(self.hosts.processes(host)) for host in (0, 1)]

    def system_of(self, slots, settings=(), target=None):
        """slots: ranks on each host; target: that program instead of the one that was built."""
        hostfile = os.path.join(self.hosts.folder, "hostfile")
        with open(hostfile, "w", encoding="ascii") as out:
            out.write("".join(f"{name} slots={n}\n" for name, n in zip(("node-a", "node-b"), slots) if n))
        tiny_model.KV_HEADS = 2
        system = SystemOnHosts(self.hosts, [f"target.tensor_parallel={sum(slots)}", f"target.hostfile={hostfile}", *settings],
                               target)
        system.__enter__()
        system.start("router", "tokenizer", "target")
        try:
            system.wait_ready(drafts=0)
        except BaseException as error:
            system.__exit__(type(error), error, None)
            raise
        return system

    def ranks(self, host):
        """With the launcher on the first."""
        return [pid for pid in self.hosts.processes(host) if is_rank(pid)]

    def left(self, system, host):
        services = {process.pid for process in system.processes.values()}
        return [pid for pid in self.hosts.processes(host)
                if pid not in self.before[host] and pid not in services and is_alive(pid) and not is_sshd(pid)]

    def wait_for_nothing(self, system, host, patience=60):
        try:
            wait_for(lambda: not self.left(system, host), "nothing is left", patience)
        except AssertionError:
            words = [open(f"/proc/{pid}/cmdline", "rb").read().replace(b"\0", b" ") for pid in self.left(system, host)]
            raise AssertionError(f"left on host {host}: {words}") from None

    def texts(self, system, count=6):
        client = Client(system)
        ids = [client.send(request(i, max_tokens=96, stream=True)) for i in range(count)]
        found = [text_of(client.wait(one)) for one in ids]
        client.close()
        return found

    def drain(self, system):
        target = system.processes.pop("target")
        target.send_signal(signal.SIGTERM)
        self.assertEqual(0, target.wait(60))
        for host in (0, 1):
            self.wait_for_nothing(system, host)
            self.assertEqual([], self.hosts.shared_memory(host))
        system.__exit__(None, None, None)

    def test_ranks_on_two_hosts_write_what_as_many_on_one_write(self):
        system = self.system_of((4, 0))
        self.assertEqual([5, 0], [len(self.ranks(host)) for host in (0, 1)])
        alone = self.texts(system)
        self.drain(system)
        system = self.system_of((2, 2))
        self.assertEqual([3, 2], [len(self.ranks(host)) for host in (0, 1)])
        self.assertEqual(alone, self.texts(system))
        self.drain(system)

    def test_the_program_may_lie_where_a_shell_would_trip(self):
        folder = os.path.join(self.hosts.folder, "two  words & 'more'")
        os.mkdir(folder)
        program = shutil.copy(os.path.join(BIN, "foretoken-target"), folder)
        system = self.system_of((1, 1), target=program)
        self.assertEqual([2, 1], [len(self.ranks(host)) for host in (0, 1)])
        self.texts(system, 1)
        self.drain(system)

    def fault(self, do, settings=()):
        """The whole group ends on this host, and what is on the other by itself."""
        system = self.system_of((1, 1), settings)
        client = Client(system)
        client.send(request(0, max_tokens=1024, stream=True))
        wait_for(lambda: list(client.pump()), "the first piece")
        launcher = system.processes.pop("target")
        begin = time.monotonic()
        do(system)
        wait_for(lambda: list(client.pump(0.005)) and False or launcher.poll() is not None, "the launcher ended")
        code = launcher.returncode
        self.wait_for_nothing(system, 0)
        here = time.monotonic() - begin
        self.wait_for_nothing(system, 1)
        there = time.monotonic() - begin
        self.assertEqual(GONE, code)
        for host in (0, 1):
            self.assertEqual([], self.hosts.shared_memory(host))
        client.close()
        system.__exit__(None, None, None)
        print(f"{self.id().rsplit('.', 1)[1]}: ended here after {here:.2f} s, there after {there:.2f} s")

    def kill_there(self, which=signal.SIGKILL):
        for pid in self.ranks(1):
            os.kill(pid, which)

    def test_a_rank_killed_on_the_other_host_ends_the_group(self):
        self.fault(lambda system: self.kill_there(), DEATH_ALONE)

    def test_a_rank_stopped_on_the_other_host_ends_the_group(self):
        self.fault(lambda system: self.kill_there(signal.SIGSTOP))

    def test_a_host_that_is_cut_off_ends_the_group_on_both(self):
        self.fault(lambda system: self.hosts.cut(), ["target.rank_deadline_ms=2000"])

    def test_a_host_that_is_cut_off_with_its_rank_stopped_ends_the_group_on_both(self):
        def do(system):
            self.hosts.cut()
            self.kill_there(signal.SIGSTOP)
        self.fault(do, ["target.rank_deadline_ms=2000"])

    def test_a_host_that_is_cut_off_and_loses_its_rank_ends_the_group_on_both(self):
        def do(system):
            self.hosts.cut()
            self.kill_there()
        self.fault(do)

    def test_a_launcher_that_is_killed_takes_both_hosts_along(self):
        system = self.system_of((1, 1))
        launcher = system.processes.pop("target")
        launcher.kill()
        launcher.wait()
        for host in (0, 1):
            self.wait_for_nothing(system, host)
        self.assertEqual([], self.hosts.shared_memory(1))
        system.__exit__(None, None, None)


if __name__ == "__main__":
    unittest.main()
