"""OpenVINO GenAI as a peer: JSON lines in, JSON lines out, as llama/llama_peer.cc says them. Reads the GGUF files. Greedy, past end tokens;
guesses are those of its own draft pipeline with a constant number of tokens, or its prompt lookup. A pipeline decodes in one of these
ways, so there is one for each that was asked for, each with weights of its own. It has no door for a pass of several rows."""

import os
import pathlib
import time

import numpy
import openvino
import openvino_genai

from serve import serve


class Clock(openvino_genai.StreamerBase):
    """When tokens came."""

    def __init__(self):
        super().__init__()
        self.times, self.counts = [], []

    def write(self, tokens):
        self.times.append(time.monotonic())
        self.counts.append(len(tokens) if isinstance(tokens, list) else 1)
        return openvino_genai.StreamingStatus.RUNNING

    def end(self):
        pass


class Peer:
    def load(self, model, draft, threads, **_):
        self.model, self.draft, self.device = model, draft, {"INFERENCE_NUM_THREADS": threads}
        self.pipelines = {}
        self.pipeline("none")
        return {}

    def pipeline(self, source):
        if source not in self.pipelines:
            how = {}
            if source == "lookup":
                how = {"prompt_lookup": True}
            elif source == "draft":
                how = {"draft_model": openvino_genai.draft_model(as_folder(self.draft), "CPU", **self.device)}
            self.pipelines[source] = openvino_genai.LLMPipeline(self.model, "CPU", **self.device, **how)
        return self.pipelines[source]

    def generate(self, ids, n, k, source, **_):
        pipeline = self.pipeline(source if k else "none")
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample, config.apply_chat_template = n, True, False, False
        if k:
            config.num_assistant_tokens = k
        if k and source == "lookup":
            config.max_ngram_size = 4
        clock = Clock()
        begin = time.monotonic()
        done = pipeline.generate(openvino.Tensor(numpy.array([ids], dtype=numpy.int64)), config, clock)
        seconds = time.monotonic() - begin
        return {"ids": list(done.tokens[0]), "first_s": clock.times[0] - begin, "seconds": seconds, "n_first": clock.counts[0]}

    def rows(self, **_):
        raise NotImplementedError("no pass of several rows can be asked for")


def as_folder(path):
    """The model of a GGUF file in OpenVINO's own form, in a folder beside it, made once: a draft is not read from GGUF."""
    folder = pathlib.Path(path).with_suffix(".openvino")
    if not (folder / "openvino_model.xml").exists():
        folder.mkdir(exist_ok=True)
        link = folder / "model.gguf"  # the model is saved beside the file that it was read from
        if not link.exists():
            os.link(path, link)
        openvino_genai.LLMPipeline(str(link), "CPU", enable_save_ov_model=True)
    return str(folder)


if __name__ == "__main__":
    serve(Peer())
