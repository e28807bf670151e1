"""What rounding to eight and four bits takes from a model, here and in llama.cpp: each engine's logits beside its own of unrounded weights.

usage: accuracy.py [--work build/peers] [--programs build/release/bin] [--text FILE]      (default text: docs/architecture.md)

Wants what `run.sh --install-only --models smollm2 --peers llama.cpp` leaves. Prints the KL divergence in nats, mean over the positions of
the text's first 1,000 tokens, how often the likeliest token is the same, and the bytes of the stored weights, where a file has them.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

from peers import GGUF_TYPES, ROOT, Model, every_peer

N_TOKENS = 1000


def run(*words):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout


def size_of(*paths):
    return sum(path.stat().st_size for path in paths) / 2**20


def quantised(program, folder, text, name, *flags):
    """A folder in fewer bits, and what that changed."""
    with tempfile.TemporaryDirectory() as parent:
        out = pathlib.Path(parent) / "out"
        report = json.loads(run(program, "model", "quantize", folder, out, "--text", text, "--json", "--quiet", *flags))
        logits = report["logits"]
        line(f"Foretoken {name}", logits["mean_kl_nats"], logits["same_top"], logits["positions"], size_of(*out.glob("*.safetensors")))


def quantised_while_loading(program, folder, text, name, dtype):
    """A folder in fewer bits, made while it loads and never written: what that changed."""
    logits = json.loads(run(program, "model", "compare", folder, "--dtype", dtype, "--text", text, "--json"))["logits"]
    line(f"Foretoken {name}", logits["mean_kl_nats"], logits["same_top"], logits["positions"], None)


def line(name, kl, n_same, n_positions, mib):
    stored = "not stored" if mib is None else f"{mib:.0f} MiB"
    print(f"| {name} | {kl:.4f} | {n_same / n_positions:.1%} | {stored} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/peers")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "docs/architecture.md")
    options = parser.parse_args()
    folder = options.work / "models/smollm2"
    ids = json.loads(run(options.programs / "foretoken", "tokenize", "--model", folder / "target", "--json",
                         options.text.read_text()))["ids"][:N_TOKENS]
    text = tempfile.NamedTemporaryFile("w", suffix=".txt")
    text.write(json.loads(run(options.programs / "foretoken", "detokenize", "--model", folder / "target", "--json", *ids))["text"])
    text.flush()
    print("| weights | KL | same likeliest token | stored |\n|---|---|---|---|")
    for name, flags in (("int8", ("int8",)), ("int4, down projections in int8", ("int4",)), ("int4, all", ("int4", "--down-proj"))):
        quantised(options.programs / "foretoken", folder / "target", text.name, name, "--to", *flags)
    quantised_while_loading(options.programs / "foretoken", folder / "target", text.name, "int4 while loading", "int4")
    peer = every_peer(options.work, options.programs, 2)["llama.cpp"]
    for weights in ("int8", "int4"):
        peer.start(Model("smollm2", folder / "target", folder, None, 2048), weights)
        kind = GGUF_TYPES[weights]
        peer.ask(do="load", model=str(folder / f"target.{kind}.gguf"), draft=str(folder / "target.bf16.gguf"), threads=2, context=2048)
        said = peer.ask(do="compare", ids=ids)
        line(f"llama.cpp {kind.upper()}", said["kl"], said["same_top"], said["positions"], size_of(folder / f"target.{kind}.gguf"))
        peer.stop()


if __name__ == "__main__":
    main()
