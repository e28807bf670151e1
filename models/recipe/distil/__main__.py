#!/usr/bin/env python3
"""`foretoken draft distil`: a small draft with a trimmed head for a target, from what the target writes.

Steps: collect (collect.py), count (ids.py), train (train.py), export (export.py), check (check.py), model card (card.py). Each
leaves its result in --out and is skipped when that is there, so the same command goes on after any kind of end.
"""
import argparse
import importlib.util
import os
import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parent.parent)  # modules here have plain names

from distil import folder
from distil.folder import DIFFERS, ENVIRONMENT, INTERRUPTED, Refused, Work, say

NEEDED = ("numpy", "safetensors", "torch")
MOST_CONTEXT = 8192  # of prompts and answers while the target writes
BATCH_ROWS = 512  # limits.max_batch_rows where nothing else is set


def arguments():
    p = argparse.ArgumentParser(prog="foretoken draft distil", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("target", "out"):
        p.add_argument(f"--{name}", type=pathlib.Path, required=True)
    p.add_argument("--program", required=True, help="the foretoken command")
    p.add_argument("--prompts", type=pathlib.Path)
    p.add_argument("--host")
    p.add_argument("--model", help="name of the target at --host")
    p.add_argument("--config", help="for the way to --host")
    p.add_argument("--set", action="append", default=[], help="section.key=value, for the way to --host or for the system that is started")
    p.add_argument("--target-context", type=int, required=True, help="positions that the target serves")
    for name in ("tokens", "answer-tokens", "top", "head", "context", "concurrency", "threads", "seed"):
        p.add_argument(f"--{name}", type=int, required=True)
    for name in ("passes", "hours"):
        p.add_argument(f"--{name}", type=float, required=True)
    for name in ("shape", "dtype"):
        p.add_argument(f"--{name}", required=True)
    p.add_argument("--quiet", action="store_true")
    return p.parse_args()


def refuse_missing_packages():
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise Refused(f"{sys.executable} has no {', '.join(missing)}; draft distil needs them:\n"
                      "  apt install python3-venv; python3 -m venv distil-env && distil-env/bin/pip install torch==2.15.0 numpy safetensors matplotlib\n"
                      "  and then --python distil-env/bin/python", ENVIRONMENT)


def plan_of(args, about, asked):
    """What decides the result; a folder holds one plan for good."""
    from distil import prompts, system, window

    return {"target": str(args.target), "prompts": prompts.name_of(asked) if args.prompts else None, "seed": args.seed, "temperatures": [0.7, 0.85, 1.0],
            "answer_tokens": args.answer_tokens, "top": args.top, "shape": args.shape, "head": args.head, "context": min(args.context, about["context"]), "batch": 8,
            "length": window.length_of(args.answer_tokens, min(args.context, about["context"])), "shard_requests": 384, "tokens": args.tokens, "dtype": args.dtype,
            "settings": system.own_settings(args)}


def settings_of(args):
    """Of the system in which the target writes. Of two values of a key the later one counts; each running answer needs a row of a batch."""
    from distil import system

    return [f"limits.max_batch_rows={max(BATCH_ROWS, args.concurrency)}", *system.own_settings(args), f"model.dtype={args.dtype}",
            f"model.max_model_len={min(args.target_context, MOST_CONTEXT)}", f"limits.max_running={args.concurrency}"]


def work_through(args):
    from distil import prompts, target

    # First what is wrong with the arguments: packages take gigabytes and minutes to install.
    if args.out.resolve() == args.target.resolve():
        raise Refused(f"--out is the target's own folder, {args.out}")
    about = {**target.read_target(args.target), "context": args.target_context}
    asked = prompts.read_file(args.prompts, about["has_template"]) if args.prompts else prompts.own_beginnings(about)
    training, held_out = prompts.split(asked)
    work = Work(args.out)
    work.check()
    refuse_missing_packages()
    from distil import card, check, collect, export, ids, system

    plan = plan_of(args, about, asked)
    work.make()
    work.keep_plan(plan)
    plan["passes"] = args.passes
    serving = system.System(args.program, args.target, settings_of(args), system.there(args))
    collected = collect.collect(work, plan, training, serving, args.concurrency)
    counted = ids.prepare(work, plan, about)
    from distil import train  # torch takes seconds

    threads = args.threads or len(os.sched_getaffinity(0))
    trained = train.train(work, plan, about, {"hours": args.hours, "threads": threads})
    export.export(work, plan, about)
    checked = check.check(work, plan, held_out, args, trained["step"])
    card.write(work, plan, about, {"collected": collected, "counted": counted, "trained": trained, "checked": checked,
                                  "cost": target.weights_read(args.out) / target.weights_read(args.target)})
    refuse_other_texts(checked)
    say(f"{args.out} is a draft for {args.target}: foretoken up --target {args.target} --draft {args.out}")


def refuse_other_texts(checked):
    """A draft changes no text. If texts differ the draft is refused, since the fault is in Foretoken."""
    for temperature, row in checked["temperatures"].items():
        if row["same_texts"] < row["texts"]:
            raise Refused(f"check: at temperature {temperature} {row['texts'] - row['same_texts']} of {row['texts']} texts are not those without a draft; "
                          "that is a fault of Foretoken, whatever the draft guesses", DIFFERS)


def main():
    args = arguments()
    if args.quiet:
        folder.be_quiet()
    try:
        work_through(args)
    except Refused as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)  # a full disk, say
        return ENVIRONMENT
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
