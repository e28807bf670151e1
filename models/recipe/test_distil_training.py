#!/usr/bin/env python3
"""What training makes of collected text: with numpy and torch, without a target."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

import numpy as np

from distil import ids
from distil.documents import Documents
from distil.folder import INTERRUPTED, Work, be_quiet
from distil.window import length_of

VOCABULARY, TOP = 300, 2
PLAN = {"head": 64, "answer_tokens": 8, "length": length_of(8, 2048), "shard_requests": 4}
TARGET = {"vocab_size": VOCABULARY, "eos": [2], "folder": "t"}


def shard(path, prompts, texts):
    flat = lambda parts: np.array([i for part in parts for i in part], np.int32)  # noqa: E731
    ends = lambda parts: np.cumsum([len(part) for part in parts])  # noqa: E731
    n = sum(map(len, texts))
    np.savez(path, prompts=flat(prompts), prompt_ends=ends(prompts), texts=flat(texts), text_ends=ends(texts), top_ids=np.full((n, TOP), 7, np.int32),
             top_logprobs=np.full((n, TOP), -1, np.float16), request=np.arange(len(prompts)))


class Training(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        be_quiet()
        self.work = Work(pathlib.Path(held.name) / "draft")
        self.work.make()

    def test_an_answer_after_a_long_prompt_is_learnt_whole(self):
        prompts = [[10] * 5, list(range(20, 220)), [11] * 96]  # the second is longer than a row, 104 tokens
        texts = [[31, 32, 33], [41, 42, 43, 44, 45, 46, 47, 2], [51]]
        shard(self.work.shards / "00000.npz", prompts, texts)
        counted = ids.prepare(self.work, PLAN, TARGET)
        self.assertEqual((4, 3, 1), (counted["requests"], counted["answers"], counted["cut_prompts"]))
        rows = np.load(self.work.training / "head_ids.npy")
        rows_of, at, labels, top_rows, _ = Documents(self.work.training, 1, PLAN["length"]).batch(0, 3)
        self.assertEqual((3, 104), tuple(rows_of.shape))
        self.assertEqual(sum(map(len, texts)), len(at))
        self.assertEqual((len(at), TOP), tuple(top_rows.shape))
        learnt = {}
        for place, label in zip(at.tolist(), labels.tolist()):
            learnt.setdefault(place // 104, []).append((int(rows_of.flatten()[place]), int(rows[label])))
        # Each token of an answer is learnt from the one before it, the first from the last token of its prompt.
        wanted = [list(zip([prompt[-1], *text], text)) for prompt, text in zip(prompts, texts)]
        self.assertEqual(sorted(wanted), sorted(learnt.values()))
        long = next(row for row in rows_of.tolist() if 47 in row)
        self.assertEqual(list(range(124, 220)) + texts[1], long, "the end of its prompt, and the answer")

    def test_ctrl_c_while_its_processes_start_is_an_interruption(self):
        shard(self.work.shards / "00000.npz", [[10] * 5, [11] * 5], [[31, 32, 2], [41, 42, 2]])
        ids.prepare(self.work, PLAN, TARGET)
        # Its workers import PyTorch once it has printed "started", which takes longer than the signal.
        program = textwrap.dedent(f"""
            import pathlib, sys
            from distil import draft, folder, optimiser, train

            def start_team(*args, start=train.start_team):
                team = start(*args)
                print("started", flush=True)
                return team

            train.start_team = start_team
            training = pathlib.Path({str(self.work.training)!r})
            model = draft.Draft(draft.shape_of({{"shape": "32x1", "context": 64}}, {{"vocab_size": {VOCABULARY}}}), 8)
            job = {{"folder": training, "seed": 1, "length": {PLAN["length"]}, "rows": 2, "micros": 2, "hours": 0, "steps": 1000}}
            state = {{"step": 0, "tokens": 0, "seconds": 0.0}}
            try:
                train.run_steps(model, optimiser.Optimiser(model), state, job, 2, training / "checkpoint.pt")
            except KeyboardInterrupt:
                sys.exit(folder.INTERRUPTED)
            except folder.Refused as error:
                sys.exit(error.code)
            """)
        process = subprocess.Popen([sys.executable, "-B", "-c", program], cwd=pathlib.Path(__file__).parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, start_new_session=True)
        self.assertEqual("started\n", process.stdout.readline())
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        self.assertEqual(INTERRUPTED, process.returncode, errors)
        self.assertNotIn("Traceback", errors)


if __name__ == "__main__":
    unittest.main()
