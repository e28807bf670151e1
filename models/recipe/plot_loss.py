#!/usr/bin/env python3
"""Draws the committed loss curves (curves/*.csv: step, tokens, loss, learning-rate factor, seconds) as curves/loss.svg."""
import csv
import pathlib

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "demo"
import matplotlib.pyplot as plt

HERE = pathlib.Path(__file__).parent / "curves"
figure, axes = plt.subplots(figsize=(7, 3.5))
for path in sorted(HERE.glob("*.csv")):
    rows = [(int(r[1]) / 1e6, float(r[2])) for r in csv.reader(path.open())]
    window = 8
    smooth = [(rows[i][0], sum(v for _, v in rows[max(0, i - window + 1):i + 1]) / min(window, i + 1)) for i in range(len(rows))]
    axes.plot(*zip(*smooth), label=path.stem)
axes.set(xlabel="million tokens (of the stage)", ylabel="nats per token, mean of 8 steps", yscale="log")
axes.legend()
figure.tight_layout()
figure.savefig(HERE / "loss.svg", metadata={"Date": None})
