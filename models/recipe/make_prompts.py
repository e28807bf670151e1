#!/usr/bin/env python3
"""Writes models/prompts.json: the built-in demo prompts (the first ones, marked `demo`) and generated ones, over all five kinds.

An entry has `kind` and either `prompt` or `messages` [{role, content}], and may have `system`. The generated ones come from a
seed that training does not use. Standard library only.
"""
import json
import pathlib

import generate

SEED, PER_KIND = 424242, 40
DEMO = {
    "story": ("Tell me a story about a fox named Pip.", "Tell me a bedtime story about an owl.", "Tell me a story about a dragon named Zora.",
              "Write a short story about a mouse named Ada who wants to touch the clouds.", "Tell me a story that begins at the harbor.", "Tell me about a robot."),
    "json": ("Write 6 ships as JSON.", "Give me a JSON array of 5 books.", "List 8 tools in JSON format.", "Write a JSON document with 5 weather reports.", "Write 4 animals as JSON."),
    "code": ("Write a Python class Ship with the fields name, crew, cargo and speed.", "Write a class Garden with owner, trees, flowers and size.",
             "Write Python functions for a list of prices: largest, smallest, total and average.", "Write functions for count, reverse and double of numbers.",
             "I need a Python class for a book with title, author, pages and price."),
    "steps": ("How do I make violet plum jam?", "Give me the steps for cold nettle tea.", "List the steps to prepare golden honey soap.", "Write a recipe for salty moss soup in 12 steps.",
              "How do I make silver walnut ink?"),
}


def demo_questions(n):
    for i in range(n):
        name = ("Tilda", "Bruno", "Nora", "Felix")[i]
        world = dict(generate.make_world(generate.Rng(SEED, i), 3), name=name, animal=("fox", "owl", "frog", "bear")[i])
        asked = generate.Rng(SEED, 100 + i).sample(generate.questions(world), 8)
        listed = "\n".join(f"{j + 1}. {q}" for j, (q, _) in enumerate(asked))
        yield f"Answer the questions about the story. Repeat each question.\n\n{generate.tell(generate.Rng(SEED, 200 + i), world)}\n\n{listed}"


def entries():
    for kind, prompts in DEMO.items():
        for p in prompts:
            yield {"kind": kind, "demo": True, "prompt": p}
    for p in demo_questions(4):
        yield {"kind": "qa", "demo": True, "prompt": p}
    for kind in generate.KINDS:
        made, index, seen = 0, 0, set()
        while made < PER_KIND:
            _, messages = generate.document(SEED, index, kind)
            index += 1
            cut = max(i for i, (role, _) in enumerate(messages) if role == "assistant")
            asked = [m for m in messages[:cut] if m[0] != "system"]
            key = asked[-1][1]
            if key in seen or sum(len(t) for _, t in asked) > 1900:
                continue
            seen.add(key)
            made += 1
            entry = {"kind": kind}
            if messages[0][0] == "system":
                entry["system"] = messages[0][1]
            if len(asked) == 1:
                entry["prompt"] = key
            else:
                entry["messages"] = [{"role": r, "content": t} for r, t in asked]
            yield entry


if __name__ == "__main__":
    path = pathlib.Path(__file__).resolve().parent.parent / "prompts.json"
    path.write_text("[\n" + ",\n".join(json.dumps(e) for e in entries()) + "\n]\n")
