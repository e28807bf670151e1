"""A running Foretoken that serves the target: the one that the person names, or one that is started here and ends with us."""
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from distil.folder import ENVIRONMENT, FAILED, INTERRUPTED, Refused, said, say

START_S, STOP_S, ANSWER_S = 900, 60, 3600
PR_SET_PDEATHSIG = 1
NO_CONFIGURATION = ["--config", "/dev/null"]


def end_with_parent():
    """In the child before it runs: Linux ends it when this process dies, even by SIGKILL."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def set_words(settings):
    return [word for setting in settings for word in ("--set", setting)]


def there(args):
    """The flags by which `foretoken run` reaches the system of --host and the target's model there; None without --host."""
    if not args.host:
        return None
    return ["--host", args.host, "--model", args.model, *(["--config", args.config] if args.config else []), *set_words(args.set)]


def own_settings(args):
    """What the person sets of a system that is started; with --host these settings are for the way to that one."""
    return [] if args.host else args.set


class System:
    """`with System(...)`: inside, ask() reaches it. Without `reach` one is started, which reads no configuration file."""

    def __init__(self, program, target, settings, reach=None, draft=""):
        self.program, self.target, self.settings, self.draft, self.reach = program, target, settings, draft, reach
        self.environment = None if reach else {key: value for key, value in os.environ.items() if not key.startswith("FORETOKEN_")}
        self.folder = self.process = None

    def __enter__(self):
        if self.reach:
            return self
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-distil-"))
        host = f"ipc://{self.folder}/client"
        words = [self.program, "up", "--target", str(self.target), "--draft", str(self.draft), "--port", "0", *NO_CONFIGURATION]
        words += set_words((f"bus.runtime_dir={self.folder}", f"bus.client={host}", f"speculation.proposer={'draft' if self.draft else 'none'}",
                            f"limits.request_timeout_s={ANSWER_S}", *self.settings))
        try:
            with open(self.folder / "up.txt", "w", encoding="utf-8") as log:
                self.process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env=self.environment, preexec_fn=end_with_parent,
                                                start_new_session=True)
            self.wait(host)
        except BaseException:
            self.__exit__()
            raise
        self.reach = ["--host", host, *NO_CONFIGURATION]
        return self

    def wait(self, host):
        """Until all services are ready: `up` then says where it serves."""
        say(f"starting Foretoken with {self.target}")
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            text = self.said_by_up()
            if f"serving at {host}" in text:
                return
            if self.process.poll() is not None:
                raise Refused("Foretoken did not start:\n" + text, max(FAILED, self.process.returncode))  # a signal is a failure, too
            time.sleep(0.2)
        raise Refused(f"Foretoken was not ready within {START_S} s:\n" + self.said_by_up(), ENVIRONMENT)

    def said_by_up(self):
        return (self.folder / "up.txt").read_text(encoding="utf-8")[-2000:]

    def __exit__(self, *_):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, requests, answers, concurrency, *flags):
        """`foretoken run`: a file of requests in, a file of answers and failures out. It goes on with answers that are there."""
        words = [self.program, "run", str(requests), "-o", str(answers), "--concurrency", str(concurrency), "--retry-failed", "--timeout", str(ANSWER_S), *flags, *self.reach]
        words += ["--quiet"] if said["quiet"] else []
        done = subprocess.run(words, stdout=subprocess.DEVNULL, env=self.environment, preexec_fn=end_with_parent)
        if done.returncode == INTERRUPTED:
            raise KeyboardInterrupt
        # With FAILED the file is whole if it is there, and has failures in it.
        if done.returncode not in (0, FAILED) or not answers.exists():
            raise Refused(f"`{' '.join(words)}` ended with {done.returncode}", max(FAILED, done.returncode))
