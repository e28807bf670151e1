"""Plots of what compare.py wrote, as SVG: ratios.svg, Foretoken in times of the best of its peers for each cell, and streams.svg, tokens a
second of many streams together.

usage: plots.py [--processor-time] [--png] FOLDER RESULTS.json...      several: parts of one comparison, as for table.py
--png: the same pictures as PNG beside, to look at.
"""

import pathlib
import statistics
import sys
from collections import defaultdict

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

from table import STREAM_WAYS, Table, best_other, best_streams, by_processor_time, joined, ratios  # noqa: E402

# Okabe and Ito's colours, which people see apart whatever colours they see; marks differ as well.
LOOKS = {"foretoken": ("#D55E00", "o"), "llama.cpp": ("#0072B2", "s"), "ik_llama.cpp": ("#56B4E9", "D"), "vllm": ("#009E73", "^"),
         "openvino": ("#CC79A7", "v"), "transformers": ("#666666", "P")}
CELLS = {"plain": "one stream, plain", "draft": "one stream, draft", "lookup": "one stream, prompt lookup", "prefill": "prefill",
         "streams": "streams", "memory": "memory", "load": "time to load", "load memory": "memory after the load"}
WEIGHTS = ("bfloat16", "int8", "int4")
STYLE = {"font.size": 9, "svg.hashsalt": "foretoken", "svg.fonttype": "none", "axes.spines.top": False, "axes.spines.right": False,
         "axes.grid": True, "grid.color": "#dddddd", "axes.axisbelow": True, "legend.frameon": False}


def against_best(table):
    """model, weights -> what is measured, in the order of CELLS -> the best of the other peers and Foretoken's ratios to it."""
    found = defaultdict(dict)
    for (model, weights, cell, detail), figures in table.cells.items():
        if cell not in CELLS:
            continue
        unit, runs = figures[0]["unit"], defaultdict(lambda: defaultdict(dict))
        for figure in figures:
            runs[figure["peer"]][figure.get("k", 0)][figure["index"]] = figure
        best = {peer: by_k[k] for peer, by_k in runs.items() if (k := table.best(by_k, cell, unit)) is not None}
        found[model, weights][list(CELLS).index(cell), detail, f"{CELLS[cell]}{f' of {detail} tokens' if detail else ''}"] = best, unit
    for key, rows in table.streams.items():
        for (count, way), figures in rows.items():
            what = list(CELLS).index("streams"), 100 * STREAM_WAYS.index(way) + count, f"{count} stream{'s' * (count > 1)} by HTTP, {way}"
            found[key][what] = best_streams(figures), figures[0]["unit"]
    compared = defaultdict(dict)
    for key, every in found.items():
        for what, (best, unit) in every.items():
            rival = best_other(best, unit)
            if rival and "foretoken" in best and (read := ratios(best["foretoken"], best[rival], unit)):
                compared[key][what] = rival, read
    return compared


def grid(rows, weights, heights, **how):
    return plt.subplots(len(rows), len(weights), squeeze=False, gridspec_kw={"height_ratios": heights}, layout="constrained", **how)


def draw_ratios(table):
    compared = against_best(table)
    if not compared:
        return None
    models = list(dict.fromkeys(model for model, _ in compared))
    weights = [name for name in WEIGHTS if any(key[1] == name for key in compared)]
    lines = {model: sorted({what for key, cells in compared.items() if key[0] == model for what in cells}) for model in models}
    heights = [len(lines[model]) + 1.5 for model in models]
    figure, axes = grid(models, weights, heights, figsize=(2.6 * len(weights) + 2.6, 0.2 * sum(heights) + 1.3), sharex=True, sharey="row")
    seen = {}
    for model, in_row in zip(models, axes):
        for name, axis in zip(weights, in_row):
            for what, (rival, read) in compared.get((model, name), {}).items():
                row, middle, (colour, mark) = lines[model].index(what), statistics.median(read), LOOKS[rival]
                axis.plot([min(read), max(read)], [row, row], color=colour, linewidth=2.5, alpha=0.4, solid_capstyle="round")
                seen[rival], = axis.plot([middle], [row], mark, color=colour, markersize=5.5, linestyle="none")
                axis.annotate(f"{middle:.2f}", (1.02, row), xycoords=("axes fraction", "data"), va="center", fontsize=7.5,
                              fontweight="bold" if middle < 1 else "normal")
            axis.axvline(1, color="black", linewidth=1)
            axis.set_title(f"{model}, {name}", loc="left", fontsize=9, fontweight="bold")
            axis.set_yticks(range(len(lines[model])), [words for _, _, words in lines[model]])
            axis.set_ylim(len(lines[model]) - 0.4, -0.6)
            axis.set_xscale("log")
            axis.grid(axis="y", linestyle=":")
    every = [value for cells in compared.values() for _, read in cells.values() for value in read]
    low, high = min(every) / 1.1, max(every) * 1.1
    steps = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if high / low > 6 else (0.4, 0.5, 0.6, 0.8, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5)
    marks = [mark for mark in steps if low <= mark <= high]
    axes[0, 0].set_xlim(min(low, 0.9), max(high, 1.1))
    for axis in axes[-1]:
        axis.set_xticks(marks, [f"{mark:g}" for mark in marks])
        axis.minorticks_off()
    figure.suptitle("Foretoken in times of the best of its peers: median, least and largest\n"
                    "(log scale; right of the line Foretoken is better)", fontsize=10)
    figure.legend(seen.values(), [f"best other: {table.title(name)}" for name in seen], loc="outside lower center", ncols=3)
    return figure


def draw_streams(table):
    if not table.streams:
        return None
    weights = [name for name in WEIGHTS if any(key[1] == name for key in table.streams)]
    every = list(dict.fromkeys((model, way) for model, _ in table.streams for way in STREAM_WAYS
                               if any(key[1] == way for key, rows in table.streams.items() if key[0] == model for key in rows)))
    figure, axes = grid(every, weights, [1] * len(every), figsize=(2.9 * len(weights) + 0.8, 2.3 * len(every) + 1), sharey="row")
    seen = {}
    for (model, way), in_row in zip(every, axes):
        for name, axis in zip(weights, in_row):
            rows = table.streams.get((model, name), {})
            best = {count: best_streams(figures) for (count, other), figures in sorted(rows.items()) if other == way}
            for peer in table.all:
                at = [count for count in best if peer in best[count]]
                values = [[figure["value"] for figure in best[count][peer].values()] for count in at]
                if not at:
                    continue
                colour, mark = LOOKS[peer]
                axis.fill_between(at, [min(read) for read in values], [max(read) for read in values], color=colour, alpha=0.15, linewidth=0)
                seen[peer], = axis.plot(at, [statistics.median(read) for read in values], color=colour, marker=mark, markersize=5)
            axis.set_xscale("log", base=2)
            axis.set_xticks(list(best), [str(count) for count in best])
            axis.set_title(f"{model}, {name}, {way}", loc="left", fontsize=9, fontweight="bold")
        for axis in axes[-1]:
            axis.set_xlabel("streams at a time")
        in_row[0].set_ylim(0, 1.05 * max(axis.dataLim.y1 for axis in in_row if axis.lines))
    unit = next(figures for rows in table.streams.values() for figures in rows.values())[0]["unit"]
    figure.supylabel("tokens for a second of a core" if unit == "tok/core s" else "tokens a second, all streams together", fontsize=9)
    figure.suptitle("Many requests at a time, prompts of 128 tokens:\nmedian, least and largest", fontsize=10)
    figure.legend(seen.values(), [table.title(name) for name in seen], loc="outside lower center", ncols=4)
    return figure


def main():
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    if len(words) < 2:
        sys.exit(__doc__)
    plt.rcParams.update(STYLE)
    result = joined(words[1:])
    table = Table(by_processor_time(result) if "--processor-time" in sys.argv else result)
    folder = pathlib.Path(words[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in (("ratios", draw_ratios(table)), ("streams", draw_streams(table))):
        for form in ("svg", "png") if "--png" in sys.argv and figure else ("svg",) if figure else ():
            figure.savefig(folder / f"{name}.{form}", metadata={"Date": None} if form == "svg" else None, dpi=110)
            print(folder / f"{name}.{form}")


if __name__ == "__main__":
    main()
