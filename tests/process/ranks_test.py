"""Targets and drafts of several MPI ranks: one text whatever happens to a rank, and nothing left of a group that lost one.

--times N repeats each killing N times (once in ./check)."""
import glob
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import tiny_model
from harness import BIN, Client, System, plain_answers, request, text_of, wait_for

TIMES = int(sys.argv[sys.argv.index("--times") + 1]) if "--times" in sys.argv else 1
SEED = int(os.environ.get("FORETOKEN_TEST_SEED", "20261121"))
# Where a rank is killed the others wait for it in vain for ten minutes, by these settings: it is the news of its death that ends the group.
DEATH_ALONE = ["target.rank_deadline_ms=600000", "draft.rank_deadline_ms=600000"]
GONE = 75


def parents():
    table = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as stat:
                table[int(entry)] = int(stat.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            pass
    return table


def family(pid):
    """The process and all that descend from it."""
    table, found = parents(), [pid]
    for one in found:
        found.extend(child for child, parent in table.items() if parent == one)
    return found


def ranks_of(pid):
    """Rank -> pid, of a launcher."""
    found = {}
    for one in family(pid)[1:]:
        try:
            with open(f"/proc/{one}/environ", "rb") as environment:
                words = dict(word.split(b"=", 1) for word in environment.read().split(b"\0") if b"=" in word)
        except OSError:
            continue
        if b"OMPI_COMM_WORLD_RANK" in words:
            found[int(words[b"OMPI_COMM_WORLD_RANK"])] = one
    return found


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def waiting_signals(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        mask = next(int(line.split()[1], 16) for line in status if line.startswith("ShdPnd:"))
    return {which for which in signal.Signals if mask >> (which - 1) & 1}


def traces(name):
    """What a group may leave behind on this host."""
    return (glob.glob(f"/dev/shm/foretoken-ranks-{name}-*") + glob.glob("/dev/shm/vader_segment.*")
            + glob.glob("/tmp/ompi.*") + glob.glob("/tmp/openmpi-sessions-*"))


@unittest.skipUnless(shutil.which("mpirun"), "no mpirun")
class Ranks(unittest.TestCase):
    def system_of(self, names, targets=1, drafts=1, settings=(), kv_heads=2):
        tiny_model.KV_HEADS = kv_heads
        system = System(settings=settings).__enter__()
        tiny_model.KV_HEADS = 2
        self.addCleanup(self.close, system)
        system.start(*names)
        if targets is not None:
            system.wait_ready(targets=targets, drafts=drafts)
        return system

    @staticmethod
    def close(system):
        for name in list(system.processes):  # politely: a launcher that is killed leaves its folder to the next one
            system.processes[name].send_signal(signal.SIGTERM)
        for name in list(system.processes):
            try:
                system.processes[name].wait(20)
            except subprocess.TimeoutExpired:
                pass
        system.__exit__(None, None, None)

    def ended(self, system, name, pids, client=None, code=GONE):
        """Waits for the whole group's end; returns how long it took. A client that did not read would be cut off."""
        begin = time.monotonic()
        launcher = system.processes.pop(name)

        def have_ended():
            if client:
                list(client.pump(0.005))
            return launcher.poll() is not None and not any(is_alive(pid) for pid in pids)

        wait_for(have_ended, f"all processes of {name} ended")
        took = time.monotonic() - begin
        self.assertEqual(code, launcher.returncode)
        self.assertEqual([], traces(name))
        return took

    def compare(self, truth, client, ids):
        different = []
        for index, (plain, one) in enumerate(zip(truth, ids)):
            text, tokens = text_of(client.wait(one, patience=120))
            if (text, tokens) != (plain["text"], plain["token_ids"]):
                different.append(index)
        self.assertEqual([], different, "texts that are not those of plain decoding")

    def test_speculative_is_plain_with_one_two_and_four_ranks(self):
        # Of one KV head all ranks hold the same, the draft's too.
        for ranks, draft_ranks, kv_heads in ((1, 1, 4), (2, 1, 4), (4, 1, 4), (4, 2, 1)):
            with self.subTest(ranks=ranks, draft_ranks=draft_ranks, kv_heads=kv_heads):
                system = self.system_of(["router", "tokenizer", "draft", "target"], kv_heads=kv_heads,
                                        settings=[f"target.tensor_parallel={ranks}",
                                                  f"draft.tensor_parallel={draft_ranks}"])
                client = Client(system)
                truth = plain_answers(client, 8, max_tokens=128)
                ids = [client.send(request(i, max_tokens=128, stream=True)) for i in range(8)]
                self.compare(truth, client, ids)
                self.assertEqual(ranks if ranks > 1 else 0, len(ranks_of(system.processes["target"].pid)))
                launcher = system.processes.pop("target")
                launcher.send_signal(signal.SIGTERM)
                self.assertEqual(0, launcher.wait(60), "a drain ends with 0")
                self.assertEqual([], traces("target-0"))
                client.close()

    def test_a_draft_may_have_ranks_of_its_own(self):
        system = self.system_of(["router", "tokenizer", "draft", "target"], settings=["draft.tensor_parallel=2", *DEATH_ALONE])
        client = Client(system)
        truth = plain_answers(client, 8, max_tokens=256)
        ids = [client.send(request(i, max_tokens=256, stream=True)) for i in range(8)]
        self.compare(truth, client, ids)

        def guesses_stood():
            reply = client.ask(**request(0, max_tokens=256))
            return reply["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"]

        wait_for(guesses_stood, "a guess of two ranks that stood")
        ids = [client.send(request(i, max_tokens=256, stream=True)) for i in range(8)]
        wait_for(lambda: list(client.pump()), "the first piece")
        pids = family(system.processes["draft"].pid)
        os.kill(ranks_of(system.processes["draft"].pid)[1], signal.SIGKILL)
        self.ended(system, "draft", pids, client)
        self.compare(truth, client, ids)
        client.close()

    def fault(self, which, times, settings=()):
        """A rank of one of two targets is killed or stopped while streams run; the other target finishes every text."""
        chance = random.Random(SEED + which)
        names = ["router", "tokenizer", "target-0", "target-1"]
        system = self.system_of(names, targets=2, drafts=0, settings=["target.tensor_parallel=2", *settings])
        client = Client(system)
        truth = plain_answers(client, 8, max_tokens=1024)
        took, n_cut = [], 0
        turns = iter(range(5 * times))
        # On a machine that is slow to run this client, all answers of a turn may be whole before the signal.
        while len(took) < times or n_cut == 0:
            turn = next(turns, None)
            self.assertIsNotNone(turn, "no answer was under way when a rank was killed or stopped")
            ids = [client.send(request(i, max_tokens=1024, stream=True)) for i in range(8)]
            wait_for(lambda: list(client.pump()), "the first piece")
            end = time.monotonic() + chance.uniform(0.0, 0.2)
            while time.monotonic() < end:
                list(client.pump(0.005))
            rank = 0 if turn % 4 == 1 else 1  # mostly a follower, now and then rank 0
            pids = family(system.processes["target-0"].pid)
            os.kill(ranks_of(system.processes["target-0"].pid)[rank], which)
            n_cut += sum(not (client.inbox[one] and client.inbox[one][-1]["done"]) for one in ids)
            took.append((rank, round(self.ended(system, "target-0", pids, client), 2)))
            self.compare(truth, client, ids)
            self.start_again(system, "target-0", "registered with the router")
            system.wait_ready(targets=2, drafts=0)
        print(f"seed {SEED}, {signal.Signals(which).name}: (rank, seconds) {took}; "
              f"{8 * len(took)} of {8 * len(took)} texts identical")
        client.close()

    def test_a_killed_rank_ends_the_group_and_another_target_goes_on(self):
        self.fault(signal.SIGKILL, TIMES, DEATH_ALONE)

    def test_a_stopped_rank_ends_the_group_and_another_target_goes_on(self):
        self.fault(signal.SIGSTOP, TIMES)

    def test_a_rank_that_stops_while_nothing_runs_is_noticed_too(self):
        system = self.system_of(["router", "tokenizer", "target"], drafts=0, settings=["target.tensor_parallel=2"])
        pids = family(system.processes["target"].pid)
        os.kill(ranks_of(system.processes["target"].pid)[1], signal.SIGSTOP)
        took = self.ended(system, "target", pids)
        with open(os.path.join(system.folder, "target.log"), encoding="utf-8") as log:
            self.assertRegex(log.read(), r"rank 0 has waited \d+ ms for rank 1")
        print(f"idle group ended after {took:.2f} s")

    def test_a_rank_that_aborts_ends_the_group_with_the_code_of_something_lost(self):
        system = self.system_of(["router", "tokenizer", "target"], drafts=0, settings=["target.tensor_parallel=2", *DEATH_ALONE])
        for rank in (0, 1):
            pids = family(system.processes["target"].pid)
            os.kill(ranks_of(system.processes["target"].pid)[rank], signal.SIGABRT)
            self.ended(system, "target", pids)
            self.start_again(system, "target", "registered with the router")

    def test_a_rank_that_meets_its_fate_while_the_group_starts_ends_it_too(self):
        chance = random.Random(SEED)
        system = self.system_of(["router", "tokenizer"], targets=None, settings=["target.tensor_parallel=2", *DEATH_ALONE])
        for turn in range(8 * TIMES):
            which = signal.SIGABRT if turn % 4 else signal.SIGKILL
            launcher = self.start_again(system, "target", "a rank has connected", 2)
            # To meet, to load and to register takes about that long. The first moments are the worst: mpirun itself
            # may hang for good when a rank dies while it connects.
            end = time.monotonic() + 0.3 * chance.random() ** 3
            while time.monotonic() < end and launcher.poll() is None:
                time.sleep(0.005)
            pids = family(launcher.pid)
            os.kill(ranks_of(launcher.pid)[chance.randrange(2)], which)
            with self.subTest(turn=turn, seed=SEED, signal=which.name):
                self.ended(system, "target", pids)

    def test_a_rank_that_stops_while_the_group_starts_is_noticed(self):
        system = self.system_of(["router", "tokenizer"], targets=None, settings=["target.tensor_parallel=2"])
        for rank in (0, 1):
            launcher = self.start_again(system, "target", "a rank has connected", 2, fault=f"{rank}=stop")
            pids = family(launcher.pid)
            self.ended(system, "target", pids)
            self.assertIn(f"rank {rank} is stopped", self.said(system, "target"))
            self.assertNotIn("all ranks are connected", self.said(system, "target"))

    def test_a_rank_that_aborts_before_it_meets_the_others_ends_the_group(self):
        system = self.system_of(["router", "tokenizer"], targets=None, settings=["target.tensor_parallel=2", *DEATH_ALONE])
        for rank in (0, 1):
            launcher = self.start_again(system, "target", "a rank is gone", fault=f"{rank}=abort")
            self.ended(system, "target", family(launcher.pid))
            self.assertNotIn("all ranks are connected", self.said(system, "target"))

    def test_a_group_that_is_asked_to_stop_while_it_starts_leaves_with_0(self):
        # A rank that stops itself before it looks for the others: they cannot be faster than the signal, however late it is.
        system = self.system_of(["router", "tokenizer"], targets=None,
                                settings=["target.tensor_parallel=2", *DEATH_ALONE])
        for rank in (0, 1):
            launcher = self.start_again(system, "target", "a rank has connected", 2, fault=f"{rank}=stop")
            pids = family(launcher.pid)
            launcher.send_signal(signal.SIGTERM)
            self.ended(system, "target", pids, code=0)
            self.assertIn("stopped while starting", self.said(system, "target"))
            self.assertNotIn("all ranks are connected", self.said(system, "target"))

    def test_a_rank_that_is_asked_to_stop_while_it_loads_does_so(self):
        # As by srun, which signals each task. Rank 0 has stopped itself, so that the signal is there before the loading begins.
        system = self.system_of(["router", "tokenizer"], targets=None, settings=["target.tensor_parallel=2", *DEATH_ALONE])
        launcher = self.start_again(system, "target", "a rank has connected", 2, fault="0=stop")
        pids, ranks = family(launcher.pid), ranks_of(launcher.pid)
        os.kill(ranks[1], signal.SIGTERM)
        os.kill(ranks[0], signal.SIGCONT)
        self.ended(system, "target", pids)
        self.assertIn("all ranks are connected", self.said(system, "target"))
        self.assertIn("stopped while starting", self.said(system, "target"))

    def test_a_second_signal_ends_the_group_at_once(self):
        system = self.system_of(["router", "tokenizer"], targets=None, settings=["target.tensor_parallel=2", *DEATH_ALONE])
        launcher = self.start_again(system, "target", "registered with the router")
        pids, first = family(launcher.pid), ranks_of(launcher.pid)[0]
        os.kill(first, signal.SIGSTOP)  # what it is sent waits
        for which in (signal.SIGTERM, signal.SIGINT):
            launcher.send_signal(which)
        wait_for(lambda: {signal.SIGTERM, signal.SIGINT} <= waiting_signals(first), "both signals at rank 0", 20)
        os.kill(first, signal.SIGCONT)
        self.ended(system, "target", pids, code=0)
        self.assertIn("second signal: ending now", self.said(system, "target"))

    def start_again(self, system, name, sign, count=1, fault=""):
        """The launcher, once it has logged the sign so many times: the router may still list the group before this."""
        log = os.path.join(system.folder, f"{name}.log")
        self.seen = os.path.getsize(log) if os.path.exists(log) else 0
        launcher = system.start(name, environment={"FORETOKEN_TEST_RANK_FAULT": fault}).processes[name]
        wait_for(lambda: self.said(system, name).count(sign) == count, f"{name}: {sign}")
        return launcher

    def said(self, system, name):
        """What the service has logged since it was last started again."""
        with open(os.path.join(system.folder, f"{name}.log"), encoding="utf-8") as lines:
            lines.seek(self.seen)
            return lines.read()

    def run_alone(self, settings, environment=None, launcher=()):
        folder = tempfile.mkdtemp(prefix="ftk-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        model = tiny_model.write_model(os.path.join(folder, "t"))
        command = [*launcher, os.path.join(BIN, "foretoken-target"), "--config", "/dev/null"]
        for setting in [f"model.target={model}", f"bus.runtime_dir={folder}/r", *settings]:
            command += ["--set", setting]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)

    def test_a_number_of_ranks_that_does_not_divide_the_model_is_refused_by_number(self):
        done = self.run_alone(["target.tensor_parallel=3"])
        self.assertEqual(78, done.returncode, done.stderr)
        self.assertIn("tensor_parallel is 3, but the model has 2 KV heads (num_key_value_heads)", done.stderr)
        self.assertIn("possible: 1, 2 or 4", done.stderr)
        self.assertEqual([], traces("target-0"))

    def test_what_rank_0_alone_finds_ends_the_group_with_its_reason(self):
        for setting, code, reason in (("kv_cache.memory=1 tokens", GONE, "kv_cache.memory = "),
                                      ("bus.router=tcp://10.1.1.1:5555", 78, "set bus.curve_secret")):
            with self.subTest(setting=setting):
                done = self.run_alone(["target.tensor_parallel=2", "kv_cache.memory=16MiB", setting])
                self.assertEqual(code, done.returncode, done.stderr)
                self.assertIn(reason, done.stderr)
                self.assertEqual([], traces("target-0"))

    def test_without_mpirun_the_message_names_the_package(self):
        done = self.run_alone(["target.tensor_parallel=2"], environment={**os.environ, "PATH": "/nonexistent"})
        self.assertEqual(78, done.returncode, done.stderr)
        self.assertIn("install openmpi-bin", done.stderr)

    def test_a_list_of_devices_is_for_the_ranks_of_each_host(self):
        # Ranks that another launcher has started learn how many they are on their host, and what they are shown there.
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        mpirun = ["mpirun", "--quiet", *root, "--oversubscribe", "--host", "localhost:2", "-n", "2"]
        two = ["target.tensor_parallel=2", "log.format=text"]
        for device, shown, complaint in (
                ("cuda:0", None, "target.device is \"cuda:0\", 1 device, and 2 ranks run on this host"),
                ("cuda", "5", 'device "cuda:0" was asked for, but the CUDA backend was not built'),
                ("cuda:0,1", "5", "1 device is shown (CUDA_VISIBLE_DEVICES): numbers begin at 0, there is no 1")):
            with self.subTest(device=device, shown=shown):
                environment = {**os.environ, "FORETOKEN_CUDA_LIBRARY": "/nonexistent"}
                environment.pop("CUDA_VISIBLE_DEVICES", None)
                if shown:
                    environment["CUDA_VISIBLE_DEVICES"] = shown
                done = self.run_alone([f"target.device={device}", *two], environment, mpirun)
                self.assertEqual(75 if device == "cuda" else 78, done.returncode, done.stderr)
                self.assertIn(complaint, done.stderr)
                self.assertNotIn('device "cuda:1"', done.stderr)
        # Those that it starts itself it knows before.
        done = self.run_alone(["target.device=cuda:0", *two])
        self.assertEqual(78, done.returncode, done.stderr)
        self.assertIn("1 device, and 2 ranks run on this host", done.stderr)
        self.assertNotIn("ranks started", done.stderr)

    def test_systemd_hears_of_the_group_from_the_launcher_alone(self):
        folder = tempfile.mkdtemp(prefix="ftk-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        heard, path = [], os.path.join(folder, "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(path)
            notify.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            notify.settimeout(60)
            model = tiny_model.write_model(os.path.join(folder, "t"))
            command = [os.path.join(BIN, "foretoken-target"), "--config", "/dev/null"]
            for setting in [f"model.target={model}", f"bus.runtime_dir={folder}/r", "target.tensor_parallel=2",
                            "kv_cache.memory=64MiB"]:
                command += ["--set", setting]
            # Without a router a service is ready all the same.
            launcher = subprocess.Popen(command, env={**os.environ, "NOTIFY_SOCKET": path, "WATCHDOG_USEC": "4000000"},
                                        stderr=subprocess.DEVNULL)
            try:
                while heard.count("WATCHDOG=1") < 3:
                    text, control, _, _ = notify.recvmsg(4096, socket.CMSG_SPACE(12))
                    sender = int.from_bytes(control[0][2][:4], "little")
                    self.assertEqual(launcher.pid, sender)
                    heard += text.decode().split("\n")
            finally:
                launcher.terminate()
                code = launcher.wait(60)
            self.assertEqual(0, code)
            self.assertIn("READY=1", heard)
            self.assertTrue(any(line.startswith("STATUS=loading the target") for line in heard))
            self.assertTrue(any(line.startswith("EXTEND_TIMEOUT_USEC=") for line in heard))


if __name__ == "__main__":
    if "--times" in sys.argv:
        at = sys.argv.index("--times")
        del sys.argv[at:at + 2]
    unittest.main()
