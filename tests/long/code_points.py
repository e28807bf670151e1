#!/usr/bin/env python3
"""Code points through every stage that asks what kind of character it is: `tokenizers` against us.

  code_points.py --probes build/release/tests [--stage NAME]

All code points but most of the large blocks whose members are alike (Han, Hangul, private use, unassigned planes), of which one in
--stride is asked. Each stage stands in a tokenizer.json whose ids show what it did with a text of one code point, or two. A code point that
Python's tables have as unassigned is counted apart: tables of later Unicode versions know more of them (docs/models.md).
Needs the packages of requirements.txt; no network.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unicodedata

import tokenizers
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers


def showing_pieces(pre_tokenizer):
    """One unknown token for each piece."""
    tokenizer = Tokenizer(models.BPE({"<unk>": 0, "a": 1}, [], unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


def showing_bytes(normalizer):
    """The bytes of what a text becomes."""
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE({**vocabulary, "<unk>": 256}, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizer
    return tokenizer


def matching(pattern):
    return "{}a", showing_pieces(pre_tokenizers.Split(Regex(pattern), "removed"))


STAGES = {
    "punctuation": ("{}", showing_pieces(pre_tokenizers.Punctuation("removed"))),
    "digits": ("{0}{0}", showing_pieces(pre_tokenizers.Digits(individual_digits=True))),
    "whitespace": ("{}", showing_pieces(pre_tokenizers.Whitespace())),
    "whitespace beside a word": ("{}_", showing_pieces(pre_tokenizers.Whitespace())),
    "whitespace split": ("{}", showing_pieces(pre_tokenizers.WhitespaceSplit())),
    "lowercase": ("{}", showing_bytes(normalizers.Lowercase())),
    "strip": ("{0}a{0}", showing_bytes(normalizers.Strip())),
    **{f"{form.__name__.lower()} {name}": (text, showing_bytes(form()))
       for form in (normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD)
       for name, text in (("alone", "{}"), ("after a letter and marks", "a\u0323{}\u0301"), ("before marks", "{}\u0301\u0323\u0308"))},
    **{pattern: matching(pattern) for pattern in
       (r"\p{L}", r"\p{N}", r"\p{M}", r"\p{P}", r"\p{S}", r"\s", r"\S", r"\d", r"\p{Lu}", r"\p{Ll}", r"\p{Lt}", r"\p{Lm}", r"\p{Lo}", r"(?i:s)", r"(?i:k)")},
}


ALIKE = [(0x3400, 0x4DC0), (0x4E00, 0xA000), (0xAC00, 0xD7A4), (0xE000, 0xF900), (0x17000, 0x18D00), (0x20000, 0x110000)]


def points_asked(stride):
    large = {point for first, end in ALIKE for point in range(first, end)}
    return [point for point in range(0x110000) if not 0xD800 <= point <= 0xDFFF and (point not in large or point % stride == 0)]


def ranges(points):
    """U+0041-U+005A, U+0061"""
    runs = []
    for point in points:
        if runs and runs[-1][1] == point - 1:
            runs[-1][1] = point
        else:
            runs.append([point, point])
    return ", ".join(f"U+{first:04X}" + (f"-U+{last:04X}" if last > first else "") for first, last in runs)


def compare(probe, name, points):
    form, reference = STAGES[name]
    texts = [form.format(chr(point)) for point in points]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "tokenizer.json").write_text(reference.to_str(), encoding="utf-8")
        different = []
        for begin in range(0, len(points), 1 << 17):
            part = texts[begin:begin + (1 << 17)]
            (folder / "questions.json").write_text(json.dumps({"folder": str(folder), "texts": part, "sequences": []}))
            subprocess.run([probe, folder / "questions.json", folder / "answers.json"], check=True)
            answers = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
            expected = reference.encode_batch_fast(part, add_special_tokens=False)
            different += [points[begin + i] for i, (ours, theirs) in enumerate(zip(answers["texts"], expected)) if ours.get("ids") != theirs.ids]
    return different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probes", type=pathlib.Path, required=True, help="the folder of tokenizer_probe")
    parser.add_argument("--stage", choices=list(STAGES))
    parser.add_argument("--stride", type=int, default=97)
    arguments = parser.parse_args()
    points = points_asked(arguments.stride)
    print(f"tokenizers {tokenizers.__version__}, Unicode {unicodedata.unidata_version} here, {len(points)} code points")
    n_assigned = 0
    for name in STAGES if arguments.stage is None else [arguments.stage]:
        different = compare(arguments.probes / "tokenizer_probe", name, points)
        assigned = [point for point in different if unicodedata.category(chr(point)) != "Cn"]
        n_assigned += len(assigned)
        newer = [point for point in different if unicodedata.category(chr(point)) == "Cn"]
        print(f"{name}: {len(assigned)} differ" + (f" ({ranges(assigned)})" if assigned else "") +
              (f", {len(newer)} newer ones ({ranges(newer)})" if newer else ""), flush=True)
    return 1 if n_assigned else 0


if __name__ == "__main__":
    sys.exit(main())
