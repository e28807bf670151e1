"""A real service process: what it tells systemd, how it ends, and its exit codes."""
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import zmq

FIXTURE = sys.argv.pop(1)


class Service:
    """The fixture with a notify socket of our own, unless another is named, and a runtime folder of its own."""

    def __init__(self, *arguments, mode="echo", watchdog_ms=None, notify=None):
        self.folder = tempfile.TemporaryDirectory(prefix="ft-", dir="/tmp")
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(self.folder.name + "/notify")
        self.client = "ipc://" + self.folder.name + "/client"
        env = {"PATH": os.environ["PATH"], "NOTIFY_SOCKET": notify or self.folder.name + "/notify", "FIXTURE_MODE": mode,
               "HOME": self.folder.name}
        for name in ("ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"):
            if name in os.environ:
                env[name] = os.environ[name]
        if watchdog_ms:
            env["WATCHDOG_USEC"] = str(watchdog_ms * 1000)
        self.process = subprocess.Popen([FIXTURE, "--set", "bus.client=" + self.client, *arguments], env=env,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def next_notice(self, wanted, timeout=60.0):
        """The first notification that contains `wanted`, or None; others are skipped."""
        until = time.monotonic() + timeout
        while (left := until - time.monotonic()) > 0:
            if select.select([self.notify], [], [], left)[0]:
                text = self.notify.recv(4096).decode()
                if wanted in text:
                    return text
        return None

    def end(self, timeout=60):
        out, err = self.process.communicate(timeout=timeout)
        self.notify.close()
        self.folder.cleanup()
        return self.process.returncode, out, err

    def ask(self, *frames, timeout_ms=60000):
        with zmq.Context() as context, context.socket(zmq.REQ) as req:
            req.linger = 0
            req.rcvtimeo = timeout_ms
            req.connect(self.client)
            req.send_multipart(frames)
            return req.recv_multipart()


class Lifecycle(unittest.TestCase):
    def test_ready_serves_and_drains_on_sigterm(self):
        service = Service()
        self.assertIsNotNone(service.next_notice("READY=1"))
        self.assertEqual(service.ask(b"hello", b"there"), [b"hello", b"there"])
        service.process.send_signal(signal.SIGTERM)
        self.assertIsNotNone(service.next_notice("STOPPING=1"))
        code, _, err = service.end()
        self.assertEqual(code, 0, err)
        self.assertIn("1 echoed", err)

    def test_readiness_that_reaches_nothing_is_in_the_log(self):
        service = Service(notify="/nowhere/notify")
        self.assertEqual(service.ask(b"x"), [b"x"])
        service.process.terminate()
        code, _, err = service.end()
        self.assertEqual(code, 0, err)
        self.assertRegex(err, r"READY=1 did not reach the service manager \(NOTIFY_SOCKET\).*No such file or directory")

    def test_sigint_drains_too_and_sighup_does_nothing(self):
        service = Service()
        self.assertIsNotNone(service.next_notice("READY=1"))
        service.process.send_signal(signal.SIGHUP)
        self.assertEqual(service.ask(b"x"), [b"x"])
        service.process.send_signal(signal.SIGINT)
        self.assertEqual(service.end()[0], 0)

    def test_drain_ends_at_its_deadline(self):
        service = Service("--set", "limits.drain_s=1", mode="stubborn")
        self.assertIsNotNone(service.next_notice("READY=1"))
        service.process.send_signal(signal.SIGTERM)
        code, _, err = service.end()
        self.assertEqual(code, 0)
        self.assertIn("ended before everything was done", err)

    def test_second_signal_ends_now(self):
        service = Service("--set", "limits.drain_s=3600", mode="stubborn")
        self.assertIsNotNone(service.next_notice("READY=1"))
        service.process.send_signal(signal.SIGTERM)
        self.assertIsNotNone(service.next_notice("STOPPING=1"))
        service.process.send_signal(signal.SIGTERM)
        self.assertEqual(service.end()[0], 0)

    def test_watchdog_is_fed_while_idle_and_not_when_wedged(self):
        service = Service("--set", "limits.stuck_s=1", watchdog_ms=400)
        self.assertIsNotNone(service.next_notice("READY=1"))
        for _ in range(3):
            self.assertIsNotNone(service.next_notice("WATCHDOG=1"))
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.linger = 0
            dealer.connect(service.client)
            dealer.send(b"wedge")
            # Pings go on until the message has arrived and the turn that reads it is beyond its bound; then two
            # periods pass without one.
            deadline = time.monotonic() + 60
            while service.next_notice("WATCHDOG=1", timeout=0.8) is not None:
                self.assertLess(time.monotonic(), deadline, "a wedged loop goes on feeding the watchdog")
        service.process.kill()
        service.end()

    def test_a_long_turn_within_its_bound_feeds_the_watchdog(self):
        service = Service("--set", "limits.stuck_s=3600", watchdog_ms=100)
        self.assertIsNotNone(service.next_notice("READY=1"))
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.linger = 0
            dealer.connect(service.client)
            dealer.send(b"wedge")
            for _ in range(20):  # 5 watchdog periods at the least
                self.assertIsNotNone(service.next_notice("WATCHDOG=1"))
        service.process.kill()
        self.assertIn("a message that takes an hour", service.end()[2])

    def test_a_stage_of_loading_that_takes_long_extends_the_timeout(self):
        service = Service(mode="long-stage")
        self.assertIsNotNone(service.next_notice("STATUS=loading for an hour"))
        for _ in range(2):
            self.assertIsNotNone(service.next_notice("EXTEND_TIMEOUT_USEC="))
        service.process.kill()
        service.end()

    def test_loading_reports_and_extends_and_can_be_stopped(self):
        service = Service(mode="slow-start")
        notice = service.next_notice("STATUS=loading layer 2")
        self.assertIsNotNone(notice)
        self.assertIsNotNone(service.next_notice("EXTEND_TIMEOUT_USEC="))
        service.process.send_signal(signal.SIGTERM)
        code, _, err = service.end()
        self.assertEqual(code, 0, err)
        self.assertIn("stopped while starting", err)

    def test_status_is_told(self):
        service = Service()
        self.assertIsNotNone(service.next_notice("STATUS=0 echoed"))
        service.process.terminate()
        service.end()


class ExitCodes(unittest.TestCase):
    def expect(self, code, words, *arguments, **options):
        got, _, err = Service(*arguments, **options).end()
        self.assertEqual(got, code, err)
        self.assertIn(words, err)

    def test_bad_configuration_is_78(self):
        self.expect(78, "did you mean speculation.draft_len", "--set", "speculation.draft_lan=3")
        self.expect(78, "model.target has no config.json", mode="bad-config")

    def test_every_configuration_error_is_reported(self):
        self.expect(78, "it must be from 0 to 32", "--set", "speculation.draft_len=99", "--set", "log.level=loud")
        self.expect(78, "log.level", "--set", "speculation.draft_len=99", "--set", "log.level=loud")

    def test_usage_is_64(self):
        self.expect(64, "--no-such-flag", "--no-such-flag")
        self.expect(64, "--id: must be", "--id", "../x")

    def test_what_may_come_back_is_75(self):
        self.expect(75, "the device is gone", mode="gone")

    def test_address_in_use_is_75(self):
        first = Service()
        self.assertIsNotNone(first.next_notice("READY=1"))
        self.expect(75, "another process serves this address", "--set", "bus.client=" + first.client)
        first.process.terminate()
        first.end()

    def test_our_mistake_is_70(self):
        self.expect(70, "this should not happen", mode="bug")

    def test_help_version_and_checks_are_0(self):
        for flag, words in (("--help", "--print-config"), ("--version", "protocol 1.6"), ("--check-config", ""),
                            ("--print-config", "draft_len = 8")):
            code, out, err = Service(flag).end()
            self.assertEqual(code, 0, err)
            self.assertIn(words, out)


if __name__ == "__main__":
    unittest.main(verbosity=2)
