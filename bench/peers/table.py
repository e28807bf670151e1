"""The table of what compare.py wrote, as Markdown on stdout.

usage: table.py [--processor-time] RESULTS.json...      several: parts of one comparison, of the same machine and peers
--processor-time: tokens for a second of a core's time, the prompt's share included, instead of tokens a second: what is left to compare
where other work takes the cores. Threads that wait for each other spin, so it is fair with one thread alone.

A ratio is the median over prompts of what was read beside each other, with the least and the largest in brackets; above 1 is always
better for Foretoken: faster, sooner, smaller.
"""

import json
import pathlib
import statistics
import sys
from collections import defaultdict

LOWER_IS_BETTER = {"s", "ms", "MiB"}
NOTES = {
    "prefill": "to the first token of an answer", "rows": "one pass, in single rows", "load": "from the command to the first token",
    "memory": "peak of all processes", "load memory": "peak after the load, of what holds the target", "plain": "decoding alone",
    "draft": "best K of those tried", "lookup": "prompt lookup on prompts that copy, best K"}
STREAM_WAYS = ("plain", "speculative")


class Table:
    """The lines of one results file."""

    def __init__(self, result):
        self.result = result
        self.all = [name for name, about in result["peers"].items() if not about["missing"]]
        self.peers = [name for name in self.all if name != "foretoken"]
        self.cells = defaultdict(list)  # model, weights, cell, what it is of -> figures
        self.streams = defaultdict(lambda: defaultdict(list))  # model, weights -> streams, plain or speculative -> figures
        for figure in result["cells"]:
            if figure["cell"] == "streams":
                self.streams[figure["model"], figure["weights"]][figure["streams"], STREAM_WAYS[figure["k"] > 0]].append(figure)
                continue
            detail = figure.get("length") or figure.get("rows") or 0
            self.cells[figure["model"], figure["weights"], figure["cell"], detail].append(figure)

    def print(self):
        result = self.result
        machine = result["machine"]
        print(f"{machine['processor']}; {machine['cores']} cores, {', '.join(machine['instructions'])}; {machine['memory_gib']} GiB; "
              f"threads of each peer, on as many cores: {result['threads']}.\n")
        for part in result["parts"]:
            print(f"- {part['date']}, commit {part['commit']}, {part['seconds']} s, load average {part['machine']['load_average']:.1f} "
                  f"before and {part['load_average_after']:.1f} after: `{part['command']}`")
        for about in result["peers"].values():
            print(f"- {about['title']}: {about['missing'] or about['version']}")
        others = [figure["others"] for figure in result["cells"]]
        print(f"\nBeside them, just before a figure, other work took {statistics.median(others):.0%} of the cores at the median, "
              f"{statistics.quantiles(others, n=10)[-1]:.0%} before a tenth of the figures.")
        if self.cells:
            self.print_cells()
        for (model, weights), rows in self.streams.items():
            self.print_streams(model, weights, rows)
        for failure in result["failures"]:
            print(f"\nNot measured: {failure['peer']}, {failure['model']} {failure['weights']}, {failure['what']}: {failure['reason']}")
        print(FOOT)

    def print_cells(self):
        titles = [self.title(name) for name in self.all] + [f"× {self.title(name)}" for name in self.peers]
        print(f"\n| model, weights | what | {' | '.join(titles)} |")
        print("|" + "---|" * (2 + len(titles)))
        seen = list(self.cells)
        groups = list(dict.fromkeys(key[:3] for key in seen))  # as they were read, and sizes in their order
        for model, weights, cell, detail in sorted(seen, key=lambda key: (groups.index(key[:3]), key[3])):
            self.line(model, weights, cell, detail, self.cells[model, weights, cell, detail])

    def title(self, name):
        return self.result["peers"][name]["title"]

    def print_streams(self, model, weights, rows):
        """Counts of streams as rows, peers as columns, and Foretoken in terms of the best of the others."""
        every = [name for name in self.all if any(figure["peer"] == name for figures in rows.values() for figure in figures)]
        print(f"\nStreams, {model} {weights}: tokens a second of all together, p99 of the gaps between two pieces of a stream, p50 and p99 "
              "to the first piece.\n")
        print(f"| streams | {' | '.join(self.title(name) for name in every)} | Foretoken × the best of the others |")
        print("|" + "---|" * (2 + len(every)))
        for count, way in sorted(rows, key=lambda key: (STREAM_WAYS.index(key[1]), key[0])):
            best = best_streams(rows[count, way])
            words = [stream_reading(best.get(name), way) for name in every]
            ours, theirs = best.get("foretoken"), best_other(best)
            ratio = f"{spread(ratios(ours, best[theirs]))} {self.title(theirs)}" if ours and theirs else "–"
            print(f"| {count}, {way} | {' | '.join(words)} | {ratio} |")

    def line(self, model, weights, cell, detail, figures):
        unit = figures[0]["unit"]
        by_peer = defaultdict(lambda: defaultdict(dict))  # peer -> K -> index -> figure
        for figure in figures:
            by_peer[figure["peer"]][figure.get("k", 0)][figure["index"]] = figure
        best = {peer: self.best(runs, cell, unit) for peer, runs in by_peer.items()}
        texts = [self.reading(peer, cell, detail, unit, by_peer.get(peer), best.get(peer), model, weights)
                 for peer in self.all]
        ratios = [self.ratio(unit, by_peer, best, peer) if cell != "rows" else "" for peer in self.peers]
        what = f"{cell}{f' {detail}' if detail else ''}, {NOTES[cell]}"
        print(f"| {model} {weights} | {what} | {' | '.join(texts)} | {' | '.join(ratios)} |")

    def best(self, runs, cell, unit):
        """The K whose median is best; 0 counts as one where guesses are only asked for."""
        guessed = [k for k in runs if k > 0] if cell in ("draft", "lookup") else list(runs)
        pick = min if unit in LOWER_IS_BETTER else max
        return pick(guessed, key=lambda k: median(runs[k])) if guessed else None

    def reading(self, peer, cell, detail, unit, runs, best, model, weights):
        if runs is None or best is None:
            return "–"
        value = median(runs[best])
        if cell == "rows":
            single = [f["value"] for f in self.cells[model, weights, "rows", 1] if f["peer"] == peer]
            if not single:
                return "–"
            return f"{value:.1f} ms" if detail == 1 else f"{value / statistics.median(single):.2f}"
        text = f"{value:.2f} {unit}" if value < 10 else f"{value:.0f} {unit}"
        if cell in ("draft", "lookup"):
            figures = [figure for k, run in runs.items() if k > 0 for figure in run.values()]
            same = sum(figure["same_text"] for figure in figures)
            gain = statistics.median(runs[best][i]["value"] / runs[0][i]["value"] for i in runs[best] if i in runs[0])
            text += f" (K {best}, {gain:.2f} of its plain; same text {same}/{len(figures)})"
        return text

    def ratio(self, unit, by_peer, best, peer):
        if best.get(peer) is None or best.get("foretoken") is None:
            return "–"
        return spread(ratios(by_peer["foretoken"][best["foretoken"]], by_peer[peer][best[peer]], unit))


def ratios(ours, theirs, unit=""):
    """Of figures that were read beside each other; index -> figure. Above 1 is better for ours."""
    read = [ours[i]["value"] / theirs[i]["value"] for i in ours if i in theirs]
    return [1 / each for each in read] if unit in LOWER_IS_BETTER else read


def spread(read):
    if not read:
        return "–"
    return f"**{statistics.median(read):.2f}**" + (f" ({min(read):.2f}–{max(read):.2f})" if len(read) > 1 else "")


def best_streams(figures):
    """Peer -> index -> figure, of each peer's best K, for one number of streams and one way of decoding."""
    runs = defaultdict(lambda: defaultdict(dict))
    for figure in figures:
        runs[figure["peer"]][figure["k"]][figure["index"]] = figure
    return {peer: max(by_k.values(), key=median) for peer, by_k in runs.items()}


def best_other(best, unit=""):
    """The peer beside Foretoken whose median is best; of peer -> index -> figure."""
    others, pick = [name for name in best if name != "foretoken"], min if unit in LOWER_IS_BETTER else max
    return pick(others, key=lambda name: median(best[name])) if others else None


def stream_reading(run, way):
    if not run:
        return "–"
    figures = list(run.values())
    middle = {key: statistics.median(figure[key] for figure in figures) for key in ("value", "gap_p99_ms", "first_p50_ms", "first_p99_ms")}
    same, of = (sum(figure["same"][i] for figure in figures) for i in (0, 1))
    k = f"K {figures[0]['k']}, " if way == STREAM_WAYS[True] else ""
    return (f"{middle['value']:.0f} {figures[0]['unit']} ({k}gaps {middle['gap_p99_ms']:.0f} ms, first {middle['first_p50_ms']:.0f} and "
            f"{middle['first_p99_ms']:.0f} ms, same text {same}/{of})")


def median(run):
    return statistics.median(figure["value"] for figure in run.values())


FOOT = """
A ratio is a median over prompts or repeats of figures that were read beside each other, least and largest in brackets; above 1 is better
for Foretoken. Foretoken is asked over ZeroMQ, through router and tokenizer, and guesses less where it does not pay, without --fixed; the others
are loops in a process of their own. "Same text": guessed answers that equal the peer's own plain ones, of all K. Rows are times of one
pass in single rows of the same peer: Foretoken's without attention (`foretoken bench micro`, layers of the model's shape), the others'
whole passes behind 64 tokens. 8 bits are int8 and Q8_0, 4 bits int4 and Q4_0: different
roundings, so that texts of two peers may differ. Weights of 1b are random. Streams: each peer as a server that is asked over HTTP by one
client, with its best K where it guesses; "same text" are those answers that equal the server's own plain one to the same prompt, asked
alone."""


def joined(paths):
    parts = [json.loads(pathlib.Path(path).read_text(encoding="utf-8")) for path in paths]
    if any((part["machine"]["processor"], part["threads"]) != (parts[0]["machine"]["processor"], parts[0]["threads"]) for part in parts):
        sys.exit("error: these files are of different machines or numbers of threads")
    seen = [{(cell["model"], cell["weights"], cell["cell"], cell["peer"]) for cell in part["cells"]} for part in parts]
    if len(set().union(*seen)) < sum(map(len, seen)):  # figures of two runs were not read beside each other
        sys.exit("error: two of these files have the same cell of the same peer; make a table of each")
    every = {key: sum((part[key] for part in parts), []) for key in ("cells", "failures")}
    peers = {name: about for part in parts for name, about in part["peers"].items()}
    return {**parts[0], **every, "peers": peers, "parts": parts}


def by_processor_time(result):
    for figure in result["cells"]:
        if "processor_s" in figure:
            figure["value"], figure["unit"] = figure["tokens"] / figure["processor_s"], "tok/core s"
    return result


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--processor-time"]
    if not words:
        sys.exit(__doc__)
    results = joined(words)
    Table(by_processor_time(results) if len(words) < len(sys.argv) - 1 else results).print()
