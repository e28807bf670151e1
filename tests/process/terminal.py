"""A program at a terminal, as a person sees it: a pty with a screen (python3-pyte) behind it. Waits for what the screen shows."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

import pyte

import harness


def set_size(fd, columns, rows):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Terminal:
    """Use as a context manager. The screen is what pyte makes of all that was written."""

    def __init__(self, command, environment=None, columns=80, rows=24, folder="."):
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000, ratio=0.5)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            set_size(0, columns, rows)  # before the program asks
            os.chdir(folder)
            os.execvpe(command[0], command, {**os.environ, "TERM": "xterm-256color", **(environment or {})})
        self.attributes = termios.tcgetattr(self.fd)  # before the program looks at it

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def resize(self, columns, rows):
        self.screen.resize(rows, columns)
        set_size(self.fd, columns, rows)

    def type(self, keys):
        os.write(self.fd, keys if isinstance(keys, bytes) else keys.encode())

    def pump(self, seconds=0.05):
        """Takes what was written. False: the other end is closed."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.raw += data
        self.stream.feed(data)
        return bool(data)

    def lines(self):
        """The screen from its first line that was used to its last, and what has left it above.

        Not by pyte's `display`: it fails on a cell whose wide character is half overwritten, as between two reads of one redraw.
        """
        def text(row):
            return "".join(row[x].data for x in range(self.screen.columns)).rstrip()
        rows = [*self.screen.history.top, *(self.screen.buffer[y] for y in range(self.screen.lines))]
        shown = [text(row) for row in rows]
        while shown and not shown[-1]:
            shown.pop()
        return shown

    def text(self):
        return "\n".join(self.lines())

    def wait_until(self, fact, what, patience=harness.PATIENCE):
        """The first true value of fact(self)."""
        end = time.monotonic() + patience
        while True:
            value = fact(self)
            if value:
                return value
            if time.monotonic() > end or not self.pump():
                raise AssertionError(f"the screen does not show {what}:\n{self.text()}")

    def wait_for(self, pattern, patience=harness.PATIENCE):
        """Until the screen matches; returns the match."""
        return self.wait_until(lambda _: re.search(pattern, self.text(), re.S | re.M), repr(pattern), patience)

    def prompt(self, patience=harness.PATIENCE):
        """Until the last line is an empty prompt."""
        self.wait_for(r"^>\Z", patience)

    def exit_code(self, patience=harness.PATIENCE):
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if not self.pump():
                time.sleep(0.01)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                while self.pump(0):  # what is left
                    if not select.select([self.fd], [], [], 0)[0]:
                        break
                self.pid = None
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"it has not ended:\n{self.text()}")
