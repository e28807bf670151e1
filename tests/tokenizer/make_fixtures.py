#!/usr/bin/env python3
"""Writes tests/tokenizer/fixtures: small tokenizers in the style of each published family, and what the reference
implementation makes of some two thousand texts with them.

Needs the packages tokenizers (0.23), transformers (5), jinja2 and sentencepiece. The tests do not run this; they read
its results. Every text and every tokenizer follows from the seeds below.

  python3 tests/tokenizer/make_fixtures.py [--only tokenizers|templates|sentencepiece [--fixture NAME]]
"""

import argparse
import json
import os
import pathlib
import random
import unicodedata

FOLDER = pathlib.Path(__file__).resolve().parent / "fixtures"

# Blocks of letters, for words of scripts that need not be read here.
SCRIPTS = {
    "Latin": (0x61, 0x7A), "LatinExtended": (0xC0, 0x17F), "Vietnamese": (0x1EA0, 0x1EF9), "Greek": (0x391, 0x3C9),
    "GreekExtended": (0x1F00, 0x1FFC), "Cyrillic": (0x410, 0x44F), "CyrillicExtended": (0x460, 0x4FF),
    "Armenian": (0x531, 0x587), "Hebrew": (0x5D0, 0x5EA), "Arabic": (0x620, 0x64A), "ArabicMarks": (0x64B, 0x652),
    "Syriac": (0x710, 0x74A), "Thaana": (0x780, 0x7B1), "NKo": (0x7CA, 0x7F5), "Devanagari": (0x904, 0x94D),
    "Bengali": (0x985, 0x9CD), "Gurmukhi": (0xA05, 0xA4D), "Gujarati": (0xA85, 0xACD), "Oriya": (0xB05, 0xB4D),
    "Tamil": (0xB85, 0xBCD), "Telugu": (0xC05, 0xC4D), "Kannada": (0xC85, 0xCCD), "Malayalam": (0xD05, 0xD4D),
    "Sinhala": (0xD85, 0xDCA), "Thai": (0xE01, 0xE4E), "Lao": (0xE81, 0xECD), "Tibetan": (0xF40, 0xF84),
    "Myanmar": (0x1000, 0x1039), "Georgian": (0x10D0, 0x10FA), "HangulJamo": (0x1100, 0x1175),
    "Ethiopic": (0x1200, 0x1248), "Cherokee": (0x13A0, 0x13F4), "Canadian": (0x1401, 0x1676), "Ogham": (0x1681, 0x169A),
    "Runic": (0x16A0, 0x16EA), "Khmer": (0x1780, 0x17D2), "Mongolian": (0x1820, 0x1877), "Hiragana": (0x3041, 0x3096),
    "Katakana": (0x30A1, 0x30FA), "Bopomofo": (0x3105, 0x312D), "Han": (0x4E00, 0x9FA5), "Hangul": (0xAC00, 0xD7A3),
    "Yi": (0xA000, 0xA48C), "Gothic": (0x10330, 0x1034A), "Deseret": (0x10400, 0x1044F), "HanExtB": (0x20000, 0x2A6D6),
}

PHRASES = [
    "All human beings are born free and equal in dignity and rights.",
    "Tous les êtres humains naissent libres et égaux en dignité et en droits.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Straße, Größe, ẞ.",
    "Todos los seres humanos nacen libres e iguales en dignidad y derechos. ¿Verdad? ¡Sí!",
    "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "人人生而自由，在尊严和权利上一律平等。", "人人生而自由，在尊嚴和權利上一律平等。",
    "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق.", "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ", "Mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền.",
    "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. İIıi", "ყველა ადამიანი იბადება თავისუფალი და თანასწორი.",
    "Բոլոր մարդիկ ծնվում են ազատ ու հավասար։", "I'm sure they'll say we've won, don't you? It's HE'S you'd YOU'RE",
    "e\u0301le\u0300ve \u00e9l\u00e8ve A\u030angstro\u0308m \u212b \ufb01n \u1e9b\u0323 q\u0307\u0323 \uac00\u1100\u1161 \u0f71\u0f72\u0f74 \u0344 \u0958",
    "３．１４ ½ Ⅷ ²³ ٣٤٥ १२३ 1,234,567.89 0x1F 1e-9 ①②③ ㊷", "«quoted» “curly” ‘single’ „low“ —dash– …ellipsis… ¿? ¡! § ¶ † ‡ • ※",
    "$ € £ ¥ ₹ ₿ + − × ÷ = ≠ ≤ ≥ ∞ ∑ ∏ √ ∫ ∂ ∆ π ≈ ← → ↔ ⇒ ∀ ∃ ∈ ∅", "ｆｕｌｌ－ｗｉｄｔｈ ﾊﾝｶｸ ㌀ ㍿ ﷺ ﬀ ŉ ǆ Ǆ ǅ ſ K Å",
]

EMOJI = ["😀", "🎉", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷🇯🇵", "❤️", "❤", "☎️", "1️⃣", "🧑🏿‍🚀", "🤷🏻‍♀️", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "🫠", "✈︎", "👨‍💻"]

CODE = [
    "def f(x):\n    return x ** 2  # square\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n",
    "SELECT * FROM t WHERE name LIKE '%x_y%' AND id >= 10;", "<a href=\"https://example.org/?q=1&r=%20\">link</a>",
    "{\"key\": [1, 2.5, true, null], \"nested\": {\"a\": \"b\\n\"}}", "#include <vector>\nstd::vector<int> v{1,2,3};\r\n",
    "if [ -z \"$HOME\" ]; then\n  echo \"none\" >&2\nfi", "fn main() -> Result<(), Box<dyn Error>> { Ok(()) }",
    "\\frac{a}{b} \\sum_{i=0}^{n} x_i^2", "a+b==c&&d||!e?f:g;/*c*/", "snake_case camelCase PascalCase SCREAMING_CASE kebab-case",
    "0123456789 007 3.14159 12345678901234567890 192.168.0.1 2024-02-29T12:34:56Z", "$x->{y}[0] =~ s/a\\/b/c/g;",
    "    indented\n        twice\n\n\n\ttab\n", "@@@###$$$%%%^^^&&&***((()))", "user@example.com http://例え.jp/パス",
]

SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n ", "\u00a0", "\u2003", "\u3000", "\u200b", "\u2028", "\u2029",
          "\u0085", "\u180e", "\u1680", "\ufeff", "\u202f", "\u200d", "\x0b", "\x0c", "\x1c", "\u2060"]

CONTROLS = ["\x00", "\x01", "\x07", "\x1b[31m", "\x7f", "\x80", "\u009f", "\ufffd", "\ufffe", "\uffff", "\U0010ffff",
            "\u202e", "\ue000", "\u0378", "\x00\x00a\x00", "\U000e0001"]

ADDED = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|eot_id|>", "<s>", "</s>", "<unk>", "[LSTRIP]",
         "[RSTRIP]", "[BOTH]", "[WORD]", "[Norm]", "[norm]", "<tool_call>", "New York", "new york", "<0x41>", "<|im_", "<s", "[MASK]"]


def letters(block):
    return [chr(c) for c in range(block[0], block[1] + 1) if unicodedata.category(chr(c))[0] in "LM"]


def make_strings():
    rng = random.Random(20260101)
    alphabets = {name: letters(block) for name, block in SCRIPTS.items()}

    def word(name=None):
        alphabet = alphabets[name or rng.choice(list(alphabets))]
        return "".join(rng.choice(alphabet) for _ in range(rng.randint(1, 7)))

    strings = ["", " ", "a", "  ", "\n", "Hello", " Hello", "Hello ", "Hello world", "Hello  world", "hello\nworld"]
    strings += PHRASES + EMOJI + CODE + SPACES + CONTROLS + ADDED
    strings += [phrase.upper() for phrase in PHRASES] + [phrase[::-1] for phrase in PHRASES]
    for name in alphabets:  # every script, alone and within English
        for _ in range(6):
            strings.append(" ".join(word(name) for _ in range(rng.randint(1, 5))))
        strings.append("The word " + word(name) + ", said " + word(name) + "!")
        strings.append(word(name) + str(rng.randint(0, 99999)) + word(name))
    for added in ADDED:  # added tokens next to everything
        for left in ["", " ", "x", "  ", "\n", "é", "_", "1"]:
            for right in ["", " ", "x", "  \t", ".", "ß"]:
                if rng.random() < 0.45:
                    strings.append(left + added + right)
        strings.append(added + added)
        strings.append("a " + added + " " + rng.choice(ADDED) + rng.choice(ADDED) + " b")
    for run in ["a", " ", "\n", "^", "_", "=", "é", "漢", "😀", "0", "ab", "\t", "▁", "Ġ", "\u0301", "ﷺ", "!", "\r\n"]:
        for length in (2, 3, 7, 16, 33, 100):
            strings.append(run * length)
    strings += ["x" * 1100, "^" * 1300, " " * 1100 + "x", "漢字" * 200, "word " * 220, "\u0323\u0301" * 100]
    pieces = PHRASES + EMOJI + CODE + SPACES * 2 + CONTROLS + ADDED
    while len(strings) < 1750:  # mixtures
        parts = []
        for _ in range(rng.randint(2, 8)):
            kind = rng.random()
            if kind < 0.35:
                parts.append(word())
            elif kind < 0.5:
                parts.append(rng.choice(SPACES))
            elif kind < 0.6:
                parts.append(str(rng.randint(0, 10 ** rng.randint(1, 9))))
            else:
                piece = rng.choice(pieces)
                start = rng.randrange(len(piece))
                parts.append(piece[start:start + rng.randint(1, 12)])
        strings.append("".join(parts))
    while len(strings) < 2150:  # any assigned code point below U+30000, and some that are not
        points = []
        while len(points) < rng.randint(1, 12):
            c = rng.choice([rng.randrange(0x20, 0x300), rng.randrange(0x300, 0x3000), rng.randrange(0x3000, 0xFFFE),
                            rng.randrange(0x10000, 0x1F9FF)])
            if not 0xD800 <= c <= 0xDFFF and is_old(c):
                points.append(chr(c))
        strings.append("".join(points))
    seen = set()
    return [s for s in strings if not (s in seen or seen.add(s))]


# Tables of different Unicode versions disagree about newcomers; what was there in Unicode 9 is the same in all.
def is_old(code_point):
    return unicodedata.ucd_3_2_0.category(chr(code_point)) != "Cn"


def make_corpus():
    rng = random.Random(7)
    words = ("the a one small old river house garden stone light walks sees opens finds quietly under over behind near with "
             "and but then because morning evening winter city road letter number story children people water window table "
             "reading writing running thinking nothing everything sometimes always never quickly").split()
    corpus = []
    for _ in range(700):
        sentence = " ".join(rng.choice(words) for _ in range(rng.randint(3, 12)))
        corpus.append(sentence.capitalize() + rng.choice([".", "!", "?", ";", ", 12", " 2024", "..."]))
    return corpus + (PHRASES + CODE + EMOJI) * 6


def train(pre_tokenizer, normalizer=None, vocab_size=900, specials=(), alphabet=(), limit_alphabet=None, suffix=None,
          prefix=None):
    from tokenizers import Tokenizer, models, trainers

    affixes = {name: value for name, value in
               (("continuing_subword_prefix", prefix), ("end_of_word_suffix", suffix)) if value is not None}
    tokenizer = Tokenizer(models.BPE(**affixes))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    if limit_alphabet is not None:
        affixes["limit_alphabet"] = limit_alphabet
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=list(specials), show_progress=False,
                                  initial_alphabet=sorted(alphabet), max_token_length=24, **affixes)
    tokenizer.train_from_iterator(make_corpus(), trainer)
    return json.loads(tokenizer.to_str())


def added(identifier, content, special=True, **flags):
    token = {"id": identifier, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": not special, "special": special}
    token.update(flags)
    return token


def append_added(spec, *tokens):
    """Adds tokens behind the vocabulary; one that is in it keeps its id."""
    next_id = max(max(spec["model"]["vocab"].values()), max((t["id"] for t in spec["added_tokens"]), default=-1)) + 1
    for token in tokens:
        token["id"] = spec["model"]["vocab"].get(token["content"], next_id)
        next_id += token["id"] == next_id
        spec["added_tokens"].append(token)


def template(spec, before=(), after=()):
    ids = {t["content"]: t["id"] for t in spec["added_tokens"]}
    piece = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    sequence = lambda name, type_id: {"Sequence": {"id": name, "type_id": type_id}}
    single = [piece(b) for b in before] + [sequence("A", 0)] + [piece(a) for a in after]
    return {"type": "TemplateProcessing", "single": single, "pair": single + [sequence("B", 1)],
            "special_tokens": {n: {"id": n, "ids": [ids[n]], "tokens": [n]} for n in {*before, *after}}}


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
          r"|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = O200K.replace(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+".replace('\\"', '"')]
DEEPSEEK_LLM = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"\p{N}"]


def split_json(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
BYTE_TOKENS = [f"<0x{b:02X}>" for b in range(256)]


def byte_level_family(pre_steps, specials=("<|endoftext|>",), **kwargs):
    """A byte-level vocabulary trained behind the given splitting steps (as JSON)."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    holder = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
              "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_steps}, "post_processor": None, "decoder": None,
              "model": {"type": "BPE", "vocab": {}, "merges": []}}
    pre = Tokenizer.from_str(json.dumps(holder)).pre_tokenizer
    spec = train(pre, alphabet=pre_tokenizers.ByteLevel.alphabet(), specials=specials, **kwargs)
    spec["pre_tokenizer"] = holder["pre_tokenizer"] if len(pre_steps) > 1 else pre_steps[0]
    spec["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return spec


def fallback_family(normalizer, pre_tokenizer, limit_alphabet=70):
    """A character vocabulary with byte tokens behind it, in the manner of converted sentencepiece models."""
    from tokenizers import normalizers, pre_tokenizers

    spec = train(pre_tokenizers.Metaspace(prepend_scheme="always"), specials=["<unk>", "<s>", "</s>"] + BYTE_TOKENS,
                 limit_alphabet=limit_alphabet, vocab_size=1000)
    spec["added_tokens"] = [t for t in spec["added_tokens"] if t["content"] not in BYTE_TOKENS]
    spec["normalizer"], spec["pre_tokenizer"] = normalizer, pre_tokenizer
    spec["model"].update(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    return spec


def families():
    from tokenizers import pre_tokenizers, normalizers

    made = {}
    config = {}
    gpt2 = byte_level_family([dict(BYTE_LEVEL, use_regex=True)])
    gpt2["post_processor"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    gpt2["model"]["merges"] = [" ".join(m) for m in gpt2["model"]["merges"]]  # as older files spell them
    made["gpt2"] = gpt2
    config["gpt2"] = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}

    starcoder = byte_level_family([{"type": "Digits", "individual_digits": True},
                                   dict(BYTE_LEVEL, use_regex=True, add_prefix_space=True)])
    made["starcoder"] = starcoder

    llama3 = byte_level_family([split_json(LLAMA3), BYTE_LEVEL],
                               specials=("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"))
    llama3["model"]["ignore_merges"] = True
    # Entries no merge leads to, which only the whole-word rule can find.
    for entry in ["ĠHello", "Ġsurely", "字", "Ġdignity"]:
        llama3["model"]["vocab"].setdefault(entry, len(llama3["model"]["vocab"]))
    llama3["post_processor"] = {"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        template(llama3, ["<|begin_of_text|>"])]}
    made["llama3"] = llama3
    config["llama3"] = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}

    qwen2 = byte_level_family([split_json(QWEN2), BYTE_LEVEL], specials=())
    qwen2["normalizer"] = {"type": "NFC"}
    append_added(qwen2, added(0, "<|endoftext|>"), added(0, "<|im_start|>"), added(0, "<|im_end|>"),
                 added(0, "<tool_call>", special=False, normalized=False))
    made["qwen2"] = qwen2
    config["qwen2"] = {"bos_token": None, "eos_token": "<|im_end|>"}

    made["cl100k"] = byte_level_family([split_json(CL100K, "Removed", True), BYTE_LEVEL])
    made["o200k"] = byte_level_family([split_json(O200K, "Removed", True), BYTE_LEVEL])
    made["tekken"] = byte_level_family([split_json(TEKKEN), BYTE_LEVEL])
    made["deepseek"] = byte_level_family([split_json(p) for p in DEEPSEEK] + [BYTE_LEVEL])
    made["deepseek_llm"] = byte_level_family([split_json(p) for p in DEEPSEEK_LLM[:3]] + [
        {"type": "Digits", "individual_digits": True}, BYTE_LEVEL])
    append_added(made["deepseek_llm"], added(0, "é", special=False), added(0, "ß x", special=False, normalized=False))

    llama2 = fallback_family({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}, None)
    llama2["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    llama2["post_processor"] = template(llama2, ["<s>"])
    append_added(llama2, added(0, "New York", special=False), added(0, "[BOTH]", special=False, lstrip=True, rstrip=True))
    llama2["model"]["merges"] = [" ".join(m) for m in llama2["model"]["merges"]]
    made["llama2"] = llama2
    config["llama2"] = {"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": {"content": "</s>"}}

    mistral = fallback_family(None, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False})
    mistral["decoder"] = llama2["decoder"]
    mistral["post_processor"] = template(mistral, ["<s>"], ["</s>"])
    append_added(mistral, added(0, "[WORD]", special=False, single_word=True), added(0, "[LSTRIP]", lstrip=True),
                 added(0, "  \t", special=False))
    made["mistral"] = mistral
    config["mistral"] = {"bos_token": "<s>", "eos_token": "</s>"}

    gemma = fallback_family({"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
                            split_json(" ", "MergedWithPrevious", kind="String"))
    gemma["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]}
    gemma["model"]["fuse_unk"] = False
    append_added(gemma, added(0, "\n\n", special=False, normalized=False), added(0, "▁▁", special=False, normalized=False),
                 added(0, "[Norm]", special=False))
    made["gemma"] = gemma

    metaspace = train(pre_tokenizers.Metaspace(prepend_scheme="always"), specials=["<unk>"], limit_alphabet=90)
    metaspace["model"].update(unk_token="<unk>", fuse_unk=False)
    metaspace["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}  # old spelling
    metaspace["decoder"] = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
    made["metaspace_unk"] = metaspace

    fused = json.loads(json.dumps(metaspace))
    fused["model"]["fuse_unk"] = True
    fused["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True}
    fused["decoder"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True}
    append_added(fused, added(0, "[RSTRIP]", rstrip=True), added(0, "[BOTH]", lstrip=True, rstrip=True),
                 added(0, "  ", special=False, normalized=False))
    made["metaspace_fused"] = fused

    lower = train(pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation()]),
                  normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()]),
                  specials=["<unk>"], prefix="##", limit_alphabet=120)
    lower["model"]["unk_token"] = "<unk>"
    append_added(lower, added(0, "New York", special=False), added(0, "[WORD]", special=False, single_word=True),
                 added(0, "[LSTRIP]", special=False, lstrip=True, normalized=False), added(0, "[RSTRIP]", rstrip=True),
                 added(0, "[BOTH]", special=False, lstrip=True, rstrip=True), added(0, "[Norm]", special=False),
                 added(0, "[MASK]", normalized=True))
    lower["decoder"] = None
    made["lowercase_prefix"] = lower

    clip = train(pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(False)]),
                 normalizers.Sequence([normalizers.NFD(), normalizers.Replace("``", '"')]), specials=["<unk>"], suffix="</w>",
                 limit_alphabet=150)
    clip["model"]["unk_token"] = "<unk>"
    clip["model"]["fuse_unk"] = True
    clip["decoder"] = {"type": "BPEDecoder", "suffix": "</w>"}
    made["suffix"] = clip

    nfkd = byte_level_family([split_json(r"\s+", "MergedWithNext"), split_json("e", "Contiguous", kind="String"),
                              {"type": "Punctuation", "behavior": "MergedWithPrevious"}, BYTE_LEVEL])
    nfkd["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "NFKD"}, {"type": "Strip", "strip_left": False, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "_"}]}
    nfkd["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        {"type": "Replace", "pattern": {"String": "the"}, "content": "THE"}, {"type": "Strip", "content": "_", "start": 2, "stop": 0}]}
    append_added(nfkd, added(0, "é", special=False), added(0, "[Norm]", special=False))
    made["mixture"] = nfkd
    return made, config


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def make_tokenizers():
    from tokenizers import Tokenizer
    import tokenizers as package

    strings = make_strings()
    write_json(FOLDER / "strings.json", strings)
    made, config = families()
    for name, spec in made.items():
        folder = FOLDER / name
        write_json(folder / "tokenizer.json", spec)
        if name in config:
            write_json(folder / "tokenizer_config.json", config[name])
        tokenizer = Tokenizer.from_str((folder / "tokenizer.json").read_text(encoding="utf-8"))
        write_json(folder / "golden.json", golden(tokenizer, strings, package.__version__))
        print(f"{name}: {tokenizer.get_vocab_size()} tokens")


CODE_OF_ID = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def packed(ids):
    """Two characters for each id: these vocabularies are small, and the lists are long."""
    return "".join(CODE_OF_ID[i >> 6] + CODE_OF_ID[i & 63] for i in ids)


def golden(tokenizer, strings, version):
    """Ids of every text; ids with special tokens of every fifth; decoded text wherever it differs from the text."""
    ids, special, decoded, decoded_skip = [], {}, {}, {}
    for i, text in enumerate(strings):
        encoded = tokenizer.encode(text, add_special_tokens=False).ids
        ids.append(packed(encoded))
        if i % 5 == 0:
            special[i] = packed(tokenizer.encode(text, add_special_tokens=True).ids)
        plain = tokenizer.decode(encoded, skip_special_tokens=False)
        skip = tokenizer.decode(encoded, skip_special_tokens=True)
        if plain != text:
            decoded[i] = plain
        if skip != plain:
            decoded_skip[i] = skip
    rng = random.Random(99)
    size = tokenizer.get_vocab_size()
    sequences = []
    for i in range(160):  # arbitrary ids: broken characters, special tokens anywhere, ids of nothing
        # Low ids are bytes in the byte-level and fallback families: broken sequences come from there.
        top = 300 if i % 3 == 0 else size + 3
        sequence = [rng.randrange(min(top, size + 3, 4096)) for _ in range(rng.randint(1, 24))]
        sequences.append([packed(sequence), tokenizer.decode(sequence, skip_special_tokens=False),
                          tokenizer.decode(sequence, skip_special_tokens=True)])
    return {"made_with": "tokenizers " + version, "ids": ids, "ids_with_special": special, "decoded": decoded,
            "decoded_without_special": decoded_skip, "sequences": sequences}


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def make_demo():
    """The tokenizer of the demo pair, which is retrained now and then: its golden ids carry the file's hash."""
    from tokenizers import Tokenizer
    import tokenizers as package

    path = FOLDER.parents[2] / "models" / "demo-target" / "tokenizer.json"
    if not path.exists():
        print("demo: no such model yet")
        return
    tokenizer = Tokenizer.from_file(str(path))
    result = golden(tokenizer, make_strings(), package.__version__)
    result["file_hash"] = f"{fnv(path.read_bytes()):016x}"
    write_json(FOLDER / "demo_target_golden.json", result)


def make_sentencepiece(only_fixture=None):
    """Models for folders without a tokenizer.json; the reference is sentencepiece itself."""
    import sentencepiece

    strings = make_strings()
    corpus = FOLDER / "corpus.tmp"
    corpus.write_text("\n".join(line for text in make_corpus() for line in text.splitlines() if line), encoding="utf-8")
    # Lines with indentation: as in Mistral's and Llama's models, the first piece of several characters is then "▁▁".
    indented = FOLDER / "indented.tmp"
    indented.write_text("\n".join("    " * (1 + i % 3) + line for i, line in enumerate(corpus.read_text("utf-8").split("\n"))),
                        encoding="utf-8")
    kinds = {"sentencepiece_bpe": (corpus, dict(model_type="bpe", remove_extra_whitespaces=False)),
             "sentencepiece_unigram": (corpus, dict(model_type="unigram", remove_extra_whitespaces=True)),
             "sentencepiece_spaces": (indented, dict(model_type="bpe", remove_extra_whitespaces=False,
                                                     allow_whitespace_only_pieces=True)),
             "sentencepiece_no_prefix": (indented, dict(model_type="bpe", remove_extra_whitespaces=False,
                                                        add_dummy_prefix=False, allow_whitespace_only_pieces=True))}
    os.chdir(FOLDER)
    for name, (text_file, options) in kinds.items():
        if only_fixture not in (None, name):
            continue
        folder = FOLDER / name
        folder.mkdir(parents=True, exist_ok=True)
        sentencepiece.SentencePieceTrainer.train(
            # Relative: the trainer writes both paths into the model.
            input=text_file.name, model_prefix=f"{name}/tokenizer", vocab_size=640, byte_fallback=True,
            character_coverage=0.98, normalization_rule_name="identity", minloglevel=2, num_threads=1,
            user_defined_symbols=["<sep>"], **options)
        (folder / "tokenizer.vocab").unlink()
        write_json(folder / "tokenizer_config.json", {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True})
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
        cases = {}
        for i, text in enumerate(strings):
            # Control tokens in a text are ours to find; sentencepiece has no opinion on them.
            if i % 2 == 0 and not any(control in text for control in ("<s>", "</s>", "<unk>")):
                ids = model.encode(text)
                cases[i] = [packed(ids), model.decode(ids)]
        rng = random.Random(5)
        sequences = []
        for i in range(200):
            ids = [rng.randrange(3, 260 if i % 2 else model.get_piece_size()) for _ in range(rng.randint(1, 20))]
            sequences.append([packed(ids), model.decode(ids)])
        write_json(folder / "golden_sentencepiece.json",
                   {"made_with": "sentencepiece " + sentencepiece.__version__, "cases": cases, "sequences": sequences})
        print(f"{name}: {model.get_piece_size()} pieces, {len(cases)} texts")
    corpus.unlink()
    indented.unlink()


TEMPLATES = FOLDER.parent.parent / "chat_template"


def conversations():
    user = lambda text, **more: {"role": "user", "content": text, **more}
    assistant = lambda text, **more: {"role": "assistant", "content": text, **more}
    system = {"role": "system", "content": "You are terse. "}
    weather = {"type": "function", "function": {"name": "weather", "description": "The weather <now> & \"later\"",
               "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
    call = {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich", "days": 2}}}]}
    return [
        ([user("Hello")], {}),
        ([system, user("Hello"), assistant("Hi there. "), user("  And now?\n")], {}),
        ([user("one"), assistant("two"), user("three"), assistant("four"), user("five"), assistant("six"), user("seven")], {}),
        ([user("Grüße, 世界 👩‍👩‍👧‍👦 <|im_end|> {{ 7 * 7 }} {% raise %}")], {}),
        ([system, user("What is the weather?"), call, {"role": "tool", "content": "{\"celsius\": 21}"}], {"tools": [weather]}),
        ([user("q"), assistant("<think>\nlet me see\n</think>\n\nyes"), user("sure?")], {}),
        ([user("q"), assistant("yes", reasoning="because"), user("sure?"), assistant("quite", reasoning_content="it is")], {}),
        ([user("a"), user("b")], {}),
        ([assistant("first")], {"enable_thinking": False}),
        ([user([{"type": "text", "text": "look"}, {"type": "image", "image": "x"}, {"type": "other"}]), assistant("at what")], {}),
        ([user("named", name="Ada"), assistant(None)], {}),
        ([{"role": "narrator", "content": "Once"}], {}),
        ([], {}),
    ]


def make_templates():
    import jinja2
    import transformers
    from transformers.utils.chat_template_utils import render_jinja_template

    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    cases = []
    for path in sorted((TEMPLATES / "templates").glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        for messages, extra in conversations():
            for generation in (False, True):
                extra = {"date_string": "26 Jul 2024", **extra}
                # As text: the order of names is part of the input.
                case = {"template": path.stem, "messages": json.dumps(messages), "add_generation_prompt": generation,
                        "extra": json.dumps(extra)}
                try:
                    rendered, _ = render_jinja_template([messages], chat_template=source, add_generation_prompt=generation,
                                                        **tokens, **extra)
                    case["text"] = rendered[0]
                except jinja2.exceptions.TemplateError as error:
                    case["raises"] = str(error)
                except (TypeError, ValueError) as error:
                    case["raises"] = str(error)
                cases.append(case)
    write_json(TEMPLATES / "golden.json", {"made_with": f"transformers {transformers.__version__}, jinja2 {jinja2.__version__}",
                                           "tokens": tokens, "cases": cases})
    print(f"templates: {len(cases)} cases, {sum('raises' in c for c in cases)} raise")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["tokenizers", "templates", "sentencepiece", "demo"])
    parser.add_argument("--fixture", help="of --only sentencepiece: this folder alone")
    arguments = parser.parse_args()
    if arguments.only in (None, "tokenizers"):
        make_tokenizers()
    if arguments.only in (None, "demo"):
        make_demo()
    if arguments.only in (None, "sentencepiece"):
        make_sentencepiece(arguments.fixture)
    if arguments.only in (None, "templates"):
        make_templates()


if __name__ == "__main__":
    main()
