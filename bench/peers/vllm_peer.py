"""vLLM on the CPU as a peer: JSON lines in, JSON lines out, as llama/llama_peer.cc says them. Greedy, past end tokens; guesses are those of
its own draft model or n-gram proposer with a constant number of tokens. An engine decodes in one of these ways, and a process has room for
one that guesses, so there is a process for each that was asked for, with weights of its own. It has no door for a pass of several rows.
"""

import json
import subprocess
import sys
import time

from serve import serve


def guesses(draft, k, source):
    """The setting of an engine that guesses k tokens."""
    if k == 0:
        return None
    if source == "lookup":
        return {"method": "ngram", "num_speculative_tokens": k, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
    return {"method": "draft_model", "model": draft, "num_speculative_tokens": k}


class Engine:
    """One engine. What computes is a process that it starts, whose threads are then bound to cores."""

    def load(self, folder, draft_folder, weights, context, k, source, **_):
        from vllm import EngineArgs, LLMEngine, SamplingParams
        self.how, self.asked = SamplingParams, 0
        # A prompt that was there before must cost what it costs.
        self.engine = LLMEngine.from_engine_args(EngineArgs(
            model=folder, dtype=weights, max_model_len=context, max_num_seqs=1, enable_prefix_caching=False, disable_log_stats=True,
            speculative_config=guesses(draft_folder, k, source)))
        return {}

    def generate(self, ids, n, **_):
        how = self.how(temperature=0, max_tokens=n, ignore_eos=True, detokenize=False)
        self.asked += 1
        begin, first_s, n_first, text = time.monotonic(), 0.0, 0, []
        self.engine.add_request(str(self.asked), {"prompt_token_ids": ids}, how)
        while self.engine.has_unfinished_requests():
            for answer in self.engine.step():
                text = list(answer.outputs[0].token_ids)
                if text and not n_first:
                    first_s, n_first = time.monotonic() - begin, len(text)
        return {"ids": text, "first_s": first_s, "seconds": time.monotonic() - begin, "n_first": n_first}


class Peer:
    """All engines that were asked for."""

    def load(self, **model):
        self.model, self.engines = model, {}
        self.engine(0, "none")
        return {}

    def engine(self, k, source):
        if (k, source) not in self.engines:
            engine = subprocess.Popen([sys.executable, __file__, "engine"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            ask(engine, do="load", k=k, source=source, **self.model)
            self.engines[k, source] = engine
        return self.engines[k, source]

    def generate(self, k, source, **request):
        return ask(self.engine(k, source if k else "none"), do="generate", **request)

    def rows(self, **_):
        raise NotImplementedError("no pass of several rows can be asked for")

    def stop(self):
        for engine in self.engines.values():
            engine.stdin.close()
        for engine in self.engines.values():
            engine.wait()


def ask(engine, **request):
    engine.stdin.write(json.dumps(request) + "\n")
    engine.stdin.flush()
    answer = json.loads(engine.stdout.readline() or '{"error": "the engine has ended"}')
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer


if __name__ == "__main__":
    if sys.argv[1:] == ["engine"]:
        serve(Engine())
    else:
        peer = Peer()
        serve(peer)
        peer.stop()
