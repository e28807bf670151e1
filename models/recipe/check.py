#!/usr/bin/env python3
"""Checks an exported pair and measures how well the draft foresees the target, kind by kind.

  check.py --target FOLDER --draft FOLDER [--prompts 8] [--tokens 256] [--json FILE] [--show]

1. Both folders load with transformers, and its logits equal those of model.py in float32.
2. For held-out prompts of each kind the target writes up to --tokens ids, greedily and at temperature 0.8 with seeded noise.
   The draft sees the target's text and names its own choice at every position (same noise): acceptance is the share on which
   they agree. Rounds of K = 4 are then counted exactly: a round takes the agreeing run, at most K, plus one token of the target.
3. Texts of the kind json are parsed, if they ended by themselves.
"""
import argparse
import json
import pathlib

import decode
import generate
import safetensors.torch
import tokenizers
import torch
from model import Llama, Shape

HELD_OUT = 990_000


def ours(folder):
    c = json.loads((folder / "config.json").read_text())
    m = Llama(Shape(c["hidden_size"], c["num_hidden_layers"], c["num_attention_heads"], c["num_key_value_heads"], c["intermediate_size"]))
    state = {}
    for file in sorted(folder.glob("*.safetensors")):
        state.update({k.removeprefix("model."): v.float() for k, v in safetensors.torch.load_file(file).items()})
    m.load_state_dict(state)
    return m.eval()


@torch.inference_mode()
def compare(folder, ids):
    """Largest difference of logits between transformers and model.py, both in float32."""
    mine = ours(folder)
    x = mine.embed_tokens(ids)
    n = ids.shape[1]
    for layer in mine.layers:
        x = layer(x, mine.cos[:n], mine.sin[:n])
    return (mine.logits(mine.norm(x)) - decode.load(folder, torch.float32)(ids).logits).abs().max().item()


def prompts_of(tok, kind, n):
    """Documents of the kind cut after their first `assistant` header that asks for a long answer."""
    out, index = [], HELD_OUT
    while len(out) < n:
        _, messages = generate.document(5, index, kind)
        index += 1
        last = next(i for i, (role, _) in enumerate(messages) if role == "assistant")
        if kind == "qa" and not messages[last - 1][1].startswith("Answer"):
            continue
        text = generate.render(messages[:last]).removesuffix("<|endoftext|>") + "<|im_start|>assistant\n"
        out.append(tok.encode(text, add_special_tokens=False).ids)
    return out


@torch.inference_mode()
def agreement(draft, prompt, text, temperature, seed, row):
    logits = draft(torch.tensor([prompt + text])).logits[0, len(prompt) - 1:-1].float()
    g = None
    if temperature:
        g = torch.stack([decode.noise(seed, row, len(prompt) + t, logits.shape[-1]) for t in range(len(text))])
    return (decode.choose(logits, temperature, g) == torch.tensor(text)).tolist()


def rounds(agree, k):
    n = i = 0
    while i < len(agree):
        run = 0
        while run < k and i + run < len(agree) and agree[i + run]:
            run += 1
        i += run + 1
        n += 1
    return n


def measure(args):
    tok = tokenizers.Tokenizer.from_file(str(args.target / "tokenizer.json"))
    target, draft, out = decode.load(args.target, torch.float32), decode.load(args.draft, torch.float32), {}
    for kind in generate.KINDS:
        prompts = prompts_of(tok, kind, args.prompts)
        for temperature in (0.0, 0.8):
            texts = decode.generate(target, prompts, args.tokens, temperature, seed=11)
            agree = [agreement(draft, p, t, temperature, 11, i) for i, (p, t) in enumerate(zip(prompts, texts))]
            n_tokens, n_agree = sum(map(len, agree)), sum(map(sum, agree))
            row = {"tokens": n_tokens, "acceptance": round(n_agree / n_tokens, 4),
                   "tokens_per_round_k4": round(n_tokens / sum(rounds(a, 4) for a in agree), 3), "ended": sum(t[-1] == decode.END for t in texts)}
            plain = [tok.decode(t) for t in texts]
            if kind == "json":
                ended = [p for p, t in zip(plain, texts) if t[-1] == decode.END]
                row["valid_json"] = f"{sum(map(parses, ended))}/{len(ended)}"
            out[f"{kind} {'greedy' if temperature == 0 else 'T=' + str(temperature)}"] = row
            print(f"{kind:6} T={temperature} {row}", flush=True)
            if args.show:
                print(tok.decode(prompts[0], skip_special_tokens=False)[-300:] + plain[0] + "\n-----")
    return out


def parses(text):
    try:
        json.loads(text)
        return True
    except ValueError:
        return False


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--target", type=pathlib.Path, required=True)
    p.add_argument("--draft", type=pathlib.Path, required=True)
    p.add_argument("--prompts", type=int, default=8)
    p.add_argument("--tokens", type=int, default=256)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--json", type=pathlib.Path)
    p.add_argument("--show", action="store_true")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    result = {"logit_difference": {}}
    for folder in (args.target, args.draft):
        result["logit_difference"][folder.name] = d = compare(folder, torch.randint(3, 4096, (2, 200), generator=torch.Generator().manual_seed(1)))
        print(f"{folder}: largest difference of logits against transformers {d:.2e}")
        assert d < 1e-3, "model.py and transformers disagree"
    result["acceptance"] = measure(args)
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
