#!/usr/bin/env python3
"""Trains the tokenizer of the demo pair: byte-level BPE with 4096 entries, from the generator's own text.

The split pattern is the one of Llama 3; the text also contains the numbers 0 to 999 and the words of LEXICON, so that the
table serves typed prompts better than the generator's small vocabulary would. Target and draft share the result.

  train_tokenizer.py OUT_FOLDER        writes tokenizer.json, tokenizer_config.json, special_tokens_map.json
"""
import json
import pathlib
import sys

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, processors, trainers

import generate

VOCABULARY = 4096
SEED, DOCUMENTS = 7, 12000
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")  # ids 0, 1, 2
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def corpus():
    for index in range(DOCUMENTS):
        _, messages = generate.document(SEED, index)
        for _, text in messages:
            yield text
    lexicon = (pathlib.Path(__file__).parent / "lexicon.txt").read_text().split()
    for word in lexicon:
        for form in (" " + word, " " + word.capitalize(), word):
            yield (form + "\n") * (30 if form[0] == " " and form[1:].islower() else 6)
    for number in range(1000):
        yield (str(number) + "\n") * 3
    for role in ("system", "user", "assistant"):
        yield (role + "\n") * 1000


def train(out):
    tok = tokenizers.Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False)])
    tok.decoder = decoders.ByteLevel(add_prefix_space=True, trim_offsets=True, use_regex=True)
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, min_frequency=2, special_tokens=list(SPECIAL),
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tok.train_from_iterator(corpus(), trainer)
    assert tok.get_vocab_size() == VOCABULARY, tok.get_vocab_size()
    assert [tok.token_to_id(s) for s in SPECIAL] == [0, 1, 2]
    out.mkdir(parents=True, exist_ok=True)
    tok.save(str(out / "tokenizer.json"))
    config = {"add_bos_token": False, "add_eos_token": False, "added_tokens_decoder": {
                  str(i): {"content": s, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True} for i, s in enumerate(SPECIAL)},
              "bos_token": None, "chat_template": TEMPLATE, "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>", "model_max_length": 1024,
              "pad_token": "<|endoftext|>", "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": None}
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    train(pathlib.Path(sys.argv[1]))
