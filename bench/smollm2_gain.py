#!/usr/bin/python3
"""What do draft, n-gram and memory gain together with SmolLM2-135M-Instruct and its distilled draft? Each prompt is answered in turn by the
same processes plainly and with the default proposers, one request at a time; the texts must be equal. Scenes:

  domain     held-out prompts of the text that the draft was trained for (those that `foretoken draft distil` held out), temperature 0
  domain0.7  the same prompts at temperature 0.7
  edit       a JSON file or a piece of a program to be written again with one name changed, temperature 0; the answer begins with the
             file's first line, and may be as long as the file. This model copies the file and leaves the change out
  begun      the same after two examples, and the answer begins with all lines up to the first change, the change made
  forced     the same after the examples, and the old name is forbidden (bad_words), so that a change is made at every place

usage: smollm2_gain.py BIN_DIR --model FOLDER [--draft FOLDER] [--scenes domain,domain0.7,edit,begun,forced] [--ways plain,default]
                       [--requests N] [--set section.key=value] [--json FILE]

Ways are plain, default, a list of proposers joined by + (draft+ngram), each with :N (at most N guesses a pass) or =N (always N, as far as
there are so many). Every way is a tenant of its own, so that none finds a prompt or a text of another in a cache or in the memory.

Printed are ratios of seconds from the request to the end of its answer, prompt included: the median over the pairs and that of all their
time; likewise of the time from the first token on. A pass is one of the target. Of edits also: the share of the answer's tokens that stand
in the file likewise, and how many answers have the change. On a machine of two cores the draft shares them with the target. Needs Python with zmq and msgpack.
"""
import argparse
import difflib
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

from one_system import processor_s, started

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECIPE = ROOT / "models/recipe"
SOURCES = ("draft", "ngram", "memory")
N_DOMAIN_PROMPTS = 8000  # of everyday.py, as in the draft's card: what is held out follows from them
BARS = {"domain": 1.5, "domain0.7": 1.5, "edit": 3.0, "begun": 3.0, "forced": 3.0}
EDITS = (("models/demo-target/config.json", "hidden_size", "model_width"), ("tests/fixtures/models/llama3/config.json", "rope_theta", "rotary_base"),
         ("tests/fixtures/models/qwen3_yarn/config.json", "num_hidden_layers", "layer_count"), ("models/recipe/muon.py", "orthogonalise", "make_orthogonal"),
         ("kernels/ref/spread.cc", "column", "index"), ("services/cli/terminal_size.cc", "winsize", "window_size"),
         ("kernels/ref/embed.cc", "hidden", "state"), ("bench/peers/serve.py", "answers", "replies"))
RENAMES = (("quantity", "amount"), ("email", "mail_address"), ("city", "town"), ("price", "cost"))
EXAMPLES = (('{\n  "title": "Rain",\n  "pages": 120,\n  "author": "Eva"\n}\n', "pages", "length"),
            ("def area(width):\n    return width * width\n", "width", "side"))
FIELDS = {"id": lambda d: d.randrange(1000, 9999), "name": lambda d: d.choice(("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gita", "Hugo")),
          "email": lambda d: f"{d.choice('abcdefgh')}{d.randrange(100)}@example.org", "city": lambda d: d.choice(("Oslo", "Lima", "Porto", "Kyoto", "Leeds", "Graz")),
          "quantity": lambda d: d.randrange(1, 40), "price": lambda d: d.randrange(100, 9999) / 100, "paid": lambda d: d.random() < 0.5}


# ---- prompts ----

def domain_prompts(n):
    sys.path.insert(0, str(RECIPE))
    from distil import prompts
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        command = [sys.executable, str(RECIPE / "distil/everyday.py"), "--count", str(N_DOMAIN_PROMPTS)]
        file.write(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        file.flush()
        held_out = prompts.split(prompts.read_file(pathlib.Path(file.name), True))[1]
    return [held_out[i * len(held_out) // n] for i in range(n)] if n < len(held_out) else held_out


def generated_file(seed):
    draws = random.Random(seed)
    old, new = RENAMES[seed % len(RENAMES)]
    records = [{key: make(draws) for key, make in FIELDS.items()} for _ in range(3)]
    return json.dumps(records, indent=2) + "\n", old, new


def edits(n):
    """(text, old name, new name): files of this repository and generated ones in turn."""
    found = [((ROOT / path).read_text("utf-8"), old, new) for path, old, new in EDITS]
    mixed = [edit for i, each in enumerate(found) for edit in (each, generated_file(i))]
    return (mixed + [generated_file(seed) for seed in range(len(found), len(found) + n)])[:n]


def asking_to_rename(text, old, new):
    return {"role": "user", "content": f"Rename `{old}` to `{new}` in this file:\n```\n{text}```"}


def edit_request(client, scene, edit):
    text, old, new = edit
    lines = text.split("\n")
    first_change = next(i for i, line in enumerate(lines) if old in line)
    n_given = first_change + 1 if scene == "begun" else 1
    given = "\n".join(lines[:n_given]) + "\n"
    if scene == "edit":
        asked = f"Here is a file:\n```\n{text}```\nWrite the whole file again, with `{old}` renamed to `{new}`. Change nothing else."
        messages = [{"role": "user", "content": asked}]
    else:
        messages = [message for was, a, b in EXAMPLES
                    for message in (asking_to_rename(was, a, b), {"role": "assistant", "content": f"```\n{was.replace(a, b)}```"})]
        messages.append(asking_to_rename(*edit))
    messages.append({"role": "assistant", "content": "```\n" + (given.replace(old, new) if scene == "begun" else given)})
    n_tokens = len(client.ask(op="tokenize", prompt=text)[2]["token_ids"])
    more = {"bad_words": [old]} if scene == "forced" else {}
    return {"messages": messages, "continue_final_message": True, "add_generation_prompt": False, "temperature": 0.0, "max_tokens": n_tokens, **more}


# ---- one way of answering ----

def fields_of(way):
    """What a request says for `plain`, `default`, `draft+ngram`, `draft:2`, `default=4`."""
    name, at_most, fixed = way, "", ""
    if ":" in way:
        name, at_most = way.split(":")
    elif "=" in way:
        name, fixed = way.split("=")
    if name == "plain":
        return {"proposer": "none"}
    fields = {} if name == "default" else {"proposer": name.split("+")}
    if at_most or fixed:
        fields = {**fields, "num_draft_tokens": int(at_most or fixed)}
    return {**fields, "adaptive": False} if fixed else fields


class Tally:
    """What the requests of one way took and brought."""

    def __init__(self):
        self.seconds, self.decoding, self.tokens, self.passes, self.drafted, self.accepted, self.processor = [], [], 0, 0, 0, 0, 0.0
        self.by_length = {}

    def add(self, seconds, reply, processor):
        spec = reply["metrics"]["speculative_decoding"]
        n_tokens = reply["usage"]["completion_tokens"]
        self.seconds.append(seconds)
        self.decoding.append(reply["metrics"]["generation_time_ms"] / 1e3)
        self.processor += processor
        self.tokens += n_tokens
        self.drafted += spec["num_draft_tokens"]
        self.accepted += spec["num_accepted_draft_tokens"]
        self.passes += n_tokens - spec["num_accepted_draft_tokens"]
        for length, histogram in spec["acceptance_histogram_by_draft_length"].items():
            self.by_length[int(length)] = self.by_length.get(int(length), 0) + sum(histogram)

    def figures(self, plain):
        pairs = [a / b for a, b in zip(plain.seconds, self.seconds)]
        return {"median": statistics.median(pairs), "all": sum(plain.seconds) / sum(self.seconds), "worst": min(pairs),
                "decoding": sum(plain.decoding) / sum(self.decoding), "processor": plain.processor / max(self.processor, 1e-9),
                "tokens_per_s": self.tokens / sum(self.decoding), "tokens_per_pass": self.tokens / self.passes,
                "ms_per_pass": 1e3 * sum(self.decoding) / self.passes, "tokens": self.tokens, "passes": self.passes, "drafted": self.drafted,
                "accepted": self.accepted, "passes_by_guesses": dict(sorted(self.by_length.items())), "seconds": self.seconds, "decoding_s": self.decoding}


class Bench:
    def __init__(self, system, arguments):
        self.client, self.ways = system.client, arguments.ways.split(",")
        self.pids = system.pids("target", "draft", "memory")

    def measure(self, scene, requests):
        """Tallies of all ways, which take turns in going first, and the answers."""
        tallies, answers = {way: Tally() for way in self.ways}, []
        for i, request in enumerate(requests):
            turn = i % len(self.ways)
            texts = {}
            for way in self.ways[turn:] + self.ways[:turn]:
                before = sum(map(processor_s, self.pids))
                seconds, _, reply = self.client.ask(**request, **fields_of(way), tenant=f"{scene} {way}", seed=1000 + i)
                tallies[way].add(seconds, reply, sum(map(processor_s, self.pids)) - before)
                texts[way] = reply["token_ids"]
            if any(ids != texts[self.ways[0]] for ids in texts.values()):
                raise SystemExit(f"the ways gave different texts: {request}")
            answers.append(reply)
        return tallies, answers


def run_scene(bench, scene, arguments):
    files = [] if scene.startswith("domain") else edits(arguments.requests)
    requests = [edit_request(bench.client, scene, each) for each in files]
    if not files:
        temperature = float(scene.removeprefix("domain") or 0)
        requests = [{**prompt, "temperature": temperature, "max_tokens": arguments.tokens} for prompt in domain_prompts(arguments.requests)]
    before = bench.client.counters()
    tallies, answers = bench.measure(scene, requests)
    after = bench.client.counters()
    result = {"scene": scene, "pairs": len(requests), "ways": {way: tally.figures(tallies[bench.ways[0]]) for way, tally in tallies.items()},
              "counters": {name: after[name] - before[name] for name in sorted(after) if after[name] != before[name]},
              "asking_gain": sum(after[name] for name in after if "asking_gain" in name)}
    if files:
        result["copied"], result["changed"] = copies(bench.client, files, answers)
    return result


def copies(client, files, answers):
    """The share of the answers' tokens that stand in their files in the same order, and how many answers have the new name but not the old."""
    n_same, n_all, n_changed = 0, 0, 0
    for (text, old, new), reply in zip(files, answers):
        ids = client.ask(op="tokenize", prompt=text)[2]["token_ids"]
        blocks = difflib.SequenceMatcher(None, ids, reply["token_ids"], autojunk=False).get_matching_blocks()
        n_same += sum(block.size for block in blocks)
        n_all += len(reply["token_ids"])
        n_changed += new in reply["text"] and old not in reply["text"].replace(new, "")
    return n_same / n_all, n_changed


# ---- what is printed ----

def show(result, bar):
    edit = f"; {100 * result['copied']:.0f} % of the answers copied, {result['changed']} have the new name and not the old one" if "copied" in result else ""
    print(f"{result['scene']}: {result['pairs']} prompts, bar {bar}{edit}")
    for way, f in result["ways"].items():
        print(f"  {way:14} end to end {f['median']:.2f} (all {f['all']:.2f}, worst {f['worst']:.2f}), decoding {f['decoding']:.2f}, processor {f['processor']:.2f}; "
              f"{f['tokens_per_s']:.1f} tok/s, {f['tokens_per_pass']:.2f} tokens in {f['ms_per_pass']:.1f} ms a pass; accepted {f['accepted']} of {f['drafted']}; "
              f"passes by guesses {f['passes_by_guesses']}")
    counters = result["counters"]

    def total(*words):
        return sum(value for name, value in counters.items() if all(word in name for word in words))

    sources = []
    for source in SOURCES:
        label = f'source="{source}"'
        sources.append(f"{source} {total('proposals_total', label, 'right'):.0f} of {total('proposals_total', label):.0f}")
    n_passes = sum(f["passes"] for f in list(result["ways"].values())[1:])
    print(f"  of all ways: guesses right, verified or not: {', '.join(sources)}; no draft asked after {total('silent_passes'):.0f} of {n_passes} passes, "
          f"asking gain at the end {result['asking_gain']:.2f}; waits for answers {total('wait', '_sum'):.2f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("--model", required=True, help="folder of SmolLM2-135M-Instruct")
    parser.add_argument("--draft", default=str(ROOT / "models/smollm2-draft"))
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--scenes", default=",".join(BARS))
    parser.add_argument("--ways", default="plain,default", help="the first is what the others are compared with")
    parser.add_argument("--requests", type=int, default=16, help="prompts of a scene")
    parser.add_argument("--tokens", type=int, default=128, help="of an answer at most; an edit has its file's length")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if unknown := set(arguments.scenes.split(",")) - set(BARS):
        parser.error(f"--scenes {', '.join(sorted(unknown))}: known are {', '.join(BARS)}")
    settings = [f"model.target={arguments.model}", f"model.draft={arguments.draft}", f"model.dtype={arguments.dtype}", *arguments.set]
    results = []
    with started(arguments.bin, settings, ["--memory"]) as system:
        time.sleep(1)
        bench = Bench(system, arguments)
        for way in bench.ways:  # first passes, and first prices of longer ones
            system.client.ask(prompt="Once upon a time", max_tokens=64, ignore_eos=True, temperature=0.0, tenant="warm", **fields_of(way))
        for scene in arguments.scenes.split(","):
            results.append(run_scene(bench, scene, arguments))
            show(results[-1], BARS[scene])
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
