"""A program on a terminal: a pty of a given size, whose screen is kept by pyte as a person would see it."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import pyte


class Terminal:
    def __init__(self, command, columns=120, rows=30, environment=None, folder=None):
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.end, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

        def take_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, preexec_fn=take_terminal, cwd=folder,
                                        env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", **(environment or {})})
        os.close(inner)

    def lines(self):
        return [line.rstrip() for line in self.screen.display]

    def text(self):
        return "\n".join(self.lines()).rstrip()

    def pump(self, seconds=0.05):
        """Takes what the program has written; False once it has closed the terminal."""
        if select.select([self.end], [], [], seconds)[0]:
            try:
                data = os.read(self.end, 65536)
            except OSError:  # EIO: nothing has the other side open
                return False
            self.stream.feed(data)
        return True

    def wait(self, fact, what, patience=60):
        """The first true value of fact(self)."""
        until = time.monotonic() + patience
        while time.monotonic() < until:
            value = fact(self)
            if value:
                return value
            if not self.pump():
                break
        raise AssertionError(f"not on the screen: {what}\n{self.text()}")

    def send(self, keys):
        os.write(self.end, keys.encode())

    def resize(self, columns, rows):
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)
        self.process.send_signal(signal.SIGWINCH)

    def exit_code(self, patience=30):
        until = time.monotonic() + patience
        while self.process.poll() is None and time.monotonic() < until:
            self.pump()
        return self.process.poll()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.end)
