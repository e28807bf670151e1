#!/usr/bin/python3
"""Is speculation ever slower than plain decoding? Four settings with real models, each against plain decoding of the same
requests by the same target, and all in turn:

  real     the pair: the demo models, or --target with --draft
  random   a draft of random weights, in the draft's shape (of --target alone, the demo draft's), and no other source: it is hardly
           ever right
  lying    the same weights with the last norm 64 times as large: as seldom right, and sure of every token
  sides    the pair on texts that change sides about every two seconds of plain decoding: JSON that the draft is nearly always right about, and
           tokens after no text at temperature 1.5, where it is not. Also how soon an easy side is back at 90 % of its gain.

usage: never_slower.py BIN_DIR [--target FOLDER] [--draft FOLDER] [--rounds N] [--prompts N] [--tokens N]
                       [--concurrency N] [--settings real,random,...] [--json FILE]

`real`, `random` and `lying` are `foretoken bench serve --compare`: plain, speculative, speculative, plain. Each setting has
services of its own, which do nothing while another is measured. Printed are tokens a second as a ratio, median and worst of the
rounds, and the processor time of all services likewise, which says more where other programs run. Exit code 7 if an answer
differs. Only ratios of one run mean something; nothing is asserted of them. Needs Debian's python3 with zmq and msgpack.
"""
import argparse
import contextlib
import json
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from one_system import started

ROOT = pathlib.Path(__file__).resolve().parents[1]
DEMO = {"target": ROOT / "models/demo-target", "draft": ROOT / "models/demo-draft"}
SETTINGS = ("real", "random", "lying", "sides")
SIDE_S = 2.0
N_SIDES = 6  # easy, hard, easy, ...
HARD_PROMPT_TOKENS = 40
WINDOW_S = 0.25  # over which a rate is taken
BACK = 0.9  # of the gain
EXIT_DIFFERS = 7


def foretoken(arguments, *words, **more):
    return subprocess.run([str(pathlib.Path(arguments.bin) / "foretoken"), *words], **more)


# ---- drafts ----

def random_draft(arguments, folder):
    """A folder of random weights in the shape of the pair's draft, or without one of the demo's, with the target's tokenizer."""
    like = json.loads((pathlib.Path(arguments.draft or DEMO["draft"]) / "config.json").read_text("utf-8"))
    n_ids = json.loads((pathlib.Path(arguments.target) / "config.json").read_text("utf-8"))["vocab_size"]
    foretoken(arguments, "model", "init-random", str(folder), "--seed", "7", "--dtype", "bfloat16",
              "--layers", str(like["num_hidden_layers"]), "--hidden", str(like["hidden_size"]),
              "--heads", str(like["num_attention_heads"]), "--kv-heads", str(like["num_key_value_heads"]),
              "--ffn", str(like["intermediate_size"]), "--vocab", str(n_ids),
              "--positions", str(like["max_position_embeddings"]), "--tokenizer", str(arguments.target),
              check=True, stdout=subprocess.DEVNULL)


def scale_last_norm(folder, doublings):
    """Doubles the weights before the head so many times: logits grow likewise, and the largest becomes as good as certain. In
    bfloat16 that is a sum in the exponent of each weight that is not 0."""
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    n_header = struct.unpack("<Q", data[:8])[0]
    tensor = json.loads(data[8:8 + n_header])["model.norm.weight"]
    assert tensor["dtype"] == "BF16", tensor
    begin, end = (8 + n_header + offset for offset in tensor["data_offsets"])
    words = struct.unpack(f"<{(end - begin) // 2}H", data[begin:end])
    data[begin:end] = struct.pack(f"<{len(words)}H", *(word + (doublings << 7) if word & 0x7F80 else word for word in words))
    file.write_bytes(data)


def draft_of(setting, arguments, folder):
    if setting in ("real", "sides"):
        return arguments.draft
    made = folder / "weights"
    random_draft(arguments, made)
    if setting == "lying":
        scale_last_norm(made, 6)
    return made


def systems_of(chosen, arguments, stack):
    """A router, tokenizer, draft and target for each setting, which `stack` ends."""
    systems = {}
    for setting in chosen:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="foretoken-never-slower-")))
        settings = [f"model.target={arguments.target}", f"model.draft={draft_of(setting, arguments, folder)}", "model.name=measured"]
        systems[setting] = stack.enter_context(started(arguments.bin, settings))
    return systems


# ---- the first three settings ----

def processor_ratio(plain, spec):
    """None where the metrics of a service came late: then a run has no processor time of it."""
    plain_s, spec_s = plain["processor_seconds"], spec["processor_seconds"]
    return sum(plain_s.values()) / sum(spec_s.values()) if plain_s and plain_s.keys() == spec_s.keys() else None


def compare(setting, system, arguments):
    """(speculative / plain in tokens a second, plain / speculative in processor time, accepted share, whether texts differ)"""
    alone = () if setting == "real" else ("--proposer", "draft")  # what another source gains would hide what the draft costs
    done = foretoken(arguments, "bench", "serve", "--compare", "--json", "--quiet", "--host", system.endpoint,
                     "--concurrency", str(arguments.concurrency), "--num-prompts", str(arguments.prompts),
                     "-n", str(arguments.tokens), "-t", "0.7", "--seed", "3", *alone, stdout=subprocess.PIPE)
    if done.returncode not in (0, EXIT_DIFFERS):
        sys.exit(f"bench serve --compare ended with exit code {done.returncode}")
    result = json.loads(done.stdout)
    plain, spec = result["plain"], result["speculative"]
    drafted = spec["speculative_decoding"]
    return {"ratio": result["throughput_ratio"], "processor": processor_ratio(plain, spec),
            "accepted": drafted["acceptance_rate"] or 0.0, "differing": result["requests_differing"]}


# ---- a text that changes sides ----

def stream(client, request):
    """(ids, [(when, tokens so far)]), from the first token on."""
    client.send(stream=True, **request)
    ids, seen = [], []
    while True:
        piece = client.next()
        if "error" in piece:
            sys.exit(f"an error: {piece['error']}")
        ids += piece["token_ids"]
        if piece["token_ids"]:
            seen.append((time.monotonic(), len(ids)))
        if piece["done"]:
            return ids, seen


def processor_s(client):
    """Of each service."""
    return {name: value for name, value in client.counters().items() if name.startswith("foretoken_process_cpu_seconds_total")}


def sides_of(arguments):
    """The requests of each side in turn: many short ones, of which a run takes as many as fill the time."""
    draws = random.Random(5)
    prompts = [p for p in json.loads((ROOT / "models/prompts.json").read_text("utf-8")) if p.get("kind") == "json"]
    common = {"max_tokens": arguments.tokens, "ignore_eos": True, "model": "measured"}

    def easy(i):
        prompt = prompts[i % len(prompts)]
        messages = prompt.get("messages") or [{"role": "user", "content": prompt["prompt"]}]
        return {"messages": messages, "temperature": 0.0, "seed": i, **common}

    def hard(i):
        return {"token_ids": [draws.randrange(300, 3000) for _ in range(HARD_PROMPT_TOKENS)], "temperature": 1.5, "seed": i, **common}

    return [(easy if side % 2 == 0 else hard, 100 * side) for side in range(N_SIDES)]


def plan_sides(client, arguments):
    """As many requests for each side as take SIDE_S when they are decoded plainly."""
    sides = []
    for make, first in sides_of(arguments):
        requests, begin = [], time.monotonic()
        while time.monotonic() - begin < SIDE_S:
            requests.append(make(first + len(requests)))
            stream(client, {**requests[-1], "num_draft_tokens": 0})
        sides.append(requests)
    return sides


def run_sides(client, sides, plain):
    """Answers, seconds, processor seconds (None where not all services gave theirs), and of each side its streams."""
    answers, streams = [], []
    before, begin = processor_s(client), time.monotonic()
    for requests in sides:
        of_side = []
        for request in requests:
            ids, seen = stream(client, {**request, "num_draft_tokens": 0} if plain else request)
            answers.append(ids)
            of_side.append(seen)
        streams.append(of_side)
    seconds, after = time.monotonic() - begin, processor_s(client)
    used = sum(after.values()) - sum(before.values()) if after and after.keys() == before.keys() else None
    return answers, seconds, used, streams


def decoding(streams):
    """Streams one after another without what lies between them: [(seconds of decoding, tokens)]."""
    line, at, n = [], 0.0, 0
    for seen in streams:
        for (t0, n0), (t1, n1) in zip(seen, seen[1:]):
            at, n = at + t1 - t0, n + n1 - n0
            line.append((at, n))
    return line


def rate(line, begin, end):
    inside = [(t, n) for t, n in line if begin <= t <= end]
    return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0]) if len(inside) > 2 else 0.0


def time_until_back(line, plain_rate):
    """Seconds of decoding from the turn of the text until WINDOW_S at 90 % of the gain; None where there is no gain."""
    whole = line[-1][0]
    steady = rate(line, whole / 2, whole)
    if steady < 1.05 * plain_rate:
        return None
    wanted = plain_rate + BACK * (steady - plain_rate)
    for begin, _ in line:
        if rate(line, begin, begin + WINDOW_S) >= wanted:
            return begin
    return whole


def change_sides(client, sides):
    plain, spec = [], []
    for is_plain in (True, False, False, True):
        (plain if is_plain else spec).append(run_sides(client, sides, is_plain))
    first = plain[0][0]
    differing = sum(run[0][i] != first[i] for run in plain + spec for i in range(len(first)))
    plain_rate = statistics.median(rate(decoding(streams), 0, SIDE_S * 10) for run in plain for streams in run[3][::2])
    # The first easy side follows plain decoding of another run: no text turned there.
    back = [time_until_back(decoding(streams), plain_rate) for run in spec for streams in run[3][2::2]]
    return {"ratio": sum(run[1] for run in plain) / sum(run[1] for run in spec),
            "processor": None if any(run[2] is None for run in plain + spec) else sum(run[2] for run in plain) / sum(run[2] for run in spec),
            "back_s": [b for b in back if b is not None], "differing": differing}


# ---- all of them ----

def worst_and_median(rounds, name):
    values = [each[name] for each in rounds if each[name] is not None]
    if not values:
        return "    -"
    return f"{statistics.median(values):5.2f} (worst {min(values):.2f})"


def report(results):
    print(f"{'setting':<8} {'tokens/s, of plain':<20} {'per processor time':<20} differing")
    for setting, rounds in results.items():
        n_differing = sum(each["differing"] for each in rounds)
        line = f"{setting:<8} {worst_and_median(rounds, 'ratio'):<20} {worst_and_median(rounds, 'processor'):<20} {n_differing:>9}"
        if setting == "sides":
            back = sorted(b for each in rounds for b in each["back_s"])
            line += f"   back after {statistics.median(back):.2f} s, at worst {back[-1]:.2f} s" if back else "   no gain on easy sides"
        else:
            line += f"   accepted {statistics.median(each['accepted'] for each in rounds):.2f}"
        print(line)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--target")
    parser.add_argument("--draft")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--json")
    arguments = parser.parse_args()
    chosen = arguments.settings.split(",")
    if unknown := set(chosen) - set(SETTINGS):
        parser.error(f"--settings {', '.join(sorted(unknown))}: known are {', '.join(SETTINGS)}")

    if not arguments.target:
        arguments.target, arguments.draft = DEMO["target"], arguments.draft or DEMO["draft"]
    if not arguments.draft and {"real", "sides"} & set(chosen):
        parser.error("real and sides need --draft beside --target")

    results = {setting: [] for setting in chosen}
    with contextlib.ExitStack() as stack:
        systems = systems_of(chosen, arguments, stack)
        sides = plan_sides(systems["sides"].client, arguments) if "sides" in chosen else []
        for _ in range(arguments.rounds):
            for setting, system in systems.items():
                one = change_sides(system.client, sides) if setting == "sides" else compare(setting, system, arguments)
                results[setting].append(one)
    report(results)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    sys.exit(EXIT_DIFFERS if any(each["differing"] for rounds in results.values() for each in rounds) else 0)


if __name__ == "__main__":
    main()
