#!/usr/bin/env python3
"""The recipe's promises that need neither a network nor PyTorch: same text every time, committed files as described."""
import collections
import hashlib
import json
import pathlib
import re
import unittest

import generate
import make_prompts

MODELS = pathlib.Path(__file__).resolve().parent.parent
FIRST_DOCUMENTS = "003b42e7065d5dc08c3d03b8f029702c8e60929c8a4dfe5bfc0cc208ebe98160"


class Recipe(unittest.TestCase):
    def test_first_documents_are_the_same_bytes_everywhere(self):
        text = "".join(generate.render(generate.document(1, i)[1]) for i in range(500))
        self.assertEqual(hashlib.sha256(text.encode()).hexdigest(), FIRST_DOCUMENTS)

    def test_document_does_not_depend_on_what_was_asked_before(self):
        alone = generate.document(1, 400)
        for i in range(390, 400):
            generate.document(1, i)
        self.assertEqual(generate.document(1, 400), alone)

    def test_neighbouring_seeds_share_no_text(self):
        first = {generate.render(generate.document(1, i, "steps")[1]) for i in range(100)}
        second = {generate.render(generate.document(2, i, "steps")[1]) for i in range(100)}
        self.assertFalse(first & second)

    def test_json_documents_parse(self):
        for i in range(300):
            json.loads(generate.document(3, i, "json")[1][-1][1])

    def test_code_documents_compile(self):
        for i in range(300):
            compile(generate.document(3, i, "code")[1][-1][1], "snippet", "exec")

    def test_committed_files_match_their_checksums(self):
        listed = (MODELS / "SHA256SUMS").read_text().splitlines()
        names = [line.split("  ", 1)[1] for line in listed]
        on_disk = sorted(str(p.relative_to(MODELS)) for d in ("demo-target", "demo-draft") for p in (MODELS / d).iterdir() if p.suffix in (".json", ".safetensors"))
        self.assertEqual(sorted(names), on_disk)
        for line in listed:
            digest, name = line.split("  ", 1)
            self.assertEqual(hashlib.sha256((MODELS / name).read_bytes()).hexdigest(), digest, name)

    def test_both_models_have_the_same_tokenizer(self):
        for name in ("tokenizer.json", "tokenizer_config.json"):
            self.assertEqual((MODELS / "demo-target" / name).read_bytes(), (MODELS / "demo-draft" / name).read_bytes())

    def test_committed_prompts_are_the_generated_ones(self):
        entries = json.loads((MODELS / "prompts.json").read_text())
        self.assertEqual(entries, list(make_prompts.entries()))
        kinds = collections.Counter(e["kind"] for e in entries)
        self.assertEqual(set(kinds), set(generate.KINDS))
        self.assertGreaterEqual(len(entries), 200)
        self.assertGreaterEqual(sum(e.get("demo", False) for e in entries), 20)

    def test_index_names_every_shard(self):
        index = json.loads((MODELS / "demo-target" / "model.safetensors.index.json").read_text())
        files = {p.name for p in (MODELS / "demo-target").glob("*.safetensors")}
        self.assertEqual(set(index["weight_map"].values()), files)
        self.assertTrue(all(re.fullmatch(r"model-0000\d-of-00004\.safetensors", f) for f in files))


if __name__ == "__main__":
    unittest.main()
