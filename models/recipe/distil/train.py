"""Trains a draft with a trimmed head on the CPU, in one-thread worker processes that share the weights.

As train.py beside this package: a step is a number of micro-batches, and a worker takes the next one whenever it is free. Which
answers a micro-batch has depends on the step alone. Of the input embedding only the rows that a step used have gradients and
are updated (optimiser.py). Prompts are read, and not learnt.

Ctrl-C ends it after the step under way. The same call goes on after the last step that was saved (draft.py), with the same steps again.
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

from distil import loss_log
from distil.documents import Documents
from distil.draft import Draft, first_weights, load_checkpoint, save_checkpoint, shape_of
from distil.folder import ENVIRONMENT, Refused, say
from distil.optimiser import Optimiser, dense_parameters, loss_of
from distil.system import end_with_parent

WARMUP, DECAY = 40, 0.35  # steps, and the share of the run in which the learning rate falls to zero
SAVE_S = 60
MICRO = 2  # answers of a micro-batch


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
    loss_log.cut(folder / "loss.csv", state["step"])
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
    start_without_interrupts(workers)
    threading.Thread(target=watch, args=(workers, shared), daemon=True).start()
    return workers, grads, rows, shared


def start_without_interrupts(workers):
    """Ctrl-C reaches the whole process group: a worker that still imports must not end by it. It inherits that SIGINT is blocked."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for process in workers:
            process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


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
            loss_log.append(checkpoint.with_name("loss.csv"), state, loss)
            if now - said > 10 or state["step"] < 4:
                said = now
                say(f"train: step {state['step']}, {100 * progress_of(state, job):.1f} %, {loss:.3f} nats a token, {state['tokens'] / state['seconds']:.0f} tokens/s")
            if now - saved > SAVE_S:
                saved = now
                save_checkpoint(checkpoint, optimiser.model, optimiser, state)
        save_checkpoint(checkpoint, optimiser.model, optimiser, state)
    except threading.BrokenBarrierError:
        if interrupted.is_set():
            raise KeyboardInterrupt from None
        raise Refused("a training process ended unexpectedly (killed for memory?); the same command goes on from the last checkpoint", ENVIRONMENT) from None
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
