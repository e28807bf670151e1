#!/usr/bin/env python3
"""Rows of text written by a trained target, for the draft to learn from.

  sample.py --model FOLDER --out FILE.npy --batches 8 [--seed 1] [--length 512]

Prompts come from the generator (their own seed); a third of the batches is greedy, a third at temperature 0.8, a third at 1.0.
"""
import argparse
import pathlib

import decode
import generate
import numpy as np
import tokenizers
import torch


def prompts_of(tok, first, n):
    out, index = [], first
    while len(out) < n:
        _, messages = generate.document(77, index)
        index += 1
        last = next(i for i, (role, _) in enumerate(messages) if role == "assistant")
        text = generate.render(messages[:last]).removesuffix("<|endoftext|>") + "<|im_start|>assistant\n"
        ids = tok.encode(text, add_special_tokens=False).ids
        if len(ids) < 420:
            out.append(ids)
    return sorted(out, key=len), index


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", type=pathlib.Path, required=True)
    p.add_argument("--out", type=pathlib.Path, required=True)
    p.add_argument("--batches", type=int, default=8)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--length", type=int, default=512)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    torch.set_num_threads(1)
    tok = tokenizers.Tokenizer.from_file(str(args.model / "tokenizer.json"))
    model, first, texts = decode.load(args.model), args.seed * 1_000_000, []
    newline = tok.encode("\n").ids
    for b in range(args.batches):
        prompts, first = prompts_of(tok, first, args.batch * 4)
        prompts = prompts[(b % 4) * args.batch:(b % 4 + 1) * args.batch]  # a quarter of like lengths: little padding
        out = decode.generate(model, prompts, 400, (0.0, 0.8, 1.0)[b % 3], seed=args.seed * 100 + b)
        texts += [p + t + newline + [decode.END_OF_TEXT] for p, t in zip(prompts, out) if t[-1] == decode.END]
        print(f"batch {b}: {sum(map(len, out))} tokens", flush=True)
        order, flat = np.random.default_rng(args.seed), []
        for i in order.permutation(len(texts)):
            flat.append(texts[i])
        rows, row = [], []
        for t in flat:
            row = row + t
            if len(row) >= args.length + 1:
                rows.append(row[:args.length + 1])
                row = []
        np.save(args.out, np.array(rows, dtype=np.uint16))


if __name__ == "__main__":
    main()
