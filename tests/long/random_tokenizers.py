#!/usr/bin/env python3
"""Tokenizer files drawn from a seed, read by `tokenizers` or `sentencepiece` and by us: ids and text of random strings.

  random_tokenizers.py --probes build/release/tests [--seed S] [--n FILES] [--strings COUNT] [--only NUMBER] [--keep FOLDER]

Each file is trained on text from the seed, with stages drawn from those we support. Of every string the ids must be equal,
without and with special tokens; of those ids, and of random ones, the text must be equal with and without special tokens;
and token by token our decoder must give the text that it gives at once. Strings have code points up to the Unicode version
of Python's tables; a few have any code point. A difference in a string with a code point that those tables do not know is
counted apart (docs/models.md); the string without such code points is compared, too, so that no other cause hides there.
Needs the packages of requirements.txt; no network.
"""

import argparse
import collections
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unicodedata

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
PATTERNS = {  # as published files have them
    "gpt2": GPT2,
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen3.5": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "tekken": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",  # line feeds themselves, as in the published file
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]

CODE = ["def f(x):\n    return x ** 2  # square\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\r\n", "a+b==c&&d||!e?f:g;/*c*/",
        "SELECT * FROM t WHERE name LIKE '%x_y%';", "<a href=\"https://example.org/?q=1&r=%20\">", "{\"key\": [1, 2.5, true, null]}\n",
        "snake_case camelCase SCREAMING_CASE kebab-case", "0x1F 1e-9 1,234,567.89 2024-02-29T12:34:56Z", "\\frac{a}{b} $x->{y}[0] =~ s/a/b/g"]
WORDS = ("the of and to in that it is was for on are with as his they be at one have this from or had by hot word but what some we can "
         "out other were all there when up use your how said an each she which do their time if will way about many then them write "
         "would like so these her long make thing see him two has look more day could go come did number sound no most people my over "
         "I'm you'll we've don't HE'S naïve façade Größe Straße élève señor İstanbul ΑΒΓ слово 漢字 かな 한국어 हिन्दी ไทย עברית العربية").split()
EMOJI = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "❤️", "1️⃣", "🧑🏿‍🚀", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "☎", "✈︎"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n ", "\u00a0", "\u2003", "\u3000", "\u200b", "\u2028", "\u2029", "\u0085",
          "\u180e", "\u1680", "\ufeff", "\u202f", "\x0b", "\x0c", "\u001c", "\u2060", " " * 17, "\t\t\t", "▁", "▁▁", "Ġ", "_"]
CONTROLS = ["\x00", "\x01", "\x07", "\x1b[31m", "\x7f", "\u0080", "\u009f", "\ufffd", "\u202e", "\ue000", "\ufffe", "\U0010ffff"]
MARKS = ["\u0301", "\u0323", "\u0308", "\u0327", "\u0345", "\u0344", "\u0f71\u0f72", "\u093c", "\u3099", "\u20dd", "\u1ab0", "\U0001d165"]
COMPATIBILITY = ["ﬁ", "㌀", "ﷺ", "½", "Ⅷ", "ｆｕｌｌ", "ﾊﾟ", "Å", "\u212b", "\u1e9b\u0323", "각", "\u1100\u1161\u11a8", "İ", "ß", "ẞ", "ǅ"]
BLOCKS = [(0x20, 0x7F), (0xA0, 0x250), (0x250, 0x600), (0x600, 0x1000), (0x1000, 0x2000), (0x2000, 0x3000), (0x3000, 0xA000),
          (0xA000, 0xD800), (0xF900, 0x10000), (0x10000, 0x11FFF), (0x1D000, 0x1FFFF), (0x20000, 0x30000)]


def is_assigned(point):
    return unicodedata.category(chr(point)) not in ("Cn", "Cs")


def draw_characters(rng, anything):
    out = []
    while len(out) < rng.randint(1, 8):
        low, high = (0, 0x110000) if anything else rng.choice(BLOCKS)
        point = rng.randrange(low, high)
        if not 0xD800 <= point <= 0xDFFF and (anything or is_assigned(point)):
            out.append(chr(point))
    return "".join(out)


def draw_string(rng, added, anything=False):
    parts = []
    for _ in range(rng.choice([1, 2, 3, 5, 9, 20])):
        kind = rng.random()
        if kind < 0.30:
            parts.append(" ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 5))))
        elif kind < 0.45:
            parts.append(rng.choice(SPACES))
        elif kind < 0.55:
            parts.append(draw_characters(rng, anything))
        elif kind < 0.63:
            text = rng.choice(CODE)
            at = rng.randrange(len(text))
            parts.append(text[at:at + rng.randint(1, 25)])
        elif kind < 0.68:
            parts.append(rng.choice(EMOJI))
        elif kind < 0.73:
            parts.append(rng.choice("aeoẍ漢ก") + "".join(rng.choice(MARKS) for _ in range(rng.randint(1, 4))))
        elif kind < 0.78:
            parts.append(rng.choice(COMPATIBILITY))
        elif kind < 0.82:
            parts.append(rng.choice(CONTROLS))
        elif kind < 0.86:
            parts.append(rng.choice([" ", "\n", "a", "é", "=", "0", "漢", "\u0301"]) * rng.randint(2, 40))
        elif kind < 0.90:
            parts.append(str(rng.randrange(10 ** rng.randint(1, 12))))
        elif added:
            text = rng.choice(added)
            parts.append(text if rng.random() < 0.8 else text[:rng.randint(1, len(text))])
        if rng.random() < 0.3:
            parts.append(" ")
    return "".join(parts)


def draw_strings(rng, count, added):
    strings = ["", " ", "a", "\n", "  a", "a  ", "\u0301", " \u0301"]
    while len(strings) < count:
        strings.append(draw_string(rng, added, anything=len(strings) % 50 == 49))
    return strings[:count]


def draw_corpus(rng):
    lines = [" ".join(rng.choice(WORDS) for _ in range(rng.randint(2, 12))) for _ in range(500)]
    lines += CODE * 8 + [" ".join(EMOJI), " ".join(COMPATIBILITY)] * 4 + ["    " * rng.randint(1, 3) + rng.choice(WORDS) for _ in range(60)]
    lines += [draw_string(rng, []) for _ in range(150)]
    rng.shuffle(lines)
    return lines


# ---- tokenizer.json

def draw_normalizer(rng, depth=0):
    kind = rng.choice(["nfc", "nfd", "nfkc", "nfkd", "lower", "strip", "prepend", "replace", "regex", "sequence"])
    if kind == "sequence" and depth == 0:
        return normalizers.Sequence([draw_normalizer(rng, 1) for _ in range(rng.randint(1, 3))])
    simple = {"nfc": normalizers.NFC, "nfd": normalizers.NFD, "nfkc": normalizers.NFKC, "nfkd": normalizers.NFKD, "lower": normalizers.Lowercase}
    if kind in simple:
        return simple[kind]()
    if kind == "strip":
        return normalizers.Strip(left=rng.random() < 0.5, right=rng.random() < 0.5)
    if kind == "prepend":
        return normalizers.Prepend(rng.choice(["▁", " ", "<", "é"]))
    if kind == "regex":
        return normalizers.Replace(Regex(rng.choice([r"\s+", r" {2,}", r"[0-9]", r"\n"])), rng.choice(["", " ", "_", "0"]))
    return normalizers.Replace(*rng.choice([(" ", "▁"), ("  ", " "), ("``", '"'), ("a", "aa"), ("\n", "¶"), ("é", "e")]))


def draw_byte_level(rng):
    """Splits, then bytes as letters."""
    kind = rng.choice(["plain", "pattern", "pattern", "pattern", "deepseek", "digits", "punctuation", "behaviour"])
    prefix = rng.random() < 0.3
    if kind == "plain":
        return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=rng.random() < 0.8)
    last = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False)
    if kind == "deepseek":
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in DEEPSEEK] + [last])
    pattern = Regex(PATTERNS[rng.choice(list(PATTERNS))])
    if kind == "digits":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=rng.random() < 0.5), pre_tokenizers.ByteLevel(prefix, use_regex=True)])
    if kind == "punctuation":
        return pre_tokenizers.Sequence([pre_tokenizers.Punctuation(rng.choice(BEHAVIORS)), pre_tokenizers.Split(pattern, "isolated"), last])
    if kind == "behaviour":
        what = rng.choice([" ", Regex(r"\s+"), Regex(r"\d{1,3}"), Regex(r"\p{N}"), Regex(r"[\r\n]"), "e"])
        return pre_tokenizers.Sequence([pre_tokenizers.Split(what, rng.choice(BEHAVIORS), invert=rng.random() < 0.4), last])
    return pre_tokenizers.Sequence([pre_tokenizers.Split(pattern, rng.choice(["isolated", "isolated", "removed", "contiguous"]),
                                                         invert=rng.random() < 0.2), last])


def draw_words(rng):
    kind = rng.choice(["whitespace", "split", "punctuation", "digits", "metaspace"])
    if kind == "whitespace":
        return pre_tokenizers.Whitespace()
    if kind == "split":
        return pre_tokenizers.WhitespaceSplit()
    if kind == "punctuation":
        return pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(rng.choice(BEHAVIORS))])
    if kind == "digits":
        return pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(rng.random() < 0.5)])
    return draw_metaspace(rng)


def draw_metaspace(rng):
    return pre_tokenizers.Metaspace(replacement=rng.choice(["▁", "▁", "_"]), prepend_scheme=rng.choice(["always", "first", "never"]),
                                    split=rng.random() < 0.6)


def draw_added(rng):
    contents = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "[MASK]", "<tool_call>", "New York", "é", "  ", "[L]", "ab", "\n\n"]
    return [AddedToken(content, special=rng.random() < 0.5, single_word=rng.random() < 0.2, lstrip=rng.random() < 0.2,
                       rstrip=rng.random() < 0.2, normalized=rng.random() < 0.4)
            for content in rng.sample(contents, rng.randint(0, 6))]


def draw_decoder(rng, family):
    if family == "bytes":
        return decoders.ByteLevel()
    if family == "fallback":
        return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", rng.randint(0, 2), rng.randint(0, 1))])
    if family == "suffix":
        return decoders.BPEDecoder(suffix="</w>")
    return rng.choice([None, decoders.Metaspace(prepend_scheme=rng.choice(["always", "first", "never"])), decoders.Fuse(),
                       decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])])


def draw_tokenizer(rng, corpus):
    family = rng.choice(["bytes", "bytes", "bytes", "fallback", "metaspace", "words", "suffix", "prefix"])
    unk = "<unk>" if family != "bytes" else None
    affixes = {"suffix": {"end_of_word_suffix": "</w>"}, "prefix": {"continuing_subword_prefix": "##"}}.get(family, {})
    model = {"byte_fallback": family == "fallback", "fuse_unk": rng.random() < 0.5, "ignore_merges": rng.random() < 0.3, **affixes}
    tokenizer = Tokenizer(models.BPE(unk_token=unk, **model) if unk else models.BPE(**model))
    if rng.random() < 0.5:
        tokenizer.normalizer = draw_normalizer(rng)
    specials = [unk] if unk else []
    alphabet = []
    if family == "bytes":
        tokenizer.pre_tokenizer = draw_byte_level(rng)
        alphabet = pre_tokenizers.ByteLevel.alphabet() if rng.random() < 0.8 else []
    elif family == "fallback":
        if rng.random() < 0.5:
            tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        else:
            tokenizer.pre_tokenizer = draw_metaspace(rng)
        specials += [f"<0x{byte:02X}>" for byte in range(256)]
    else:
        tokenizer.pre_tokenizer = draw_metaspace(rng) if family == "metaspace" else draw_words(rng)
    trainer = trainers.BpeTrainer(vocab_size=rng.choice([400, 700, 1500]), show_progress=False, special_tokens=specials, initial_alphabet=alphabet,
                                  limit_alphabet=rng.choice([60, 200, 1000]), max_token_length=rng.choice([None, 8, 24]), **affixes)
    tokenizer.train_from_iterator(corpus, trainer)
    for added in draw_added(rng):
        (tokenizer.add_special_tokens if added.special else tokenizer.add_tokens)([added])
    tokenizer.decoder = draw_decoder(rng, family)
    bos = rng.choice([None, "<s>", "<|endoftext|>"])
    if bos:
        tokenizer.add_special_tokens([bos])
        single = rng.choice([f"{bos} $A", f"{bos} $A {bos}", f"$A {bos}"])
        template = processors.TemplateProcessing(single=single, pair=single + " $B", special_tokens=[(bos, tokenizer.token_to_id(bos))])
        tokenizer.post_processor = rng.choice([template, processors.Sequence([processors.ByteLevel(trim_offsets=False), template])])
    spec = json.loads(tokenizer.to_str())
    if family == "fallback":  # byte tokens are in the vocabulary and not among the added ones, as in published files
        spec["added_tokens"] = [t for t in spec["added_tokens"] if not t["content"].startswith("<0x")]
    if rng.random() < 0.5:
        spec["model"]["merges"] = [" ".join(pair) if " " not in "".join(pair) else pair for pair in spec["model"]["merges"]]
        if any(isinstance(pair, list) for pair in spec["model"]["merges"]):
            spec["model"]["merges"] = [pair if isinstance(pair, list) else pair.split(" ") for pair in spec["model"]["merges"]]
    return family, spec


class JsonFile:
    def __init__(self, rng, folder, corpus):
        self.family, spec = draw_tokenizer(rng, corpus)
        while not spec["model"]["vocab"]:  # stages that leave nothing to learn from; such a file is refused
            self.family, spec = draw_tokenizer(rng, corpus)
        text = json.dumps(spec, ensure_ascii=rng.random() < 0.5)
        (folder / "tokenizer.json").write_text(text, encoding="utf-8")
        self.reference = Tokenizer.from_str(text)
        self.added = [token["content"] for token in spec["added_tokens"]]
        self.stages = {name: (spec[name] or {}).get("type") for name in ("normalizer", "pre_tokenizer", "decoder", "post_processor")}

    def strings(self, rng, count):
        return draw_strings(rng, count, self.added)

    def n_ids(self):
        return self.reference.get_vocab_size()

    def encode(self, text):
        return unless_panic(lambda: (self.reference.encode(text, add_special_tokens=False).ids,
                                     self.reference.encode(text, add_special_tokens=True).ids))

    def decode(self, ids):
        return unless_panic(lambda: (self.reference.decode(ids, skip_special_tokens=False),
                                     self.reference.decode(ids, skip_special_tokens=True)))


def unless_panic(work):
    """What the reference says; None where it fails. Rust's panics are no Exception: its Strip does so at an empty token, its
    AddedVocabulary at some texts ("bad split")."""
    try:
        return work()
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return None


# ---- tokenizer.model

class ModelFile:
    """Control tokens in a text and among ids are ours to treat: sentencepiece neither finds nor shows them."""

    def __init__(self, rng, folder, corpus):
        self.kind = rng.choice(["bpe", "unigram"])
        options = dict(model_type=self.kind, vocab_size=rng.choice([1000, 1600]), byte_fallback=rng.random() < 0.7, num_threads=1, minloglevel=2,
                       character_coverage=rng.choice([0.98, 0.995]), hard_vocab_limit=False, add_dummy_prefix=rng.random() < 0.7,
                       remove_extra_whitespaces=rng.random() < 0.4, split_digits=rng.random() < 0.5,
                       allow_whitespace_only_pieces=rng.random() < 0.5, split_by_whitespace=rng.random() < 0.8,
                       normalization_rule_name=rng.choice(["identity", "identity", "nmt_nfkc", "nfkc", "nfkc_cf"]),
                       user_defined_symbols=rng.choice([[], ["<sep>"], ["<sep>", "▁▁", "\t"]]))
        self.family = "sentencepiece " + self.kind
        self.stages = {name: options[name] for name in ("add_dummy_prefix", "remove_extra_whitespaces", "normalization_rule_name")}
        text = folder / "corpus.txt"
        text.write_text("\n".join(line.replace("\n", " ").replace("\0", "") for line in corpus if line.strip()), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(input=str(text), model_prefix=str(folder / "tokenizer"), **options)
        self.reference = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
        self.adds_bos = rng.random() < 0.5
        (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": self.adds_bos}))

    def strings(self, rng, count):
        strings = draw_strings(rng, count, ["<sep>", "<0x41>", "▁▁"])
        return [text.replace("<s>", "s").replace("</s>", "s").replace("<unk>", "unk") for text in strings]

    def n_ids(self):
        return self.reference.get_piece_size()

    def encode(self, text):
        ids = self.reference.encode(text)
        return ids, [self.reference.bos_id()] * self.adds_bos + ids

    def decode(self, ids):
        # Unknown tokens leave a mark in sentencepiece's text; they are special tokens to us and can be left out.
        return self.reference.decode(ids), self.reference.decode([i for i in ids if i != self.reference.unk_id()])


# ---- comparison

def newest(text):
    """The code points of a text that Python's tables do not know."""
    return sorted({f"U+{ord(c):04X}" for c in text if not is_assigned(ord(c))})


def without_newest(text):
    return "".join(c for c in text if is_assigned(ord(c)))


def differences(file, strings, sequences, answers):
    """(what, text or ids, ours, reference)"""
    for text, ours in zip(strings, answers["texts"]):
        if "refused" in ours:
            yield "refused", text, ours["refused"], ""
            continue
        expected = file.encode(text)
        if expected is None:
            yield "no text", text, ours["ids"], None
            continue
        ids, special = expected
        if ours["ids"] != ids:
            yield "ids", text, ours["ids"], ids
            continue
        if ours["ids_with_special"] != special:
            yield "ids with special tokens", text, ours["ids_with_special"], special
        yield from decoding(file, text, ids, ours)
    for ids, ours in zip(sequences, answers["sequences"]):
        yield from decoding(file, None, ids, ours)


def decoding(file, text, ids, ours):
    shown = ids if text is None else text
    expected = file.decode(ids)
    if expected is None:
        yield "no text", shown, ours["text"], None
        return
    plain, without = expected
    if ours["text"] != plain:
        yield "text", shown, ours["text"], plain
    if ours["without_special"] != without:
        yield "text without special tokens", shown, ours["without_special"], without
    if not ours["streams"]:
        yield "text token by token", shown, "another text", "the text at once"


# Metaspace with prepend_scheme "first" behind a normalizer that can remove how a text begins; an added token that normalizes to nothing.
REFUSED = ("no prepend_scheme \"first\" behind", "a text of which the normalizer leaves something")

OLDER = """
import json, sys
import sentencepiece
assert sentencepiece.__version__.startswith("0.1.")
model = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1])
json.dump([model.encode(text) for text in json.load(open(sys.argv[2]))["texts"]], sys.stdout)
"""


def older_ids(folder, strings):
    """What sentencepiece 0.1 makes of them, where Debian's python3-sentencepiece is installed: the version we use, which cuts
    some texts otherwise than 0.2 where a unigram model finds several ways equally likely or has symbols of its user's."""
    done = subprocess.run(["/usr/bin/python3", "-c", OLDER, folder / "tokenizer.model", folder / "questions.json"], capture_output=True)
    return dict(zip(strings, json.loads(done.stdout))) if done.returncode == 0 else None


def one_file(arguments, number, totals):
    rng = random.Random(f"tokenizer {arguments.seed} {number}")
    corpus = draw_corpus(rng)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        file = (ModelFile if number % 4 == 3 else JsonFile)(rng, folder, corpus)
        strings = file.strings(rng, arguments.strings)
        strings += [without_newest(text) for text in strings if newest(text)]
        low = 3 if isinstance(file, ModelFile) else 0  # sentencepiece: no control tokens
        top = file.n_ids() + (0 if low else 3)
        sequences = [[rng.randrange(low, min(300, top) if i % 3 == 0 else top) for _ in range(rng.randint(1, 20))]
                     for i in range(arguments.strings // 10)]
        if arguments.keep:
            shutil.copytree(folder, arguments.keep / str(number), dirs_exist_ok=True)
        (folder / "questions.json").write_text(json.dumps({"folder": str(folder), "texts": strings, "sequences": sequences}))
        subprocess.run([arguments.probes / "tokenizer_probe", folder / "questions.json", folder / "answers.json"], check=True)
        answers = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
        older = older_ids(folder, strings) if file.family == "sentencepiece unigram" else None
    name = f"file {number} ({file.family}, {json.dumps(file.stages)})"
    if any(reason in answers.get("refused", "") for reason in REFUSED):
        totals["refused"] += 1
        return
    if "refused" in answers:
        print(f"DIFFERENT {name}: refused: {answers['refused']}")
        totals["unexplained"] += 1
        return
    totals["files"] += 1
    totals["strings"] += len(strings)
    totals["sequences"] += len(sequences)
    shown = 0
    for what, of, ours, reference in differences(file, strings, sequences, answers):
        if what == "no text":
            totals["no text"] += 1
            continue
        if what == "ids" and older is not None and ours == older[of]:
            totals["older"] += 1
            continue
        new = newest(of) if isinstance(of, str) else []
        if new:
            totals["explained"] += 1
            totals["new points"] |= set(new)
            continue
        totals["unexplained"] += 1
        shown += 1
        if shown <= arguments.show:
            print(f"DIFFERENT {name}: {what} of {of!r}\n  ours      {ours!r}\n  reference {reference!r}")
    if shown > arguments.show:
        print(f"DIFFERENT {name}: {shown} in all")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probes", type=pathlib.Path, required=True, help="the folder of tokenizer_probe")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--n", type=int, default=50, help="tokenizer files")
    parser.add_argument("--strings", type=int, default=2000, help="of each file")
    parser.add_argument("--only", type=int, help="this file alone")
    parser.add_argument("--keep", type=pathlib.Path, help="leave the files in this folder")
    parser.add_argument("--show", type=int, default=3, help="differences shown of a file")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}, tokenizers {tokenizers.__version__}, sentencepiece {sentencepiece.__version__}, "
          f"Unicode {unicodedata.unidata_version} here")
    totals = collections.Counter()
    totals["new points"] = set()
    number = 0 if arguments.only is None else arguments.only
    while number == arguments.only or (arguments.only is None and number - totals["refused"] < arguments.n):
        one_file(arguments, number, totals)
        number += 1
    print(f"{totals['files']} files, {totals['strings']} strings, {totals['sequences']} sequences of ids, "
          f"{totals['explained']} differences in strings with code points newer than Unicode {unicodedata.unidata_version} "
          f"({len(totals['new points'])} of them), {totals['no text']} texts at which the reference fails, {totals['older']} "
          f"ids of unigram models that are those of sentencepiece 0.1, {totals['refused']} files refused as documented, {totals['unexplained']} unexplained differences")
    return 1 if totals["unexplained"] else 0


if __name__ == "__main__":
    sys.exit(main())
