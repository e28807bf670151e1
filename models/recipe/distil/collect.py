"""Collects the target's own text: `foretoken run` asks a running system, and its answers become .npz shards of token ids.

A shard is one file of requests. One that is interrupted goes on where it was, since `foretoken run` keeps the answers it has.
The prompts are asked in turn, each time round with other seeds; temperatures take turns too. A shard holds

  prompts, prompt_ends   token ids of all prompts, back to back, and where each ends
  texts, text_ends       the same of the answers
  top_ids, top_logprobs  for each token of the answers, the target's likeliest ids there and their log-probabilities (raw: temperature 1)
  request                the number of each request, so a shard says which prompt and seed it came from
"""
import json
import os

import numpy as np

from distil import answers as answer_files
from distil.folder import FAILED, Refused, say, write_text


def request_of(plan, prompts, number):
    """Request `number` of the plan: a function of nothing else."""
    return {**prompts[number % len(prompts)], "seed": plan["seed"] * 1_000_003 + number, "temperature": plan["temperatures"][number % len(plan["temperatures"])],
            "max_tokens": plan["answer_tokens"], "fit_max_tokens": True, "logprobs": plan["top"], "return_prompt_token_ids": True,
            "skip_special_tokens": False, "custom_id": str(number)}


def arrays_of(answers, top):
    prompts, prompt_ends, texts, text_ends, request, ids, logprobs = [], [], [], [], [], [], []
    for answer in answers:
        prompts += answer["prompt_token_ids"]
        texts += answer["token_ids"]
        prompt_ends.append(len(prompts))
        text_ends.append(len(texts))
        request.append(int(answer["custom_id"]))
        for entry in answer["logprobs"]:
            ids.append(entry["top_ids"][:top])
            logprobs.append(entry["top_logprobs"][:top])
    return {"prompts": np.array(prompts, np.int32), "prompt_ends": np.array(prompt_ends, np.int64), "texts": np.array(texts, np.int32),
            "text_ends": np.array(text_ends, np.int64), "top_ids": np.array(ids, np.int32), "top_logprobs": np.array(logprobs, np.float16),
            "request": np.array(request, np.int64)}


def save_arrays(path, arrays):
    beside = path.with_suffix(".tmp.npz")
    np.savez_compressed(beside, **arrays)
    os.replace(beside, path)


def n_tokens(path):
    with np.load(path) as kept:
        return int(kept["text_ends"][-1])


def collect(work, plan, prompts, system, concurrency):
    """Shards until they have plan["tokens"] tokens of answers."""
    total = sum(map(n_tokens, work.shard_files()))
    if total >= plan["tokens"]:
        return total
    with system:
        while total < plan["tokens"]:
            total = collect_shard(work, plan, prompts, system, concurrency, total)
    return total


def collect_shard(work, plan, prompts, system, concurrency, total):
    number = len(work.shard_files())
    requests, answers = work.requests / f"{number:05}.jsonl", work.requests / f"{number:05}.answers.jsonl"
    n = plan["shard_requests"]
    write_text(requests, "".join(json.dumps(request_of(plan, prompts, i)) + "\n" for i in range(number * n, (number + 1) * n)))
    system.ask(requests, answers, concurrency)
    lost = answer_files.Lost()
    arrays = arrays_of(answer_files.whole(answers, n, lost), plan["top"])
    if lost.total() > n // 2:
        raise Refused(f"of {n} requests only {n - lost.total()} brought an answer; lost: {lost.words()}; {answers} has them", FAILED)
    save_arrays(work.shards / f"{number:05}.npz", arrays)
    total += len(arrays["texts"])
    say(f"collect: {total} of {plan['tokens']} tokens in {number + 1} shards"
        + (f"; of {n} requests {lost.total()} brought no answer: {lost.words()}" if lost.total() else ""))
    requests.unlink()
    for left in work.requests.glob(f"{number:05}.*"):
        left.unlink()
    return total
