#!/usr/bin/env python3
"""Trains a model of the demo pair on the CPU, in one-thread worker processes that share the weights.

Every step is a number of micro-batches; a worker takes the next one whenever it is free, so a busy neighbour on the machine
slows a step but never leaves a core waiting for long. The optimiser's matrices are divided between the workers. Which
micro-batch has which text depends on the step alone, so only the order of additions differs between runs.

Optimiser: Muon (momentum, orthogonalised) for the matrices of the layers, Adam for the embedding and the norms. Learning rate:
warm-up, constant, linear decay over the last --decay steps. Loss: next token; text that a user or the system writes counts a tenth.

Growing: --grow FILE starts from a checkpoint with fewer layers. Layer i of n begins as layer i*m/n of m; second copies have their
output projections zeroed, so the grown model begins as the same function.

Distilling: --teacher FILE adds the cross-entropy against the teacher's distribution; --samples FILE.npy mixes in rows of the
teacher's own text (see sample.py).
"""
import argparse
import os
import pathlib
import time

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import tokenizers
import torch
import torch.multiprocessing as mp
import torch.nn.functional as F

import generate
from model import SHAPES, Llama
from muon import orthogonalise

HERE = pathlib.Path(__file__).parent
START, END = 1, 2


class Rows:
    """Rows of `length + 1` tokens, documents back to back; a row begins with a document, or with probability 1/4 inside one."""

    def __init__(self, seed, tokenizer):
        self.seed, self.tok = seed, tokenizers.Tokenizer.from_file(str(tokenizer))
        self.assistant = self.tok.token_to_id("assistant")

    def row(self, index, length):
        rng = generate.Rng(self.seed + 1000, index)
        ids, first = [], index * 16  # at most 16 documents a row
        while len(ids) < length + 1 + 256:
            _, messages = generate.document(self.seed, first)
            first += 1
            ids += self.tok.encode(generate.render(messages), add_special_tokens=False).ids
        skip = rng.below(256) if rng.chance(25) else 0
        ids = np.array(ids[skip:skip + length + 1], dtype=np.int64)
        return ids, self.weights(ids)

    def weights(self, ids):
        """1 for what the assistant writes (with its end), 0.1 for the rest; of a row that begins inside, the rest counts fully."""
        out, own = np.full(len(ids), 0.1, dtype=np.float32), ids[0] != START
        for i, t in enumerate(ids):
            if own or t == 0:
                out[i] = 1.0
            if t == END:
                own = False
            elif i >= 2 and ids[i - 2] == START and ids[i - 1] == self.assistant:
                own = True
        return out

    def batch(self, first, n, length, samples=None, share=0.0):
        rows = []
        for i in range(first, first + n):
            rng = generate.Rng(self.seed + 2000, i)
            if samples is not None and rng.below(1000) < share * 1000:
                ids = samples[rng.below(len(samples))][:length + 1].astype(np.int64)
                rows.append((ids, self.weights(ids)))
            else:
                rows.append(self.row(i, length))
        ids = torch.from_numpy(np.stack([r[0] for r in rows]))
        w = torch.from_numpy(np.stack([r[1] for r in rows]))
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), w[:, 1:].contiguous()


class Optimiser:
    """Updates the parameters of one worker from the sum of all workers' gradients."""

    def __init__(self, named, args):
        self.named, self.args, self.state = named, args, {n: {} for n, _ in named}

    @torch.no_grad()
    def step(self, grads, scale, t, base):
        for name, p in self.named:
            g = sum(worker[name] for worker in grads) * scale
            st = self.state[name]
            factor = base * (self.args.kept if self.args.added and name not in self.args.added else 1.0)
            if p.dim() == 2 and "embed" not in name:
                m = st.setdefault("m", torch.zeros_like(p))
                m.lerp_(g, 0.05)
                update = orthogonalise(g.lerp(m, 0.95))
                lr = self.args.lr * factor * max(1.0, p.shape[0] / p.shape[1]) ** 0.5
                p.mul_(1 - lr * self.args.wd).add_(update, alpha=-lr)
            else:
                m, v = st.setdefault("m", torch.zeros_like(p)), st.setdefault("v", torch.zeros_like(p))
                m.lerp_(g, 0.1)
                v.lerp_(g * g, 0.05)
                lr = self.args.adam_lr * factor
                p.addcdiv_(m / (1 - 0.9 ** t), (v / (1 - 0.95 ** t)).sqrt() + 1e-8, value=-lr)
            for worker in grads:
                worker[name].zero_()


def factor_at(step, args):
    return min(1.0, (step + 1) / args.warmup) * min(1.0, max(0.0, (args.steps - step) / max(1, args.decay)))


def load_grown(model, path):
    old = torch.load(path, weights_only=True)["model"]
    m = 1 + max(int(k.split(".")[1]) for k in old if k.startswith("layers."))
    n = model.s.layers
    new, added = {k: v for k, v in old.items() if not k.startswith("layers.")}, set()
    for i in range(n):
        src = i * m // n
        copy = i > 0 and (i - 1) * m // n == src
        for k, v in old.items():
            if k.startswith(f"layers.{src}."):
                if copy:
                    added.add(k.replace(f"layers.{src}.", f"layers.{i}.", 1))
                zero = copy and k.endswith(("o_proj.weight", "down_proj.weight"))
                new[k.replace(f"layers.{src}.", f"layers.{i}.", 1)] = torch.zeros_like(v) if zero else v.clone()
    model.load_state_dict(new)
    return added


def load_teacher(path):
    kept = torch.load(path, weights_only=True)
    shape = SHAPES["target"]
    shape.layers = 1 + max(int(k.split(".")[1]) for k in kept["model"] if k.startswith("layers."))
    teacher = Llama(shape)
    teacher.load_state_dict(kept["model"])
    return teacher.eval().requires_grad_(False)


def loss_fn(logits, targets, weights):
    ce = F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1), reduction="none")
    return (ce * weights.view(-1)).sum()


def distil_fn(logits, wanted, weights):
    logp = F.log_softmax(logits.float(), -1)
    return (-(torch.softmax(wanted.float(), -1) * logp).sum(-1) * weights).sum()


def worker(rank, args, model, grads, counter, sums, barrier, start_step, start_tokens):
    torch.set_num_threads(1)
    rows = Rows(args.seed, args.tokenizer)
    samples = np.load(args.samples) if args.samples else None
    teacher = load_teacher(args.teacher) if args.teacher else None
    named = list(model.named_parameters())
    for n, p in named:
        p.grad = grads[rank][n]
    mine, cost = [], [0] * args.workers
    for n, p in sorted(named, key=lambda x: -x[1].numel() * min(x[1].shape)):  # dearest first, to the least loaded
        r = cost.index(min(cost))
        cost[r] += p.numel() * min(p.shape) if p.dim() == 2 and "embed" not in n else p.numel() * 20
        if r == rank:
            mine.append((n, p))
    opt = Optimiser(mine, args)
    state = args.out / f"state-{rank}.pt"
    if start_step and state.exists():
        opt.state.update(torch.load(state, weights_only=True))
    if args.compile:
        for layer in model.layers:
            layer.compile()
    loss, distil = (torch.compile(loss_fn), torch.compile(distil_fn)) if args.compile else (loss_fn, distil_fn)
    tokens, began = start_tokens, time.time()
    for step in range(start_step, args.steps):
        while True:
            with counter.get_lock():
                micro = counter.value
                counter.value += 1
            if micro >= args.micros:
                break
            first = (step * args.micros + micro) * args.rows
            ids, targets, weights = rows.batch(first, args.rows, args.length, samples, args.share)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(ids)
                if teacher is not None:
                    with torch.no_grad():
                        wanted = teacher(ids)
            total = distil(logits, wanted, weights) if teacher is not None else loss(logits, targets, weights)
            total.backward()
            with sums.get_lock():
                sums[0] += total.item()
                sums[1] += weights.sum().item()
        barrier.wait()
        n_weight, value = sums[1], sums[0] / max(sums[1], 1e-9)
        norm_scale = 1.0 / n_weight
        opt.step(grads, norm_scale, step + 1, factor_at(step, args))
        barrier.wait()
        stop = (args.out / "stop").exists()
        if rank == 0:
            counter.value, sums[0], sums[1] = 0, 0.0, 0.0
            tokens += args.micros * args.rows * args.length
            line = f"{step},{tokens},{value:.5f},{factor_at(step, args):.4f},{time.time() - began:.1f}"
            with open(args.out / "loss.csv", "a") as f:
                f.write(line + "\n")
            if step % 10 == 0 or step < 5:
                print(line, f"{(tokens - start_tokens) / (time.time() - began):.0f} tok/s", flush=True)
        save = stop or step + 1 == args.steps or (step + 1) % args.save == 0
        if save:
            torch.save(opt.state, state)
            if rank == 0:
                torch.save({"model": model.state_dict(), "step": step + 1, "tokens": tokens}, args.out / "checkpoint.tmp")
                os.replace(args.out / "checkpoint.tmp", args.out / "checkpoint.pt")
        barrier.wait()
        if stop:
            break


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shape", choices=SHAPES, required=True)
    p.add_argument("--layers", type=int, help="fewer layers than the shape has, to grow later")
    p.add_argument("--out", type=pathlib.Path, required=True)
    p.add_argument("--tokenizer", type=pathlib.Path, default=HERE.parent / "demo-target" / "tokenizer.json")
    p.add_argument("--grow", type=pathlib.Path)
    p.add_argument("--kept", type=float, default=1.0, help="factor on the learning rate of what --grow took over as it was")
    p.add_argument("--teacher", type=pathlib.Path)
    p.add_argument("--samples", type=pathlib.Path)
    p.add_argument("--share", type=float, default=0.0, help="share of the rows taken from the samples")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--steps", type=int, required=True)
    p.add_argument("--decay", type=int, default=0)
    p.add_argument("--warmup", type=int, default=20)
    p.add_argument("--length", type=int, default=512)
    p.add_argument("--rows", type=int, default=4)
    p.add_argument("--micros", type=int, default=4)
    p.add_argument("--lr", type=float, default=0.02)
    p.add_argument("--adam-lr", type=float, default=0.003)
    p.add_argument("--wd", type=float, default=0.01)
    p.add_argument("--save", type=int, default=50)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--compile", action="store_true")
    args = p.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "stop").unlink(missing_ok=True)
    torch.manual_seed(args.seed)
    shape = SHAPES[args.shape]
    shape.layers = args.layers or shape.layers
    model, start, tokens, args.added = Llama(shape), 0, 0, None
    if (args.out / "checkpoint.pt").exists():
        kept = torch.load(args.out / "checkpoint.pt", weights_only=True)
        model.load_state_dict(kept["model"])
        start, tokens = kept["step"], kept["tokens"]
    elif args.grow:
        args.added = load_grown(model, args.grow)
    model.share_memory()
    grads = [{n: torch.zeros_like(q).share_memory_() for n, q in model.named_parameters()} for _ in range(args.workers)]
    ctx = mp.get_context("spawn")
    counter, sums, barrier = ctx.Value("i", 0), ctx.Array("d", 2), ctx.Barrier(args.workers)
    print(f"{sum(q.numel() for q in model.parameters())} parameters, from step {start}", flush=True)
    procs = [ctx.Process(target=worker, args=(r, args, model, grads, counter, sums, barrier, start, tokens)) for r in range(args.workers)]
    for q in procs:
        q.start()
    for q in procs:
        q.join()


if __name__ == "__main__":
    main()
