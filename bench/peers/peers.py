"""The peers as one kind of object: start() with a model, generate(), rows(), peak_mib(), stop(). One computes at a time.

Foretoken is asked through its client, as anybody would ask it: ZeroMQ, router and tokenizer are in its times. The others are processes
that take a JSON line and answer with one (llama/llama_peer.cc, transformers_peer.py, openvino_peer.py, vllm_peer.py), and say their own
times.
"""

import json
import os
import pathlib
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "bench/peers"
sys.path[:0] = [str(ROOT / "clients/python"), str(ROOT / "tests/support")]

import foretoken  # noqa: E402
from ports import free_port  # noqa: E402

ANSWER_S = 900  # longest wait for one answer
GGUF_TYPES = {"bfloat16": "bf16", "int8": "q8_0", "int4": "q4_0"}
OPENVINO_TYPES = {**GGUF_TYPES, "bfloat16": "f16"}  # it does not read bfloat16


class PeerError(Exception):
    """A peer could not do what it was asked for; the text says why."""


@dataclass
class Model:
    """A model as every peer finds it: a Hugging Face folder and, for those that read it, GGUF files of it beside."""

    name: str
    folder: pathlib.Path
    gguf: pathlib.Path  # folder of target.TYPE.gguf, draft.TYPE.gguf
    draft: pathlib.Path | None
    context: int


@dataclass
class Answer:
    ids: list[int]
    first_s: float  # from the question to the first token
    seconds: float  # to the last
    n_first: int  # tokens that came with the first
    about: dict = field(default_factory=dict)  # what the peer says beside

    processor_s: float = 0.0  # of all threads of all its processes, the prompt included

    def tokens_per_s(self):
        return (len(self.ids) - self.n_first) / (self.seconds - self.first_s)


class Foretoken:
    name, title = "foretoken", "Foretoken"
    weights = ("bfloat16", "int8", "int4")
    sources = ("draft", "lookup")
    has_rows = True  # of the products alone, see rows()

    def __init__(self, programs, threads, adaptive):
        self.programs, self.threads, self.adaptive = pathlib.Path(programs), threads, adaptive
        self.folder = None

    def version(self):
        done = self.verb("version")
        return (done.stdout.splitlines() or ["unknown"])[0]

    def verb(self, *words):
        return subprocess.run([str(self.programs / "foretoken"), *words], capture_output=True, text=True, timeout=ANSWER_S)

    @staticmethod
    def stored(folder, weights):
        """The folder that has these weights in this type already, if there is one beside."""
        quantised = folder.with_name(f"{folder.name}.{weights}")
        return quantised if quantised.exists() else folder

    def start(self, model, weights, other_keys=None):
        self.folder = tempfile.mkdtemp(prefix="foretoken-peers-")
        endpoint = f"tcp://127.0.0.1:{free_port()}"
        # A prompt that was there before must cost what it costs, and others may use the memory, too.
        keys = {"bus.client": endpoint, "bus.runtime_dir": self.folder, "edge.port": 0, "model.target": self.stored(model.folder, weights),
                "model.draft": model.draft or "", "model.dtype": weights, "model.max_model_len": model.context,
                "target.threads": self.threads, "kv_cache.prefix_cache": "false", "kv_cache.memory": f"{model.context + 256} tokens",
                "draft.memory": f"{model.context + 256} tokens", "model.generation_config": "none", **(other_keys or {})}
        self.settings = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
        done = self.verb("up", "--detach", "--quiet", *self.settings)
        if done.returncode != 0:
            self.stop()
            raise PeerError(f"foretoken up: {done.stderr.strip()}")
        self.client = foretoken.Client(endpoint, timeout_s=ANSWER_S)
        self.pids = {service["role"]: service["pid"] for service in self.client.status()["services"]}

    def generate(self, ids, n, k=0, source="draft"):
        proposer = "none" if k == 0 else {"draft": "draft", "lookup": "ngram"}[source]
        begin, worked_s = time.monotonic(), processor_s(self.pids.values())
        try:
            reply = self.client.generate(ids, max_tokens=n, temperature=0, ignore_eos=True, proposer=proposer, num_draft_tokens=k,
                                         adaptive=self.adaptive)
        except foretoken.ForetokenError as error:
            raise PeerError(f"{self.title}: {error}") from error
        seconds = time.monotonic() - begin
        # The router's clock begins a little later than this one, so decoding gets that time.
        first_s = seconds if n == 1 else reply.metrics["time_to_first_token_ms"] / 1000
        return Answer(reply.token_ids, first_s, seconds, 1, dict(reply.speculative_decoding), processor_s(self.pids.values()) - worked_s)

    def rows(self, model, weights, ids, counts):
        """Of the products alone: a service has no door for a pass of its own."""
        done = self.verb("bench", "micro", "--json", "--quiet", "--rounds", "3", "--model", str(self.stored(model.folder, weights)), "--threads",
                         str(self.threads), "--contexts", "512")
        if done.returncode != 0:
            raise PeerError(f"foretoken bench micro: {done.stderr.strip()}")
        report = json.loads(done.stdout)
        stored = json.loads((self.stored(model.folder, weights) / "config.json").read_text()).get("quantization_config")
        wanted = weights
        if weights == "int4":  # as a folder has it, or made while loading
            wanted = f"int4/{stored['config_groups']['group_0']['weights']['group_size']}" if stored else "int4n/32"
        for one in report["dtypes"]:
            if one["dtype"] == wanted:
                single_ms = one["rows"][0]["ms"] / one["rows"][0]["ratio"]
                return {1: single_ms} | {row["n_rows"]: row["ms"] for row in one["rows"]}
        raise PeerError(f"foretoken bench micro has no {weights}")

    def peak_mib(self):
        """Of all services together; and of the target alone."""
        every = {role: peak_of(pid) for role, pid in self.pids.items()}
        return {"all": sum(every.values()), "target": every["target"]}

    def stop(self):
        if self.folder is None:
            return
        if hasattr(self, "client"):
            self.client.close()
            del self.client
        self.verb("down", "--quiet", *self.settings)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder = None


def text_of(path):
    """What a file of /proc says; nothing of a process or thread that has ended meanwhile."""
    try:
        return path.read_text()
    except OSError:
        return ""


def peak_of(pid):
    found = re.search(r"VmHWM:\s+(\d+)", text_of(pathlib.Path(f"/proc/{pid}/status")))
    return int(found.group(1)) / 1024 if found else 0.0


def processor_s(pids):
    """What all threads of these processes have computed so far."""
    threads = [path for pid in pids for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(words[0]) for path in threads if (words := text_of(path).split())) / 1e9


def family(pid):
    """A process and all that it started."""
    found = [pid]
    for parent in found:
        for listed in pathlib.Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(child) for child in text_of(listed).split()]
    return found


class Process:
    """A peer that lives in a process of its own and talks in JSON lines."""

    def __init__(self, name, title, command, version, threads, types, sources=("draft", "lookup"), has_rows=True, environment=None):
        self.name, self.title, self.command, self.words, self.threads = name, title, command, version, threads
        self.weights, self.types, self.sources, self.has_rows = tuple(types), types, sources, has_rows
        self.environment = environment or {}
        self.process = None

    def version(self):
        return self.words

    def start(self, model, weights):
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads), "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1",
                       **self.environment}
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([str(word) for word in self.command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log, text=True, env=environment)
        kind = self.types.get(weights)
        self.ask(do="load", folder=str(model.folder), draft_folder=str(model.draft or ""), weights=weights, threads=self.threads,
                 model=str(model.gguf / f"target.{kind}.gguf"), draft=str(model.gguf / f"draft.{kind}.gguf") if model.draft else "",
                 context=model.context)

    def ask(self, **request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_S)
            line = self.process.stdout.readline() if ready else ""
        except BrokenPipeError:
            line = ""
        if not line:
            code = self.process.poll()
            self.log.seek(0)
            last = " ".join(self.log.read().strip().splitlines()[-2:])
            self.stop()
            raise PeerError(f"{self.title} gave no answer to {request['do']} (exit code {code}): {last}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(f"{self.title}: {answer['error']}")
        return answer

    def generate(self, ids, n, k=0, source="draft"):
        worked_s = processor_s(family(self.process.pid))
        answer = self.ask(do="generate", ids=ids, n=n, k=k, source=source)
        worked_s = processor_s(family(self.process.pid)) - worked_s
        about = {key: answer[key] for key in ("guesses", "accepted", "rounds") if key in answer}
        return Answer(answer["ids"], answer["first_s"], answer["seconds"], answer["n_first"], about, worked_s)

    def rows(self, model, weights, ids, counts):
        answer = self.ask(do="rows", ids=ids, rows=counts, repeats=5)
        return {int(count): ms for count, ms in answer["ms"].items()}

    def peak_mib(self):
        peak = sum(peak_of(pid) for pid in family(self.process.pid))
        return {"all": peak, "target": peak}

    def stop(self):
        if self.process is None:
            return
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()
        self.process = None


def pinned(name, *packages):
    """What run.sh installs of a peer, or these packages of it: "torch 2.15.0, transformers 5.23.0"."""
    words = [line.split()[0] for line in (HERE / f"pins/{name}.txt").read_text().splitlines()]
    return ", ".join(word.replace("==", " ") for word in words if "==" in word and (not packages or word.split("==")[0] in packages))


def vllm_environment(folder):
    """What vLLM on a CPU asks to be run with; what it compiles is kept beside the folder that it is installed in."""
    return {"LD_PRELOAD": str(folder / "lib/libiomp5.so"), "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CACHE_ROOT": f"{folder}-cache",
            "VLLM_NO_USAGE_STATS": "1"}


def every_peer(work, programs, threads, adaptive=True):
    """Name -> the peer, of all that there are; whether each is installed is for run.sh to say."""
    def python(name):
        return [work / name / "bin/python", HERE / f"{name}_peer.py"]

    peers = (
        Foretoken(programs, threads, adaptive),
        Process("llama.cpp", "llama.cpp", [work / "llama.cpp/llama_peer"], f"{pinned('llama.cpp')} (the source in it)", threads,
                GGUF_TYPES),
        Process("ik_llama.cpp", "ik_llama.cpp", [work / "ik_llama.cpp/llama_peer"], f"{pinned('ik_llama.cpp')} (the source in it)", threads,
                GGUF_TYPES),
        Process("transformers", "Transformers", python("transformers"), pinned("transformers"), threads, {"bfloat16": "bf16"}),
        Process("openvino", "OpenVINO GenAI", python("openvino"), f"{pinned('openvino')}; float16 for bfloat16", threads,
                OPENVINO_TYPES, has_rows=False),
        Process("vllm", "vLLM", python("vllm"), pinned("vllm", "vllm-cpu", "torch"), threads, {"bfloat16": "bf16"}, has_rows=False,
                environment=vllm_environment(work / "vllm")))
    return {peer.name: peer for peer in peers}
