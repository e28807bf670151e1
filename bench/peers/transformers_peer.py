"""Transformers as a peer: JSON lines in, JSON lines out, as llama/llama_peer.cc says them. Greedy, no end token; guesses are its own
assisted generation with a constant number of tokens, or its prompt lookup."""

import statistics
import time

import torch
from transformers import AutoModelForCausalLM
from transformers.generation.streamers import BaseStreamer

from serve import serve


class Clock(BaseStreamer):
    """When tokens came. The first call of put() brings the prompt."""

    def __init__(self):
        self.times, self.counts = [], []

    def put(self, value):
        self.times.append(time.monotonic())
        self.counts.append(value.numel())

    def end(self):
        pass


class Peer:
    def load(self, folder, draft_folder, weights, threads, **_):
        torch.set_num_threads(threads)
        self.target = read(folder, weights)
        self.draft = read(draft_folder, weights) if draft_folder else None
        return {}

    @torch.inference_mode()
    def generate(self, ids, n, k, source, **_):
        prompt = torch.tensor([ids])
        clock = Clock()
        how = {}
        if k and source == "lookup":
            how = {"prompt_lookup_num_tokens": k, "max_matching_ngram_size": 4}
        elif k:
            draft = self.draft.generation_config
            draft.num_assistant_tokens, draft.num_assistant_tokens_schedule = k, "constant"
            draft.assistant_confidence_threshold = 0
            how = {"assistant_model": self.draft}
        begin = time.monotonic()
        text = self.target.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=n, min_new_tokens=n, do_sample=False,
                                    streamer=clock, **how)
        done = time.monotonic()
        return {"ids": text[0, len(ids):].tolist(), "first_s": clock.times[1] - begin, "seconds": done - begin,
                "n_first": clock.counts[1]}

    @torch.inference_mode()
    def rows(self, ids, rows, repeats, **_):
        cache = self.target(torch.tensor([ids])).past_key_values
        milliseconds = {}
        for count in rows:
            read_ms = []
            for _ in range(repeats + 1):
                begin = time.monotonic()
                self.target(torch.tensor([ids[:count]]), past_key_values=cache)
                read_ms.append(1000 * (time.monotonic() - begin))
                cache.crop(-count)
            milliseconds[count] = statistics.median(read_ms[1:])
        return {"ms": milliseconds}


def read(folder, weights):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, weights)).eval()
    # An end token must not end an answer, nor be forbidden in it.
    model.generation_config.eos_token_id = None
    model.config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


if __name__ == "__main__":
    serve(Peer())
