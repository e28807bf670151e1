"""The work folder of a distillation: what each step leaves there for the next, and the plan that all of them follow.

The file plan.json in the folder work of --out holds the settings. Once they have decided something, answers of the target or steps of
training, a call with other ones is refused, since the model card would not be true. What a step leaves for the next is written beside its
place and moved there, so a step that is stopped, or killed, leaves whole files of it only. Standard library only.
"""
import errno
import json
import os
import sys

from distil import answers


# Exit codes of `foretoken`.
FAILED, USAGE, UNREACHABLE, MODEL, ENVIRONMENT, DIFFERS, INTERRUPTED = 1, 2, 3, 4, 6, 7, 130

OF_TRAINING = ("shape", "head", "context", "length")  # keys of the plan by which nothing is collected


class Refused(Exception):
    """Something that the person has to change; the text says what, and to what. `code`: what `foretoken draft distil` ends with."""

    def __init__(self, text, code=USAGE):
        super().__init__(text)
        self.code = code


said = {"quiet": False}


def be_quiet():
    said["quiet"] = True


def say(text):
    if not said["quiet"]:
        print(text, file=sys.stderr, flush=True)


def write_text(path, text):
    beside = path.with_name(path.name + ".tmp")
    beside.write_text(text)
    os.replace(beside, path)


def write_json(path, value):
    write_text(path, json.dumps(value, indent=2) + "\n")


class Work:
    def __init__(self, out):
        self.out, self.root = out, out / "work"
        self.requests, self.shards, self.training = self.root / "requests", self.root / "shards", self.root / "training"

    def check(self):
        """Refuses a folder that holds something else: what is exported would take the place of a model there. Makes nothing."""
        try:
            if self.out.exists() and not self.root.is_dir() and (not self.out.is_dir() or any(self.out.iterdir())):
                raise Refused(f"--out {self.out} is there and is no draft that was begun (it has no folder work); choose a new folder")
            above = next(folder for folder in (self.root, *self.root.parents) if folder.exists())
        except OSError as error:
            raise self.cannot_be_made(error) from None
        if not above.is_dir():
            raise self.cannot_be_made(OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)))
        if not os.access(above, os.W_OK | os.X_OK):
            raise self.cannot_be_made(OSError(errno.EACCES, os.strerror(errno.EACCES)))

    def make(self):
        try:
            for folder in (self.requests, self.shards, self.training):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self.cannot_be_made(error) from None

    def cannot_be_made(self, error):
        return Refused(f"--out {self.out} cannot be made: {error.strerror}")

    def shard_files(self):
        return sorted(self.shards.glob("[0-9][0-9][0-9][0-9][0-9].npz"))  # not what a kill left of one

    def has_text(self):
        """Whether there is a shard, or one that was begun and does not fail."""
        return bool(self.shard_files()) or any(map(answers.are_mostly_whole, self.requests.glob("*.answers.jsonl*")))

    def is_fixed(self, key):
        """Whether what is there already was made by that key of the plan."""
        return (self.training / "checkpoint.pt").exists() or (key not in OF_TRAINING and self.has_text())

    def keep_plan(self, plan):
        """Keeps `plan`, or finds it kept. In another one only keys may differ that have decided nothing yet: those of a mistaken try."""
        path = self.root / "plan.json"
        kept = json.loads(path.read_text()) if path.exists() else {}
        for key in {**plan, **kept}:
            if kept and kept.get(key) != plan.get(key) and self.is_fixed(key):
                raise Refused(f"{self.out} was begun with {key} = {json.dumps(kept.get(key))}, and now it is {json.dumps(plan.get(key))}; "
                              f"go on with the former, or choose another --out")
        if kept == plan:
            return
        for left in [self.training / "summary.json", *([] if self.has_text() else self.requests.iterdir())]:
            left.unlink(missing_ok=True)
        write_json(path, plan)
