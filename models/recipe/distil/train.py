"""Trains a draft with a trimmed head on the CPU, in one-thread worker processes that share the weights.

As train.py beside this package: a step is a number of micro-batches, and a worker takes the next one whenever it is free. Which
answers a micro-batch has depends on the step alone. Of the input embedding only the rows that a step used have gradients and
are updated. Muon for the matrices of the layers, Adam for embedding, head and norms.

Loss of a position of an answer: cross-entropy against the target's likeliest ids and the rest as one more outcome, or, where
none were collected, against the token that it wrote. Prompts are read, and not learnt.

Ctrl-C ends it after the step under way. checkpoint.pt has everything of the last step that was saved, for the same ones again.
"""
import os
import pathlib
import signal
import threading
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn.functional as F

from distil.folder import Refused, say
from distil.system import end_with_parent
from model import Llama, Shape
from muon import orthogonalise

WARMUP, DECAY = 40, 0.35  # steps, and the share of the run in which the learning rate falls to zero
LR, ADAM_LR, WEIGHT_DECAY = 0.02, 0.003, 0.01
EMBEDDING_SIZE, HEAD_SIZE = 0.3, 0.06  # root mean squares at the beginning
SAVE_S = 60
MICRO = 2  # answers of a micro-batch


def shape_of(plan, target):
    hidden, layers = (int(word) for word in plan["shape"].split("x"))
    head_dim = 64 if hidden % 64 == 0 else 32
    heads = hidden // head_dim
    ffn = -(-hidden * 8 // 3 // 32) * 32
    return Shape(hidden, layers, heads, 1 if heads % 2 else heads // 2, ffn, head_dim, target["vocab_size"], plan["context"])


class Draft(Llama):
    """Llama with a head of its own, for some ids."""

    def __init__(self, shape, n_rows):
        super().__init__(shape)
        self.lm_head = torch.nn.Linear(shape.hidden, n_rows, bias=False)

    def after(self, x):  # embedded rows -> hidden states
        n = x.shape[1]
        cos, sin = self.cos[:n].bfloat16(), self.sin[:n].bfloat16()
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


class Documents:
    def __init__(self, folder, seed, length):
        load = lambda name: np.load(folder / f"{name}.npy", mmap_mode="r")  # noqa: E731
        self.tokens, self.labels, self.top_rows, self.top_logprobs = load("tokens"), load("labels"), load("top_rows"), load("top_logprobs")
        self.documents, self.seed, self.length, self.orders = np.load(folder / "documents.npy"), seed, length, {}

    def __len__(self):
        return len(self.documents) - 1

    def order(self, time_round):
        if time_round not in self.orders:
            self.orders = {time_round: np.random.default_rng((self.seed, time_round)).permutation(len(self))}
        return self.orders[time_round]

    def batch(self, first, n):
        """Documents first .. first + n of all rounds: ids [n, longest], places of answers in it, and what is wanted there."""
        chosen = [self.order(i // len(self))[i % len(self)] for i in range(first, first + n)]
        rows, places, wanted = [], [], []
        for row, d in enumerate(chosen):
            begin, n_prompt, answer = self.documents[d]
            ids = self.tokens[begin:min(self.documents[d + 1][0], begin + self.length)]
            rows.append(ids)
            n_answer = max(0, len(ids) - n_prompt)
            places.append((row, n_prompt - 1, n_answer))
            wanted.append(np.arange(answer, answer + n_answer))
        longest = max(map(len, rows))
        ids = np.zeros((n, longest), np.int64)
        for row, some in enumerate(rows):
            ids[row, :len(some)] = some
        at = np.concatenate([row * longest + np.arange(begin, begin + count) for row, begin, count in places])
        wanted = np.concatenate(wanted)
        return (torch.from_numpy(ids), torch.from_numpy(at), torch.from_numpy(self.labels[wanted].astype(np.int64)),
                torch.from_numpy(self.top_rows[wanted].astype(np.int64)), torch.from_numpy(self.top_logprobs[wanted].astype(np.float32)))


def loss_of(logits, labels, top_rows, top_logprobs):
    """Sum over positions, in nats. logits: [n, rows]."""
    log_q = logits.float()
    log_q = log_q - torch.logsumexp(log_q, -1, keepdim=True)
    if top_rows.shape[1] == 0:
        return -log_q.gather(1, labels.clamp(min=0)[:, None])[labels >= 0].sum()
    has_row = top_rows >= 0
    p = top_logprobs.exp()
    rest = (1 - p.sum(-1)).clamp(min=0)
    log_top = log_q.gather(1, top_rows.clamp(min=0))
    q_rest = (1 - (log_top.exp() * has_row).sum(-1)).clamp(min=1e-4)
    return -(p * has_row * log_top).sum() - (rest * q_rest.log()).sum()


def dense_parameters(model):
    return [(name, p) for name, p in model.named_parameters() if name != "embed_tokens.weight"]


class Optimiser:
    def __init__(self, model):
        self.model, self.state = model, {}

    def moments(self, name, p):
        return self.state.setdefault(name, {"m": torch.zeros_like(p), "v": torch.zeros_like(p)})

    @torch.no_grad()
    def dense(self, grads, scale, t, factor):
        for name, p in dense_parameters(self.model):
            g = sum(worker[name] for worker in grads) * scale
            kept = self.moments(name, p)
            if p.dim() == 2 and name != "lm_head.weight":
                kept["m"].lerp_(g, 0.05)
                lr = LR * factor * max(1.0, p.shape[0] / p.shape[1]) ** 0.5
                p.mul_(1 - lr * WEIGHT_DECAY).add_(orthogonalise(g.lerp(kept["m"], 0.95)), alpha=-lr)
            else:
                self.adam(p, g, kept, t, factor)
            for worker in grads:
                worker[name].zero_()

    @torch.no_grad()
    def rows(self, rows, g, t, factor):
        p = self.model.embed_tokens.weight
        kept = self.moments("embed_tokens.weight", p)
        some = {name: kept[name][rows] for name in kept}
        values = p[rows]
        self.adam(values, g, some, t, factor)
        for name in kept:
            kept[name][rows] = some[name]
        p[rows] = values

    def adam(self, p, g, kept, t, factor):
        kept["m"].lerp_(g, 0.1)
        kept["v"].lerp_(g * g, 0.05)
        p.addcdiv_(kept["m"] / (1 - 0.9**t), (kept["v"] / (1 - 0.95**t)).sqrt() + 1e-8, value=-ADAM_LR * factor)


def worker(rank, job, model, grads, rows, shared):
    """Adds the gradients of its micro-batches to grads[rank], and those of embedding rows to rows[micro]."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to end
    torch.set_num_threads(1)
    documents = Documents(job["folder"], job["seed"], job["length"])
    for name, p in dense_parameters(model):
        p.grad = grads[rank][name]
    while True:
        shared["begin"].wait()
        step = shared["step"].value
        while True:
            with shared["micro"].get_lock():
                micro = shared["micro"].value
                shared["micro"].value += 1
            if micro >= job["micros"]:
                break
            ids, at, labels, top_rows, top_logprobs = documents.batch((step * job["micros"] + micro) * job["rows"], job["rows"])
            used, places = ids.unique(return_inverse=True)
            table = model.embed_tokens.weight.detach()[used].requires_grad_()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                hidden = model.after(F.embedding(places, table).bfloat16())
                logits = model.lm_head(hidden.reshape(-1, hidden.shape[-1])[at])
            loss = loss_of(logits, labels, top_rows, top_logprobs)
            loss.backward()
            n = len(used)
            rows["n"][micro] = n
            rows["ids"][micro, :n] = used
            rows["grads"][micro, :n] = table.grad
            with shared["sums"].get_lock():
                shared["sums"][0] += loss.item()
                shared["sums"][1] += len(at)
        shared["end"].wait()


def merged_rows(rows):
    ids = torch.cat([rows["ids"][m, :n] for m, n in enumerate(rows["n"].tolist())])
    grads = torch.cat([rows["grads"][m, :n] for m, n in enumerate(rows["n"].tolist())])
    unique, places = ids.unique(return_inverse=True)
    return unique, torch.zeros(len(unique), grads.shape[1]).index_add_(0, places, grads)


def first_weights(model, target_folder, head_ids):
    from distil.target import first_embeddings

    found = first_embeddings(target_folder, model.s.hidden)
    with torch.no_grad():
        model.lm_head.weight.normal_(std=HEAD_SIZE)
        model.embed_tokens.weight.normal_(std=EMBEDDING_SIZE)
        if found is not None:
            model.embed_tokens.weight.copy_(torch.from_numpy(found[0]) * EMBEDDING_SIZE)
            model.lm_head.weight.copy_(torch.from_numpy(found[1][head_ids]) * HEAD_SIZE)
    return found is not None


def save_checkpoint(path, model, optimiser, state):
    beside = path.with_name(path.name + ".tmp")
    torch.save({"model": model.state_dict(), "optimiser": optimiser.state, "state": state}, beside)
    os.replace(beside, path)


def load_checkpoint(path, model, optimiser):
    if not path.exists():
        return {"step": 0, "tokens": 0, "seconds": 0.0}
    kept = torch.load(path, weights_only=True)
    model.load_state_dict(kept["model"])
    optimiser.state = kept["optimiser"]
    return kept["state"]


def progress_of(state, job):
    """0 to 1, by steps or by time, whichever is farther."""
    return min(1.0, max(state["step"] / job["steps"], state["seconds"] / (3600 * job["hours"]) if job["hours"] else 0))


def train(work, plan, target, options):
    """Until plan["passes"] or options["hours"] are over. Returns the state: steps, tokens, seconds, loss."""
    folder = work.training
    head_ids = np.load(folder / "head_ids.npy")
    torch.manual_seed(plan["seed"])
    model = Draft(shape_of(plan, target), len(head_ids))
    optimiser, checkpoint = Optimiser(model), folder / "checkpoint.pt"
    job = {"folder": folder, "seed": plan["seed"], "length": plan["length"], "rows": MICRO, "micros": plan["batch"] // MICRO, "hours": options["hours"]}
    job["steps"] = max(1, int(plan["passes"] * len(Documents(folder, 0, 0)) / plan["batch"]))
    if not checkpoint.exists():
        first_weights(model, pathlib.Path(target["folder"]), head_ids)
    state = load_checkpoint(checkpoint, model, optimiser)
    if progress_of(state, job) >= 1:
        return state
    say(f"train: {sum(p.numel() for p in model.parameters())} parameters, at most {job['steps']} steps of {plan['batch']} answers, from step {state['step']}")
    run_steps(model, optimiser, state, job, min(options["threads"], job["micros"]), checkpoint)
    return state


def start_team(model, job, n_workers):
    """Workers that wait for a step, and the memory that they share with this process."""
    context = mp.get_context("spawn")
    model.share_memory()
    grads = [{name: torch.zeros_like(p).share_memory_() for name, p in dense_parameters(model)} for _ in range(n_workers)]
    most = job["rows"] * job["length"]
    rows = {"n": torch.zeros(job["micros"], dtype=torch.int64).share_memory_(), "ids": torch.zeros(job["micros"], most, dtype=torch.int64).share_memory_(),
            "grads": torch.zeros(job["micros"], most, model.s.hidden).share_memory_()}
    shared = {"step": context.Value("q", 0), "micro": context.Value("i", 0), "sums": context.Array("d", 2),
              "begin": context.Barrier(n_workers + 1), "end": context.Barrier(n_workers + 1)}
    workers = [context.Process(target=worker, args=(rank, job, model, grads, rows, shared), daemon=True) for rank in range(n_workers)]
    for process in workers:
        process.start()
    threading.Thread(target=watch, args=(workers, shared), daemon=True).start()
    return workers, grads, rows, shared


def run_steps(model, optimiser, state, job, n_workers, checkpoint):
    interrupted = threading.Event()
    former = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    workers, grads, rows, shared = start_team(model, job, n_workers)
    try:
        shared["micro"].value = job["micros"]  # a step without work: until all of them are there
        shared["begin"].wait()
        shared["end"].wait()
        saved = said = time.monotonic()
        while progress_of(state, job) < 1 and not interrupted.is_set():
            loss = one_step(optimiser, state, job, grads, rows, shared)
            now = time.monotonic()
            with open(checkpoint.with_name("loss.csv"), "a", encoding="utf-8") as file:
                file.write(f"{state['step']},{state['tokens']},{loss:.5f},{state['seconds']:.1f}\n")
            if now - said > 10 or state["step"] < 4:
                said = now
                say(f"train: step {state['step']}, {100 * progress_of(state, job):.1f} %, {loss:.3f} nats a token, {state['tokens'] / state['seconds']:.0f} tokens/s")
            if now - saved > SAVE_S:
                saved = now
                save_checkpoint(checkpoint, optimiser.model, optimiser, state)
        save_checkpoint(checkpoint, optimiser.model, optimiser, state)
    except threading.BrokenBarrierError:
        raise Refused("a training process ended unexpectedly (killed for memory?); the same command goes on from the last checkpoint") from None
    finally:
        signal.signal(signal.SIGINT, former)
        for process in workers:
            process.terminate()
    if interrupted.is_set():
        raise KeyboardInterrupt


def watch(workers, shared):
    """Ends the wait of the others when one of them is gone."""
    while all(process.is_alive() for process in workers):
        time.sleep(1)
    shared["begin"].abort()
    shared["end"].abort()


def one_step(optimiser, state, job, grads, rows, shared):
    began = time.monotonic()
    shared["step"].value, shared["micro"].value = state["step"], 0
    shared["sums"][0] = shared["sums"][1] = 0.0
    shared["begin"].wait()
    shared["end"].wait()
    n = max(1.0, shared["sums"][1])
    t, progress = state["step"] + 1, progress_of(state, job)
    factor = min(1.0, t / WARMUP) * min(1.0, (1 - progress) / DECAY + 1e-3)
    optimiser.dense(grads, 1 / n, t, factor)
    ids, g = merged_rows(rows)
    optimiser.rows(ids, g / n, t, factor)
    state["step"], state["tokens"] = t, state["tokens"] + int(n)
    took = time.monotonic() - began
    usual = state["seconds"] / state["step"] if state["step"] > WARMUP else took
    state["seconds"] += min(took, 4 * usual)  # a machine that slept has not trained
    state["loss"] = shared["sums"][0] / n
    return state["loss"]
