#!/usr/bin/env python3
"""What `foretoken draft distil` promises without a network, numpy or PyTorch: prompts, plan, figures."""
import hashlib
import json
import pathlib
import tempfile
import unittest

from distil import check, everyday, prompts
from distil.folder import Refused, Work

FIRST_PROMPTS = "07c30c9a4b06eff8a924e1113877b3069d2fb13f6db6cf5773463a769c8c61c5"


class Distil(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = pathlib.Path(held.name)

    def read(self, text, has_template=True):
        path = self.folder / "prompts.txt"
        path.write_text(text)
        return prompts.read_file(path, has_template)

    def test_everyday_prompts_are_the_same_bytes_everywhere_and_each_once(self):
        made = list(everyday.prompts(1, 3000))
        self.assertEqual(len(made), len(set(made)))
        self.assertEqual(hashlib.sha256("\n".join(made).encode()).hexdigest(), FIRST_PROMPTS)
        self.assertEqual(made[:100], list(everyday.prompts(1, 100)))

    def test_a_line_is_a_message_or_a_beginning(self):
        one, two = sorted(self.read("How?\n\nWhy?\nHow?\n"), key=str)
        self.assertEqual(one, {"messages": [{"role": "user", "content": "How?"}]})
        self.assertEqual(two, {"messages": [{"role": "user", "content": "Why?"}]})
        self.assertIn({"prompt": "How?"}, self.read("How?\nWhy?\n", has_template=False))

    def test_a_line_of_json_may_have_a_system_message_or_a_conversation(self):
        talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
        read = self.read(json.dumps({"prompt": "x", "system": "s"}) + "\n" + json.dumps({"messages": talk}) + "\n")
        self.assertIn({"messages": talk}, read)
        self.assertIn({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "x"}]}, read)

    def test_a_bad_file_is_refused_with_its_line(self):
        for text, why in (("a\n{\"prompt\": 3}\n", "line 2: expected \"prompt\""), ("{nonsense\nb\n", "line 1: not JSON"), ("a\na\n", "1 different prompts")):
            with self.assertRaisesRegex(Refused, why):
                self.read(text)
        with self.assertRaisesRegex(Refused, "cannot read"):
            prompts.read_file(self.folder / "none", True)

    def test_held_out_prompts_are_not_trained_on(self):
        training, held_out = prompts.split(self.read("\n".join(map(str, range(100)))))
        self.assertEqual((95, 5), (len(training), len(held_out)))
        self.assertFalse([p for p in held_out if p in training])

    def test_without_prompts_a_text_begins_as_the_target_says(self):
        target = {"bos": 1, "eos": [2], "folder": "f"}
        self.assertEqual([{"token_ids": [1], "ignore_eos": True}], prompts.own_beginnings(target))
        self.assertEqual([2], prompts.own_beginnings({**target, "bos": None})[0]["token_ids"])
        with self.assertRaisesRegex(Refused, "--prompts"):
            prompts.own_beginnings({**target, "bos": None, "eos": []})

    def test_a_folder_keeps_its_plan(self):
        work = Work(self.folder / "out")
        work.make()
        work.keep_plan({"head": 64, "seed": 1})
        work.keep_plan({"head": 64, "seed": 1})
        with self.assertRaisesRegex(Refused, "begun with head = 64, and now it is 128"):
            work.keep_plan({"head": 128, "seed": 1})

    def test_a_folder_that_holds_something_else_is_refused(self):
        (self.folder / "model").mkdir()
        (self.folder / "model/config.json").write_text("{}")
        (self.folder / "file").write_text("")
        for name in ("model", "file", "file/below"):
            with self.assertRaisesRegex(Refused, name):
                Work(self.folder / name).make()
        for _ in range(2):  # a new one, and one that was begun
            Work(self.folder / "draft").make()

    def test_figures_count_guesses_whose_predecessors_were_right(self):
        # 10 rounds: 4 with no guess right, 3 with one, 1 with two, 2 with all four.
        said = {"num_spec_steps": 10, "acceptance_histogram": [4, 3, 1, 0, 2]}
        answer = {"token_ids": [1, 2, 3], "metrics": {"speculative_decoding": said}}
        got = check.figures([answer], [{"token_ids": [1, 2, 3]}])
        self.assertEqual((0.6, round(13 / 21, 4), 2.3), (got["first_guess_right"], got["acceptance"], got["tokens_per_round"]))
        self.assertEqual((1, 1), (got["same_texts"], got["texts"]))
        self.assertEqual(0, check.figures([answer], [{"token_ids": [1, 2, 4]}])["same_texts"])


class CommittedDraft(unittest.TestCase):
    FOLDER = pathlib.Path(__file__).resolve().parent.parent / "smollm2-draft"

    def test_its_files_match_their_checksums(self):
        listed = dict(line.split("  ", 1)[::-1] for line in (self.FOLDER / "SHA256SUMS").read_text().splitlines())
        self.assertEqual(sorted(listed), sorted(p.name for p in self.FOLDER.iterdir() if p.suffix in (".json", ".i32", ".safetensors")))
        for name, digest in listed.items():
            self.assertEqual(hashlib.sha256((self.FOLDER / name).read_bytes()).hexdigest(), digest, name)

    def test_its_head_has_a_row_for_each_id_in_order(self):
        data = (self.FOLDER / "draft_ids.i32").read_bytes()
        ids = [int.from_bytes(data[i:i + 4], "little") for i in range(0, len(data), 4)]
        config = json.loads((self.FOLDER / "config.json").read_text())
        self.assertEqual(ids, sorted(set(ids)))
        self.assertLess(ids[-1], config["vocab_size"])
        self.assertLessEqual(set(config["eos_token_id"]), set(ids))
        with open(self.FOLDER / "model.safetensors", "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        self.assertEqual([len(ids), config["hidden_size"]], header["lm_head.weight"]["shape"])


if __name__ == "__main__":
    unittest.main()
