#!/usr/bin/env python3
"""Mistral's own tokenizer.model files, version 1 to 7, read by sentencepiece and by us: ids and text of random strings.

  mistral_tokenizers.py --probes build/release/tests [--seed S] [--strings COUNT]

The files are those inside the package mistral-common; its code is not used. Needs requirements.txt; no network.
"""

import argparse
import collections
import importlib.util
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import json

import sentencepiece

import random_tokenizers

OWN = ["[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[TOOL_CALLS]", "<0x41>", "▁▁"]


class MistralFile:
    family, stages = "sentencepiece", {}

    def __init__(self, path):
        self.reference = sentencepiece.SentencePieceProcessor(model_file=str(path))
        model = self.reference
        # Control tokens in a text are ours to find: sentencepiece reads them letter by letter.
        self.found = [model.id_to_piece(i) for i in range(model.get_piece_size()) if model.is_control(i) or model.is_unknown(i)]

    def strings(self, rng, count):
        strings = []
        while len(strings) < count:
            strings += [text for text in random_tokenizers.draw_strings(rng, count, OWN) if not any(control in text for control in self.found)]
        return strings[:count]

    def encode(self, text):
        ids = self.reference.encode(text)
        return ids, [self.reference.bos_id()] + ids

    def decode(self, ids):
        return self.reference.decode(ids), self.reference.decode([i for i in ids if i != self.reference.unk_id()])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probes", type=pathlib.Path, required=True, help="the folder of tokenizer_probe")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--strings", type=int, default=1500, help="for each file")
    arguments = parser.parse_args()
    package = importlib.util.find_spec("mistral_common")
    if package is None:
        print("SKIPPED: the package mistral-common is not installed")
        return 77
    data = pathlib.Path(next(iter(package.submodule_search_locations))) / "data"
    paths = sorted(data.glob("*.model*"))
    n_different = 0
    for path in paths:
        rng = random.Random(f"mistral {arguments.seed} {path.name}")
        file = MistralFile(path)
        strings = file.strings(rng, arguments.strings)
        ordinary = [i for i in range(file.reference.get_piece_size()) if not file.reference.is_control(i)]
        sequences = [[rng.choice(ordinary[:300] if i % 3 == 0 else ordinary) for _ in range(rng.randint(1, 20))] for i in range(300)]
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            shutil.copy(path, folder / "tokenizer.model")
            (folder / "questions.json").write_text(json.dumps({"folder": str(folder), "texts": strings, "sequences": sequences}))
            subprocess.run([arguments.probes / "tokenizer_probe", folder / "questions.json", folder / "answers.json"], check=True)
            answers = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
        if "refused" in answers:
            print(f"DIFFERENT {path.name}: refused: {answers['refused']}")
            n_different += 1
            continue
        kinds = collections.Counter()
        for what, of, ours, reference in random_tokenizers.differences(file, strings, sequences, answers):
            kinds[what] += 1
            if kinds[what] <= 2:
                print(f"DIFFERENT {path.name}: {what} of {of!r}\n  ours      {ours!r}\n  reference {reference!r}")
        n_different += sum(kinds.values())
        print(f"{path.name}: {len(strings)} strings, {len(sequences)} sequences of ids, {sum(kinds.values())} differences", flush=True)
    return 1 if n_different or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
