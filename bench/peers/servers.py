"""The peers as servers for many clients, each by its own HTTP server as its users run it: start() with a model, one way of guessing and a
number of streams, then body() for a request to `port`, stop(). What a prompt left behind is never used again: caches of prompts are off."""

import os
import pathlib
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from peers import ANSWER_S, GGUF_TYPES, Foretoken, PeerError, family, free_port, processor_s, vllm_environment

START_S = 600  # longest wait for a server to be ready
SPARE_TOKENS = 64  # of each stream, beside prompt and answer: guesses, and rounding to blocks
NGRAM = 3  # tokens that must have stood before, where only one length can be given; elsewhere two to four


class ForetokenServer(Foretoken):
    """Foretoken with its HTTP edge."""

    def start_server(self, model, weights, source, k, n_streams, tokens):
        memory = f"{n_streams * (tokens + SPARE_TOKENS)} tokens"
        self.k, self.source, self.port = k, source, free_port()
        draft = model.draft if source == "draft" else ""
        self.start(model, weights, {"edge.port": self.port, "model.draft": draft, "kv_cache.memory": memory, "draft.memory": memory,
                                    "model.max_model_len": tokens + SPARE_TOKENS, "limits.max_running": n_streams})

    def body(self, ids, n):
        proposer = {"draft": "draft", "lookup": "ngram"}.get(self.source)
        how = {"draft_len": self.k, "proposer": proposer, "adaptive": self.adaptive} if self.k else {"enabled": False}
        return {**request(ids, n), "speculation": how}

    def worked_s(self):
        return processor_s(self.pids.values())


class Server:
    """A peer's own server, in a process of its own."""

    sources = ("draft", "lookup")

    def __init__(self, name, title, weights, threads, ready="/health"):
        self.name, self.title, self.weights, self.threads, self.ready = name, title, tuple(weights), threads, ready
        self.process, self.port = None, 0

    def command(self, model, weights, source, k, n_streams, tokens):
        raise NotImplementedError

    def environment(self):
        return {}

    def start_server(self, model, weights, source, k, n_streams, tokens):
        self.port = free_port()
        self.log = tempfile.TemporaryFile("w+")
        words = [str(word) for word in self.command(model, weights, source, k, n_streams, tokens)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads), "HF_HUB_OFFLINE": "1", **self.environment()}
        try:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True,
                                            env=environment)
        except OSError as error:
            raise PeerError(f"{self.title}'s server is not there: {error}") from error
        until = time.monotonic() + START_S
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > until:
                code = self.process.poll()
                self.log.seek(0)
                said = " ".join(line.strip() for line in self.log.read().strip().splitlines()[-3:])
                self.stop()
                raise PeerError(f"{self.title}'s server did not start (exit code {code}): {said[-400:]}")
            time.sleep(0.1)

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{self.ready}", timeout=10) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def body(self, ids, n):
        return {**request(ids, n), "cache_prompt": False}

    def worked_s(self):
        return processor_s(family(self.process.pid))

    def stop(self):
        if self.process is None:
            return
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, sign)
                self.process.wait(30)
                break
            except (subprocess.TimeoutExpired, ProcessLookupError):
                continue
        self.process.wait()
        self.log.close()
        self.process = None


class LlamaServer(Server):
    """llama-server; the fork has other names for what guesses."""

    def __init__(self, name, title, program, threads, is_fork):
        super().__init__(name, title, GGUF_TYPES, threads)
        self.program, self.is_fork = program, is_fork

    def command(self, model, weights, source, k, n_streams, tokens):
        kind = GGUF_TYPES[weights]
        command = [self.program, "-m", model.gguf / f"target.{kind}.gguf", "--host", "127.0.0.1", "--port", self.port, "-t", self.threads,
                   "-tb", self.threads, "-np", n_streams, "-c", n_streams * (tokens + SPARE_TOKENS), "-fa", "on", "-cb", "--cache-ram", 0]
        command += ["--webui", "none"] if self.is_fork else ["--no-webui"]
        if k and source == "draft":
            command += ["-md", model.gguf / f"draft.{kind}.gguf", "-td", self.threads, "-tbd", self.threads]
            command += (["--draft-max", k, "-cd", tokens + SPARE_TOKENS] if self.is_fork else
                        ["--spec-type", "draft-simple", "--spec-draft-n-max", k])
        elif k and self.is_fork:
            command += ["--spec-type", "ngram-simple", "--spec-ngram-size-n", NGRAM, "--spec-ngram-size-m", k, "--draft-max", k]
        elif k:
            command += ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", NGRAM, "--spec-ngram-simple-size-m", k]
        return command


class VllmServer(Server):
    def __init__(self, folder, threads):
        super().__init__("vllm", "vLLM", ("bfloat16",), threads)
        self.folder = pathlib.Path(folder)

    def command(self, model, weights, source, k, n_streams, tokens):
        command = [self.folder / "bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", model.folder, "--served-model-name",
                   "default", "--dtype", weights, "--host", "127.0.0.1", "--port", self.port, "--max-num-seqs", n_streams,
                   "--max-model-len", tokens + SPARE_TOKENS, "--no-enable-prefix-caching", "--no-enable-log-requests",
                   "--disable-uvicorn-access-log"]
        if k and source == "draft":
            command += ["--speculative-config", f'{{"method": "draft_model", "model": "{model.draft}", "num_speculative_tokens": {k}}}']
        elif k:
            command += ["--speculative-config", f'{{"method": "ngram", "num_speculative_tokens": {k}, "prompt_lookup_max": 4, '
                                                '"prompt_lookup_min": 2}']
        return command

    def environment(self):
        return vllm_environment(self.folder)

    def body(self, ids, n):
        return request(ids, n)


def request(ids, n):
    """What every one of the servers understands."""
    return {"model": "default", "prompt": ids, "max_tokens": n, "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}}


def every_server(work, programs, threads, adaptive=True):
    """Name -> the server, of those peers that have one."""
    servers = (
        ForetokenServer(programs, threads, adaptive),
        LlamaServer("llama.cpp", "llama.cpp", work / "llama.cpp/llama-server", threads, is_fork=False),
        LlamaServer("ik_llama.cpp", "ik_llama.cpp", work / "ik_llama.cpp/llama-server", threads, is_fork=True),
        VllmServer(work / "vllm", threads))
    return {server.name: server for server in servers}
