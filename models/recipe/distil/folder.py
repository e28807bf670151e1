"""The work folder of a distillation: what each step leaves there for the next, and the plan that all of them follow.

The file plan.json in the folder work of --out holds the settings of the first call; a later call with other settings is refused, since what was collected
would not be what the model card says. What a step leaves for the next is written beside its place and moved there, so a step that
is stopped, or killed, leaves whole files of it only. Standard library only.
"""
import json
import os
import sys


class Refused(Exception):
    """Something that the person has to change; the text says what, and to what."""


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

    def make(self):
        """Refuses a folder that holds something else: what is exported would take the place of a model there."""
        try:
            if self.out.exists() and not self.root.is_dir() and (not self.out.is_dir() or any(self.out.iterdir())):
                raise Refused(f"--out {self.out} is there and is no draft that was begun (it has no folder work); choose a new folder")
            for folder in (self.requests, self.shards, self.training):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Refused(f"--out {self.out} cannot be made: {error.strerror}") from None

    def shard_files(self):
        return sorted(self.shards.glob("[0-9]*.npz"))

    def keep_plan(self, plan):
        """The plan as kept by the first call. `plan` must be the same, but for what only says how long and how wide to work."""
        path = self.root / "plan.json"
        if not path.exists():
            write_json(path, plan)
            return
        kept = json.loads(path.read_text())
        for key, value in plan.items():
            if kept.get(key) != value:
                raise Refused(f"{self.out} was begun with {key} = {json.dumps(kept.get(key))}, and now it is {json.dumps(value)}; "
                              f"go on with the former, or choose another --out")
