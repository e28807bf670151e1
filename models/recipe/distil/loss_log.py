"""loss.csv of a training: a line for each step, as step,tokens,loss,seconds. Standard library only.

A step is written down before the checkpoint that has it, so after a kill the file may have more steps than the checkpoint, and its
last line may be torn. What is left of these is taken away before a training goes on: the steps come again.
"""
from distil.folder import write_text


def row_of(line):
    """(step, tokens, loss, seconds); nothing of a torn line."""
    try:
        row = tuple(map(float, line.split(",")))
    except ValueError:
        return None
    return row if line.endswith("\n") and len(row) == 4 else None


def lines_up_to(path, last_step):
    """The whole lines of the steps up to that one, each once."""
    kept, before = [], 0
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else ():
        row = row_of(line)
        if row is not None and before < row[0] <= last_step:
            kept.append(line)
            before = row[0]
    return kept


def read(path):
    return [row_of(line) for line in lines_up_to(path, float("inf"))]


def append(path, state, loss):
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{state['step']},{state['tokens']},{loss:.5f},{state['seconds']:.1f}\n")


def cut(path, last_step):
    if path.exists():
        write_text(path, "".join(lines_up_to(path, last_step)))
