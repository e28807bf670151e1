"""Prompts of a distillation as requests of a client: from the operator's file, or the beginnings that a target has of its own.

A file has one prompt a line, or one JSON object a line with `prompt` (a text) or `messages` ([{role, content}]). A text is a
person's message where the target has a chat template, and the beginning of a text where it has none. Standard library only.
"""
import hashlib
import json

from distil.folder import Refused

MAX_PROMPTS = 1_000_000
# Of the prompts, for the check, at most this many and at most this share.
MOST_HELD_OUT, SHARE_HELD_OUT = 64, 0.05


def read_line(line, where, has_template):
    if not line.startswith("{"):
        return {"messages": [{"role": "user", "content": line}]} if has_template else {"prompt": line}
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise Refused(f"{where}: not JSON: {error}") from None
    if isinstance(entry.get("messages"), list):
        return {"messages": entry["messages"]}
    if not isinstance(entry.get("prompt"), str):
        raise Refused(f'{where}: expected "prompt" with a text or "messages" with a list')
    messages = [{"role": "system", "content": entry["system"]}] if entry.get("system") else []
    messages.append({"role": "user", "content": entry["prompt"]})
    return {"messages": messages} if has_template else {"prompt": entry["prompt"]}


def read_file(path, has_template):
    """Every prompt once, in an order that depends on nothing but the prompts, so that kinds are mixed."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # not at other characters that end lines: JSON has them raw
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"--prompts: cannot read {path}: {error}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            prompt = read_line(line.strip(), f"{path}, line {number}", has_template)
            found[hashlib.sha256(json.dumps(prompt).encode()).hexdigest()] = prompt
        if len(found) > MAX_PROMPTS:
            raise Refused(f"--prompts: {path} has more than {MAX_PROMPTS} prompts")
    if len(found) < 2:
        raise Refused(f"--prompts: {path} has {len(found)} different prompts; at least 2 are needed, since some are held out for the check")
    return [found[key] for key in sorted(found)]


def name_of(prompts):
    """What the plan keeps of them: another file, or other lines of it, has another name."""
    digest = hashlib.sha256(json.dumps(prompts).encode()).hexdigest()
    return f"{len(prompts)} different ones, SHA-256 {digest[:16]}"


def split(prompts):
    """(for training, held out). A single prompt is both: its texts differ by their seeds."""
    if len(prompts) == 1:
        return prompts, prompts
    n = max(1, min(MOST_HELD_OUT, int(len(prompts) * SHARE_HELD_OUT)))
    return prompts[n:], prompts[:n]


def own_beginnings(target):
    """Without a file: from the token that begins a text, past every end token, so that a chat goes on turn by turn."""
    begin = target["bos"] if target["bos"] is not None else next(iter(target["eos"]), None)
    if begin is None:
        raise Refused(f"{target['folder']} names no bos_token_id and no eos_token_id that a text could begin with; --prompts FILE gives beginnings")
    return [{"token_ids": [begin], "ignore_eos": True}]
