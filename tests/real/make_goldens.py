#!/usr/bin/env python3
"""Writes tests/real/golden/: what Transformers and tokenizers say about the folder that smollm2.py makes.

usage: make_goldens.py FOLDER [GGUF]     from the repository root

Needs `pip install torch transformers tokenizers`, and gguf for the second argument: the GGUF file itself, which Transformers then
reads with its own loader; its weights must be those of the folder, bit for bit. The tests only read what this wrote.

generation.json   greedy continuations in float32: ids, log-probabilities, the gap between the two likeliest at each position, and
                  bf16_error: how far the log-probabilities of the same ids move in the reference itself when it computes in
                  bfloat16, the largest of all positions
tokenizer.json    texts, their ids, and the text of the ids with and without special tokens
template.json     conversations, their text by the chat template, and its ids
"""
import json
import pathlib
import random
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = pathlib.Path(__file__).resolve().parent
N_TOKENS = 32
SEED = 20261122

CHATS = [
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "Explain in one sentence what a prime number is.",
    "List three fruits, one per line.",
    "Translate to Spanish: Good morning, my friend.",
    "Write a Python function that returns the sum of a list.",
    "Why is the sky blue?",
    "Give me a recipe for pancakes.",
    "What is 12 + 30?",
    "Summarise: The meeting was moved from Monday to Thursday because the room was not free.",
    "Who wrote Romeo and Juliet?",
    "Name the planets of the solar system.",
    "Tell me a joke about computers.",
    "How do I boil an egg?",
    "Correct the spelling: I recieve teh mesage.",
    "Was ist die Hauptstadt von Österreich?",
    "日本の首都はどこですか？",
    "Write a haiku about autumn 🍂.",
]
PLAIN = [
    "Once upon a time, there was a little girl who",
    "The quick brown fox",
    "def fibonacci(n):\n    ",
    "In 1969, the first",
    "The three laws of motion are:\n1.",
    "import json\n\nwith open('data.json') as f:\n",
    "Q: What is the largest ocean?\nA:",
    "<html>\n<head>\n<title>",
    "SELECT name, age FROM users WHERE",
    "Water boils at a temperature of",
    "| Name | Age |\n|---|---|\n| Ann |",
    "To be, or not to be,",
]

TEXTS = [
    "", " ", "  ", "\n", "\n\n\n", "\t", " \t \n ", "a", " a", "a ", "Hello, world!", "Hello  world", "HELLO world's",
    "I'm you're he'll we've they'd it's don't", "I’m it’s", "1", "12", "1234567890", "3.14159", "1,000,000", "2024-02-29", "v1.2.3-rc4",
    "٣٤٥", "१२३", "１２３", "Ⅷ ½ ² ①", "naïve café", "nai\u0308ve cafe\u0301", "Ünïcödé", "ß ẞ ŉ ﬁ", "Привет, мир!", "Γειά σου Κόσμε",
    "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก", "你好，世界！", "こんにちは世界", "안녕하세요 세계", "漢字とカナ", "👋🌍", "👩‍👩‍👧‍👦 👍🏽 🇫🇷",
    "a\u200bb", "a\u00a0b", "\ufeffbom", "a\u0000b", "\u0001\u0002\u007f", "\u2028\u2029", "a\rb", "a\r\nb", "x\u0301\u0302\u0303",
    "def f(x):\n    return x + 1\n", "\tif (a && b) {\n\t\treturn;\n\t}\n", "for i in range(10): print(i**2)", "{\"key\": [1, 2.5, null]}",
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>user\nHi<|im_end|>\n", "a<|im_end|>b", " <|im_end|> ", "<|im_end|><|im_end|>",
    "<|im_end", "im_end|>", "<|unknown|>", "<repo_name>x<file_sep>y", "<jupyter_start>", "<reponame>", "<issue_closed>",
    "https://example.org/a?b=c&d=%20#e", "user@example.org", "C:\\path\\file.txt", "/usr/bin/env", "$100 €50 £20 ¥10",
    "a" * 100, " " * 50, "\n" * 20, "ab" * 64, "!" * 33, "0" * 17, "----====____", "...", "…", "«quoted» “text” ‘here’", "e=mc²",
    "The quick brown fox jumps over the lazy dog.", "Lorem ipsum dolor sit amet, consectetur adipiscing elit.",
    "antidisestablishmentarianism", "Donaudampfschifffahrtsgesellschaft", "supercalifragilisticexpialidocious", "xqzjvkw",
    "word\n\nword \n word", "end with space ", "end with newline\n", " leading", "\nleading", "a  b   c    d", "tab\tseparated\tvalues",
    "𝕳𝖊𝖑𝖑𝖔", "𐍈𐌰𐌹", "\U0010ffff", "\ue000", "ﷺ", "क्षि", "ก็", "각", "\u1100\u1161\u11a8",
]

CONVERSATIONS = [
    ([{"role": "user", "content": "Hello"}], True),
    ([{"role": "user", "content": "Hello"}], False),
    ([{"role": "system", "content": "You are a pirate."}, {"role": "user", "content": "Hello"}], True),
    ([{"role": "system", "content": ""}, {"role": "user", "content": ""}], True),
    ([{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}], True),
    ([{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}], False),
    ([{"role": "user", "content": "a\n\nb\t<b> & \"quotes\" 'single' \\ {{ x }} {% y %}"}], True),
    ([{"role": "user", "content": "  spaces around  \n"}], True),
    ([{"role": "user", "content": "你好 👋🏽 é e\u0301"}], True),
    ([{"role": "user", "content": "ends <|im_end|> early <|im_start|>system\nx"}], True),
    ([{"role": "assistant", "content": "first"}, {"role": "user", "content": "second"}], True),
    ([{"role": "system", "content": "s"}, {"role": "system", "content": "t"}, {"role": "user", "content": "u"}], True),
    ([{"role": "user", "content": "long " * 300}], True),
    ([{"role": "user" if i % 2 == 0 else "assistant", "content": f"turn {i}"} for i in range(21)], True),
]


def random_texts(count):
    """Strings of every script and length, the same every time."""
    chance = random.Random(SEED)
    ranges = [(0x20, 0x7e), (0x20, 0x7e), (0x20, 0x7e), (0xa0, 0x24f), (0x370, 0x5ff), (0x600, 0x6ff), (0x900, 0xdff), (0xe00, 0xfff),
              (0x2000, 0x2bff), (0x3040, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0x1f300, 0x1faff), (0x9, 0xd), (0x30, 0x39)]
    for _ in range(count):
        text = ""
        while len(text) < chance.choice((3, 12, 40)):
            low, high = chance.choice(ranges)
            text += "".join(chr(chance.randint(low, high)) for _ in range(chance.randint(1, 5)))
        yield text


def write(name, rows, **more):
    """One row a line, so that a difference can be read."""
    head = json.dumps(more, ensure_ascii=False)[1:-1]
    lines = ",\n".join(json.dumps(row, ensure_ascii=True, separators=(",", ":")) for row in rows)
    (HERE / "golden").mkdir(exist_ok=True)
    (HERE / "golden" / name).write_text("{" + (head + ", " if head else "") + f'"rows": [\n{lines}\n]}}\n', encoding="utf-8")


def compare_with_gguf(model, path):
    path = pathlib.Path(path).resolve()
    theirs = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).state_dict()
    ours = model.state_dict()
    assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
    different = [name for name in ours if not torch.equal(ours[name], theirs[name])]
    assert not different, different
    print(f"{len(ours)} tensors equal those that Transformers reads from {path.name}")


@torch.no_grad()
def greedy(model, prompt):
    """The likeliest id again and again: ids, their log-probabilities, the gaps to the next likeliest."""
    ids, logprobs, gaps, cache, fresh = [], [], [], None, prompt
    for _ in range(N_TOKENS):
        out = model(torch.tensor([fresh]), past_key_values=cache, use_cache=True)
        row, cache = torch.log_softmax(out.logits[0, -1].double(), dim=-1), out.past_key_values
        best = torch.topk(row, 2)
        ids.append(int(best.indices[0]))
        logprobs.append(round(float(best.values[0]), 7))
        gaps.append(round(float(best.values[0] - best.values[1]), 7))
        if ids[-1] == model.config.eos_token_id:
            break
        fresh = ids[-1:]
    return ids, logprobs, gaps


@torch.no_grad()
def logprobs_of(model, prompt, ids):
    rows = torch.log_softmax(model(torch.tensor([prompt + ids])).logits[0].double(), dim=-1)
    return [float(rows[len(prompt) - 1 + i, token]) for i, token in enumerate(ids)]


def main():
    torch.set_num_threads(1)
    folder = sys.argv[1]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = []
    for text in TEXTS + list(random_texts(200)):
        ids = tokenizer.encode(text, add_special_tokens=False)
        rows.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                     "without_special": tokenizer.decode(ids, skip_special_tokens=True)})
    # Ids in any order: pieces of characters that do not fit together.
    chance = random.Random(SEED + 1)
    for _ in range(60):
        ids = [chance.randrange(len(tokenizer)) for _ in range(chance.randint(1, 24))]
        rows.append({"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                     "without_special": tokenizer.decode(ids, skip_special_tokens=True)})
    write("tokenizer.json", rows)
    rows = []
    for messages, opens in CONVERSATIONS:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=opens)
        rows.append({"messages": messages, "add_generation_prompt": opens, "text": text,
                     "ids": tokenizer.encode(text, add_special_tokens=False)})
    write("template.json", rows)

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    if len(sys.argv) > 2:
        compare_with_gguf(model, sys.argv[2])
    rows = []
    for text in CHATS + PLAIN:
        if text in CHATS:
            request = {"messages": [{"role": "user", "content": text}]}
            prompt = tokenizer.encode(tokenizer.apply_chat_template(request["messages"], tokenize=False, add_generation_prompt=True),
                                      add_special_tokens=False)
        else:
            request, prompt = {"prompt": text}, tokenizer.encode(text, add_special_tokens=False)
        ids, logprobs, gaps = greedy(model, prompt)
        rows.append({**request, "n_prompt": len(prompt), "ids": ids, "logprobs": logprobs, "gaps": gaps, "prompt_ids": prompt})
        print(len(rows), min(gaps), tokenizer.decode(ids), flush=True)
    half = model.to(torch.bfloat16)
    error = max(abs(a - b) for row in rows
                for a, b in zip(row["logprobs"], logprobs_of(half, row["prompt_ids"], row["ids"])))
    for row in rows:
        del row["prompt_ids"]
    write("generation.json", rows, bf16_error=round(error, 6))
    print(f"bf16_error {error}, smallest gap {min(min(row['gaps']) for row in rows)}")


if __name__ == "__main__":
    main()
