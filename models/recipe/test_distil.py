#!/usr/bin/env python3
"""What `foretoken draft distil` promises without a network, numpy or PyTorch: prompts, plan, answers, rows, figures, exit codes."""
import hashlib
import json
import pathlib
import struct
import tempfile
import unittest
from unittest import mock

from distil import __main__ as verb
from distil import answers, check, everyday, folder, loss_log, prompts, system, target, window
from distil.folder import Refused, Work

FIRST_PROMPTS = "07c30c9a4b06eff8a924e1113877b3069d2fb13f6db6cf5773463a769c8c61c5"


def answer(i, **more):
    return {"custom_id": str(i), "token_ids": [5, 6], "prompt_token_ids": [1], "logprobs": [{}, {}], **more}


def failure(i, code, message):
    return {"custom_id": str(i), "error": {"code": code, "message": message}}


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


class InAFolder(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = pathlib.Path(held.name)
        quiet = mock.patch.dict(folder.said, quiet=True)
        quiet.start()
        self.addCleanup(quiet.stop)


class Prompts(InAFolder):
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

    def test_a_line_ends_at_a_line_feed_alone(self):
        for mark in ("\u2028", "\u2029", "\u0085", "\f", "\v"):
            self.assertIn({"messages": [{"role": "user", "content": f"a{mark}b"}]},
                          self.read(json.dumps({"prompt": f"a{mark}b"}, ensure_ascii=False) + f"\r\nc{mark}d\n"))
        path = self.folder / "marked.txt"
        path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"prompt": "a"}).encode() + b"\nb\n")
        self.assertIn({"prompt": "a"}, prompts.read_file(path, False))

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

    def test_other_prompts_have_another_name_and_the_same_in_another_order_have_not(self):
        name = prompts.name_of(self.read("a\nb\n"))
        self.assertRegex(name, "^2 different ones, SHA-256 [0-9a-f]{16}$")
        self.assertEqual(name, prompts.name_of(self.read("b\n\na\nb\n")))
        for other in ("a\nc\n", "a\nb\nc\n"):
            self.assertNotEqual(name, prompts.name_of(self.read(other)))


class Folder(InAFolder):
    PLAN = {"seed": 1, "head": 64, "prompts": "2 different ones, SHA-256 ab"}

    def begun(self):
        work = Work(self.folder / "out")
        work.make()
        work.keep_plan(self.PLAN)
        return work

    def test_keeps_its_plan_once_there_is_a_shard(self):
        work = self.begun()
        (work.shards / "00000.npz").write_bytes(b"")
        work.keep_plan(self.PLAN)
        with self.assertRaisesRegex(Refused, "begun with seed = 1, and now it is 2") as refused:
            work.keep_plan({**self.PLAN, "seed": 2})
        self.assertEqual(2, refused.exception.code)
        with self.assertRaisesRegex(Refused, "begun with prompts = .*SHA-256 ab.*, and now it is .*SHA-256 cd"):
            work.keep_plan({**self.PLAN, "prompts": "2 different ones, SHA-256 cd"})

    def test_keeps_the_shape_of_the_draft_once_there_is_a_checkpoint(self):
        work = self.begun()
        (work.shards / "00000.npz").write_bytes(b"")
        (work.training / "summary.json").write_text("{}")
        work.keep_plan({**self.PLAN, "head": 128})
        self.assertFalse((work.training / "summary.json").exists(), "it counted for the former head")
        (work.training / "checkpoint.pt").write_bytes(b"")
        with self.assertRaisesRegex(Refused, "begun with head = 128, and now it is 64"):
            work.keep_plan(self.PLAN)

    def test_keeps_its_plan_once_there_are_answers(self):
        for name in ("00000.answers.jsonl", "00000.answers.jsonl.part"):
            work = self.begun()
            write_lines(work.requests / name, [{"schema": "foretoken.run.part/1"}, answer(0), failure(1, "c", "m")])
            with self.assertRaisesRegex(Refused, "seed"):
                work.keep_plan({**self.PLAN, "seed": 2})
            (work.requests / name).unlink()

    def test_takes_another_plan_after_a_try_that_brought_nothing(self):
        for left in ([], [{"schema": "foretoken.run.part/1"}], [answer(0), failure(1, "c", "m"), failure(2, "c", "m")]):
            work = self.begun()
            write_lines(work.requests / "00000.answers.jsonl.part", left)
            (work.requests / "00000.jsonl").write_text("{}\n")
            other = {**self.PLAN, "seed": 2}
            work.keep_plan(other)
            self.assertEqual([], list(work.requests.iterdir()), "requests of the former plan")
            self.assertEqual(other, json.loads((work.root / "plan.json").read_text()))
            work.keep_plan(self.PLAN)

    def test_does_not_take_the_rest_of_a_killed_write_for_a_shard(self):
        work = self.begun()
        (work.shards / "00000.npz").write_bytes(b"")
        (work.shards / "00001.tmp.npz").write_bytes(b"torn")
        self.assertEqual([work.shards / "00000.npz"], work.shard_files())

    def test_a_folder_that_holds_something_else_is_refused(self):
        (self.folder / "model").mkdir()
        (self.folder / "model/config.json").write_text("{}")
        (self.folder / "file").write_text("")
        for name in ("model", "file", "file/below"):
            with self.assertRaisesRegex(Refused, name):
                Work(self.folder / name).check()
        (self.folder / "closed").mkdir(mode=0o500)
        with mock.patch("os.access", return_value=False), self.assertRaisesRegex(Refused, "closed/draft cannot be made: Permission denied"):
            Work(self.folder / "closed/draft").check()
        Work(self.folder / "draft").check()
        self.assertFalse((self.folder / "draft").exists())
        for _ in range(2):  # a new one, and one that was begun
            Work(self.folder / "draft").make()
            Work(self.folder / "draft").check()


class Answers(InAFolder):
    def test_those_that_cannot_be_used_are_counted_by_reason(self):
        path = self.folder / "answers.jsonl"
        write_lines(path, [answer(0), failure(1, "context_length_exceeded", "3000 tokens are more than 2048"),
                           failure(2, "context_length_exceeded", "another sentence"), answer(3, token_ids=[], logprobs=[]), answer(4, logprobs=[{}]), answer(5)])
        lost = answers.Lost()
        self.assertEqual(["0", "5"], [one["custom_id"] for one in answers.whole(path, 8, lost)])
        self.assertEqual(6, lost.total())
        self.assertEqual('2 context_length_exceeded ("3000 tokens are more than 2048"), 2 not asked, 1 without tokens, 1 without log-probabilities', lost.words())

    def test_nothing_is_lost_where_all_are_answered(self):
        path = self.folder / "answers.jsonl"
        write_lines(path, [answer(0), answer(1)])
        lost = answers.Lost()
        self.assertEqual(2, len(list(answers.whole(path, 2, lost))))
        self.assertEqual((0, ""), (lost.total(), lost.words()))


class Rows(unittest.TestCase):
    def test_a_document_that_fits_is_a_row(self):
        self.assertEqual((100, 16), window.window(100, 16, 200, 100))
        self.assertEqual((100, 16), window.window(100, 16, 200, 416))

    def test_of_a_longer_one_the_answer_is_learnt_after_the_end_of_its_prompt(self):
        # 1000 tokens of prompt and 320 of answer: 96 of the prompt are left.
        length = window.length_of(320, 2048)
        begin, n_prompt = window.window(5000, 1000, 6320, length)
        self.assertEqual((5904, 96), (begin, n_prompt))
        self.assertEqual(6000, begin + n_prompt, "where the answer begins")
        self.assertEqual(6320, begin + length, "where it ends")

    def test_a_token_of_the_prompt_is_always_left(self):
        begin, n_prompt = window.window(0, 10, 500, 64)  # an answer of 490
        self.assertEqual((9, 1), (begin, n_prompt))

    def test_no_row_is_longer_than_the_drafts_context(self):
        self.assertEqual((416, 128), (window.length_of(320, 2048), window.length_of(320, 128)))


class LossLog(InAFolder):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "loss.csv"

    def steps(self):
        return [int(row[0]) for row in loss_log.read(self.path)]

    def test_goes_on_after_the_step_of_the_checkpoint(self):
        for step in range(1, 8):
            loss_log.append(self.path, {"step": step, "tokens": 10 * step, "seconds": step / 2}, 3.5)
        with open(self.path, "a") as file:
            file.write("8,80,3.5")  # torn
        loss_log.cut(self.path, 5)
        for step in (6, 7):
            loss_log.append(self.path, {"step": step, "tokens": 10 * step, "seconds": step / 2}, 2.5)
        self.assertEqual([1, 2, 3, 4, 5, 6, 7], self.steps())
        self.assertEqual([3.5] * 5 + [2.5] * 2, [row[2] for row in loss_log.read(self.path)])
        self.assertEqual(7, len(self.path.read_text().splitlines()))

    def test_is_empty_where_no_checkpoint_was_saved(self):
        loss_log.cut(self.path, 0)
        self.assertFalse(self.path.exists())
        loss_log.append(self.path, {"step": 1, "tokens": 1, "seconds": 0.1}, 3.5)
        loss_log.cut(self.path, 0)
        self.assertEqual("", self.path.read_text())

    def test_of_a_step_that_is_there_twice_or_torn_in_the_middle_one_line_is_left(self):
        self.path.write_text("1,10,3.5,0.1\n2,20,3.4,0.2\n3,30,3.4,0.2\n2,20,3.4,0.2\n3,33,,4,50,3.1,0.3\n4,40,3.1,0.4\n")
        loss_log.cut(self.path, 9)
        self.assertEqual([1, 2, 3, 4], self.steps())


class FakeSystem:
    """Answers at once; a prompt whose text is "long" is too long for it."""

    def __init__(self, *_, **__):
        self.asked = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def ask(self, requests, answers_path, *_):
        lines = [json.loads(line) for line in requests.read_text().splitlines()]
        self.asked.append(len(lines))
        said = {"num_spec_steps": 1, "acceptance_histogram": [1]}
        write_lines(answers_path, [failure(i, "context_length_exceeded", "3000 tokens") if line["prompt"] == "long" else
                                   {"token_ids": [1], "metrics": {"speculative_decoding": said}} for i, line in enumerate(lines)])


class Check(InAFolder):
    PLAN = {"answer_tokens": 16, "context": 64}

    def checked(self, texts):
        work = Work(self.folder / "draft")
        work.make()
        args = mock.Mock(host=None, set=[], dtype="auto")
        with mock.patch.object(check, "System", FakeSystem):
            return check.check(work, self.PLAN, [{"prompt": text} for text in texts], args, 7)

    def test_prompts_that_are_too_long_are_left_out_and_counted(self):
        found = self.checked(["long", "a", "long", "b"])
        self.assertEqual((2, 2), (found["prompts"], found["too_long"]))
        self.assertEqual({2}, {row["texts"] for row in found["temperatures"].values()})

    def test_others_take_their_places(self):
        found = self.checked(["long"] * 10 + ["a"] * 40)
        self.assertEqual((check.MOST_PROMPTS, 10), (found["prompts"], found["too_long"]))

    def test_ends_well_where_none_fits(self):
        found = self.checked(["long"] * 3)
        self.assertEqual((0, 3, {}), (found["prompts"], found["too_long"], found["temperatures"]))

    def test_figures_count_guesses_whose_predecessors_were_right(self):
        # 10 rounds: 4 with no guess right, 3 with one, 1 with two, 2 with all four.
        said = {"num_spec_steps": 10, "acceptance_histogram": [4, 3, 1, 0, 2]}
        answer = {"token_ids": [1, 2, 3], "metrics": {"speculative_decoding": said}}
        got = check.figures([answer], [{"token_ids": [1, 2, 3]}])
        self.assertEqual((0.6, round(13 / 21, 4), 2.3), (got["first_guess_right"], got["acceptance"], got["tokens_per_round"]))
        self.assertEqual((1, 1), (got["same_texts"], got["texts"]))
        self.assertEqual(0, check.figures([answer], [{"token_ids": [1, 2, 4]}])["same_texts"])


class Settings(unittest.TestCase):
    def settings(self, *own, concurrency=1024):
        return verb.settings_of(mock.Mock(host=None, set=list(own), dtype="auto", target_context=2048, concurrency=concurrency))

    def test_a_batch_has_a_row_for_each_answer_at_a_time(self):
        self.assertEqual(["limits.max_batch_rows=1024", "model.dtype=auto", "model.max_model_len=2048", "limits.max_running=1024"], self.settings())
        self.assertIn("limits.max_batch_rows=512", self.settings(concurrency=8))

    def test_those_of_the_person_come_later_and_so_count(self):
        own = "limits.max_batch_rows=2048"
        self.assertEqual(["limits.max_batch_rows=1024", own], self.settings(own)[:2])


class WeightsRead(InAFolder):
    def write(self, name, tensors, data=b""):
        header = json.dumps({"__metadata__": {"format": "pt"}, **{
            tensor: {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]} for tensor, (dtype, shape) in tensors.items()}}).encode()
        (self.folder / name).write_bytes(len(header).to_bytes(8, "little") + header + data)

    def count(self):
        return target.weights_read(self.folder)

    def test_are_all_but_those_of_an_embedding_apart_from_the_head(self):
        self.write("model.safetensors", {"model.embed_tokens.weight": ("F32", [10, 4]), "model.norm.weight": ("F32", [4])})
        self.assertEqual(44, self.count())
        self.write("model.safetensors", {"model.embed_tokens.weight": ("F32", [10, 4]), "lm_head.weight": ("F32", [9, 4])})
        self.assertEqual(36, self.count())

    def test_are_those_of_the_files_that_are_loaded(self):
        self.write("model-1.safetensors", {"model.embed_tokens.weight": ("BF16", [10, 4])})
        self.write("model-2.safetensors", {"model.norm.weight": ("BF16", [4])})
        self.write("consolidated.safetensors", {"tok_embeddings.weight": ("BF16", [10, 4]), "norm.weight": ("BF16", [4])})
        places = {"model.embed_tokens.weight": "model-1.safetensors", "model.norm.weight": "model-2.safetensors"}
        (self.folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
        self.assertEqual(44, self.count())

    def test_are_the_codes_of_packed_matrices(self):
        # 16 outputs of 64 inputs, in groups of 32: as AutoGPTQ has them, and as MXFP4.
        self.write("gptq.safetensors", {"a.qweight": ("I32", [8, 16]), "a.qzeros": ("I32", [2, 2]), "a.scales": ("F16", [2, 16]), "a.g_idx": ("I32", [64])})
        self.assertEqual(1024, self.count())
        self.write("gptq.safetensors", {"a.weight_packed": ("U8", [16, 32]), "a.weight_scale": ("U8", [16, 2])})
        self.assertEqual(1024, self.count())

    def test_are_those_of_the_shape_beside_packed_codes(self):
        # Four codes of eight bits to a word: their number is in no tensor's type.
        for dtype, form in (("I64", "<2q"), ("I32", "<2i")):
            self.write("model.safetensors", {"a.weight_shape": (dtype, [2]), "a.weight_packed": ("I32", [16, 16]), "a.weight_scale": ("BF16", [16, 1])},
                       struct.pack(form, 16, 63))
            self.assertEqual(16 * 63, self.count())


class KeptFiles(InAFolder):
    def test_are_the_tokenizer_with_all_its_chat_templates(self):
        source, out = self.folder / "target", self.folder / "draft"
        out.mkdir()
        (source / "additional_chat_templates").mkdir(parents=True)
        kept = ("tokenizer.json", "chat_template.jinja", "additional_chat_templates/tool_use.jinja", "generation_config.json")
        for text in ("first", "second"):  # the second time in place of the first
            for name in (*kept, "model.safetensors"):
                (source / name).write_text(text)
            target.copy_kept(source, out)
            self.assertEqual({name: text for name in kept},
                             {str(path.relative_to(out)): path.read_text() for path in out.rglob("*") if path.is_file()})


class EndTokens(InAFolder):
    def test_are_the_tokenizers_where_the_model_names_none(self):
        def write(name, value):
            (self.folder / name).write_text(json.dumps(value))

        write("config.json", {"vocab_size": 9})
        write("tokenizer_config.json", {"eos_token": {"content": "</s>"}})
        for vocabulary in ({"a": 0, "</s>": 2}, [["a", -1.0], ["b", -2.0], ["</s>", 0.0]]):
            write("tokenizer.json", {"model": {"vocab": vocabulary}})
            self.assertEqual([2], target.read_target(self.folder)["eos"])
        write("tokenizer.json", {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 7, "content": "</s>"}]})
        self.assertEqual([7], target.read_target(self.folder)["eos"])
        write("special_tokens_map.json", {"eos_token": "</s>"})
        for config, ids in (({}, [7]), ({"eos_token": None}, [])):
            write("tokenizer_config.json", config)
            self.assertEqual(ids, target.read_target(self.folder)["eos"])
        write("generation_config.json", {"eos_token_id": 5})
        self.assertEqual([5], target.read_target(self.folder)["eos"])


class ExitCodes(InAFolder):
    WORDS = ["distil", "--target", "t", "--out", "o", "--program", "p", "--target-context", "64", "--tokens", "1", "--answer-tokens", "1", "--top", "0", "--head", "64", "--context", "64",
             "--concurrency", "1", "--threads", "1", "--seed", "1", "--passes", "1", "--hours", "0", "--shape", "32x1", "--dtype", "auto"]

    def code_of(self, error):
        with mock.patch("sys.argv", self.WORDS), mock.patch("sys.stderr"), mock.patch.object(verb, "work_through", side_effect=error):
            return verb.main()

    def test_are_those_of_the_other_verbs(self):
        for error, code in ((None, 0), (Refused("other settings"), 2), (Refused("no tokenizer.json", folder.MODEL), 4),
                            (OSError(28, "No space left on device"), 6), (KeyboardInterrupt(), 130)):
            self.assertEqual(code, self.code_of(error), error)

    def test_a_text_that_a_draft_changed_is_a_difference(self):
        verb.refuse_other_texts({"temperatures": {"0.0": {"same_texts": 3, "texts": 3}}})
        with self.assertRaisesRegex(Refused, "at temperature 0.7 1 of 3 texts") as refused:
            verb.refuse_other_texts({"temperatures": {"0.0": {"same_texts": 3, "texts": 3}, "0.7": {"same_texts": 2, "texts": 3}}})
        self.assertEqual(7, refused.exception.code)

    def ask(self, script):
        program, answers_path = self.folder / "foretoken", self.folder / "answers"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        system.System(str(program), "t", [], ["--host", "h"]).ask(self.folder / "requests", answers_path, 1)

    def test_of_foretoken_run_are_passed_on(self):
        with self.assertRaisesRegex(Refused, "ended with 3") as refused:
            self.ask("exit 3")
        self.assertEqual(3, refused.exception.code)
        with self.assertRaises(KeyboardInterrupt):
            self.ask("exit 130")
        with self.assertRaisesRegex(Refused, "ended with 1"):
            self.ask("exit 1")
        (self.folder / "answers").write_text("")  # whole, with failures in it
        self.ask("exit 1")
        with self.assertRaisesRegex(Refused, "ended with 3"):
            self.ask("exit 3")

    def test_the_way_to_another_system_is_the_persons(self):
        args = mock.Mock(host="gpu1", model="big", config="/c.toml", set=["bus.insecure=true"])
        self.assertEqual(["--host", "gpu1", "--model", "big", "--config", "/c.toml", "--set", "bus.insecure=true"], system.there(args))
        self.assertEqual([], system.own_settings(args))
        args = mock.Mock(host=None, set=["target.threads=1"])
        self.assertEqual((None, ["target.threads=1"]), (system.there(args), system.own_settings(args)))


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
