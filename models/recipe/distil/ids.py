"""From shards to what training reads: which ids the head gets, and the answers' distributions as rows of that head.

training/ then has, as flat arrays that workers map into memory:

  head_ids.npy    [rows]   ids of the head, ascending
  tokens.npy      [n]      all documents, back to back: prompt, then answer
  documents.npy   [d, 3]   begin in `tokens`, tokens of the prompt, begin of the answer in the arrays below
  labels.npy      [m]      row of each answer token, -1 where the head has none
  top_rows.npy    [m, k]   rows of the target's likeliest ids, -1 likewise
  top_logprobs.npy [m, k]  their log-probabilities
"""
import json
import os

import numpy as np

from distil.folder import Refused, say, write_json
from distil.window import window

HEAD_GRAIN = 64  # rows of a head: what kernels like


def save(path, array):
    beside = path.with_name(path.name + ".tmp")
    with open(beside, "wb") as file:
        np.save(file, array)
    os.replace(beside, path)


def head_ids(counts, n_rows, always):
    """The most frequent ids and those that are needed always (end tokens), ascending; equal counts by id."""
    order = np.argsort(-counts, kind="stable")
    chosen = list(dict.fromkeys([*always, *order.tolist()]))[:min(n_rows, len(counts))]
    return np.array(sorted(chosen), np.int32)


def count(shards, vocabulary):
    """How much of the target's probability each id has: what it wrote, and what it might have written there."""
    counts = np.zeros(vocabulary, np.float64)
    for path in shards:
        with np.load(path) as kept:
            counts += np.bincount(kept["texts"], minlength=vocabulary)[:vocabulary]
            ids, weights = kept["top_ids"], np.exp(kept["top_logprobs"].astype(np.float32))
            if ids.size:
                counts += np.bincount(ids.ravel(), weights.ravel(), minlength=vocabulary)[:vocabulary]
    return counts


def prepare(work, plan, target):
    """Writes the arrays above from all shards, unless they are there for as many shards. Returns what the model card says."""
    shards = work.shard_files()
    summary = work.training / "summary.json"
    if summary.exists():
        kept = json.loads(summary.read_text())
        if kept["shards"] == len(shards):
            return kept
    counts = count(shards, target["vocab_size"])
    ids = head_ids(counts, -(-plan["head"] // HEAD_GRAIN) * HEAD_GRAIN, target["eos"])
    if (work.training / "checkpoint.pt").exists():  # its head stays what it is, though there is more text
        ids = np.load(work.training / "head_ids.npy")
    row_of = np.full(target["vocab_size"], -1, np.int32)
    row_of[ids] = np.arange(len(ids), dtype=np.int32)
    tokens, documents, labels, top_rows, top_logprobs, n_tokens, n_answer, n_cut = [], [], [], [], [], 0, 0, 0
    for path in shards:
        with np.load(path) as kept:
            arrays = {name: kept[name] for name in kept.files}
        largest = max(arrays["texts"].max(), arrays["prompts"].max())
        if largest >= target["vocab_size"]:
            raise Refused(f"{path} has id {largest}, and {target['folder']} has {target['vocab_size']}: it was collected from another target")
        prompt_begin = text_begin = 0
        for prompt_end, text_end in zip(arrays["prompt_ends"], arrays["text_ends"]):
            documents.append((n_tokens, prompt_end - prompt_begin, n_answer))
            n_cut += window(prompt_begin, prompt_end - prompt_begin, prompt_end + text_end - text_begin, plan["length"])[0] > prompt_begin
            for name, begin, end in (("prompts", prompt_begin, prompt_end), ("texts", text_begin, text_end)):
                tokens.append(arrays[name][begin:end])
                n_tokens += end - begin
            n_answer += text_end - text_begin
            prompt_begin, text_begin = prompt_end, text_end
        labels.append(row_of[arrays["texts"]])
        top_rows.append(row_of[arrays["top_ids"]])
        top_logprobs.append(arrays["top_logprobs"])
    documents.append((n_tokens, 0, n_answer))
    for name, value in (("head_ids", ids), ("tokens", np.concatenate(tokens)), ("documents", np.array(documents, np.int64)), ("labels", np.concatenate(labels)),
                        ("top_rows", np.concatenate(top_rows)), ("top_logprobs", np.concatenate(top_logprobs))):
        save(work.training / f"{name}.npy", value)
    said = {"shards": len(shards), "requests": len(shards) * plan["shard_requests"], "answers": len(documents) - 1, "cut_prompts": int(n_cut), "answer_tokens": int(n_answer), "tokens": int(n_tokens), "head_ids": len(ids),
            "head_mass": float(counts[ids].sum() / counts.sum())}
    write_json(summary, said)
    say(f"count: the head has {len(ids)} of {target['vocab_size']} ids, which hold {100 * said['head_mass']:.2f} % of the target's probability in {n_answer} tokens")
    if n_cut:
        say(f"count: {n_cut} of {said['answers']} prompts are with their answers longer than a row of training, {plan['length']} tokens; it reads the last tokens of these")
    return said
