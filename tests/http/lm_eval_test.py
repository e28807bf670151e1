"""EleutherAI's lm_eval by `local-completions` against real services, with every proposer: fifty items by their likelihoods and
fifty texts. All are equal, and the likelihoods are those of Transformers within 0.001."""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

from edge_system import EdgeSystem

N_ITEMS = 50
PROPOSERS = {"off": "none", "draft": "draft", "ngram": "ngram"}  # of the service: the scores of a prompt have no field for it
WORDS = "the cat sat on a mat and then another thing in there was winter".split()
TASKS = {
    "choices": "output_type: multiple_choice\ndoc_to_choice: \"{{choices}}\"\ndoc_to_target: answer\nmetric_list:\n  - metric: acc\n",
    "texts": "output_type: generate_until\ndoc_to_target: \"\"\nmetric_list:\n  - metric: bypass\n"
             "generation_kwargs:\n  until: [\"zz\"]\n  max_gen_toks: 24\n  temperature: 0\n"}


class LmEval(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="foretoken-lm-eval-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        dice = random.Random(7)
        phrase = lambda n: " ".join(dice.choice(WORDS) for _ in range(n))  # noqa: E731
        items = [{"question": phrase(dice.randint(3, 12)), "choices": [" " + phrase(dice.randint(1, 4)) for _ in range(3)],
                  "answer": dice.randrange(3)} for _ in range(N_ITEMS)]
        (cls.folder / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
        for name, rest in TASKS.items():
            (cls.folder / f"{name}.yaml").write_text(
                f"task: {name}\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {cls.folder}/items.jsonl\ntest_split: test\n"
                "doc_to_text: \"{{question}}\"\ntarget_delimiter: \"\"\n" + rest)

    def samples(self, how):
        """By task, in the order of the items: what was asked and what came."""
        system = EdgeSystem(settings=(f"speculation.proposer={PROPOSERS[how]}",)).__enter__()
        try:
            system.start_all()
            out = self.folder / how
            done = subprocess.run(
                [str(pathlib.Path(sys.executable).parent / "lm_eval"), "run", "--model", "local-completions", "--model_args",
                 f"model=tiny,base_url={system.base}/completions,tokenizer_backend=huggingface,tokenizer={system.target_model},num_concurrent=2",
                 "--tasks", ",".join(TASKS), "--include_path", str(self.folder), "--log_samples", "--output_path", str(out)],
                capture_output=True, text=True, timeout=300, cwd=self.folder,
                env={**os.environ, "HF_ENDPOINT": "http://127.0.0.1:1", "HOME": str(self.folder)})
            self.assertEqual(0, done.returncode, done.stdout[-4000:] + done.stderr[-4000:])
            if how == "off":
                shutil.copytree(system.target_model, self.folder / "model")
        finally:
            system.__exit__(None, None, None)
        found = {}
        for name in TASKS:
            (path,) = out.rglob(f"samples_{name}_*.jsonl")
            lines = sorted((json.loads(line) for line in path.read_text().splitlines()), key=lambda line: line["doc_id"])
            found[name] = [(line["arguments"], line["resps"]) for line in lines]
        return found

    def test_scores_and_texts_are_equal_and_the_scores_those_of_transformers(self):
        found = {how: self.samples(how) for how in PROPOSERS}
        self.assertEqual([N_ITEMS, N_ITEMS], [len(found["off"][name]) for name in TASKS])
        for how in PROPOSERS:
            self.assertEqual(found["off"], found[how])
        self.assertTrue(all(text for _, [[text]] in found["off"]["texts"]))
        asked = [(each["arg_0"], each["arg_1"]) for arguments, _ in found["off"]["choices"] for each in arguments.values()]
        scores = [float(score) for _, answers in found["off"]["choices"] for [[score, _]] in answers]
        self.assertEqual((3 * N_ITEMS, 3 * N_ITEMS), (len(asked), len(scores)))
        for (context, continuation), score, truth in zip(asked, scores, likelihoods(self.folder / "model", asked)):
            self.assertAlmostEqual(truth, score, delta=1e-3, msg=f"{context!r} {continuation!r}")


def likelihoods(model, asked):
    """What Transformers computes: of each continuation behind its context, the sum over its tokens."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    network = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    for context, continuation in asked:
        n_context = len(tokenizer(context)["input_ids"])
        ids = torch.tensor([tokenizer(context + continuation)["input_ids"]])
        with torch.no_grad():
            rows = network(ids).logits[0].double().log_softmax(-1)
        yield sum(rows[at - 1, ids[0, at]].item() for at in range(n_context, ids.shape[1]))


if __name__ == "__main__":
    unittest.main()
