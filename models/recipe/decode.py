"""Plain and seeded decoding of exported folders by Hugging Face transformers, batched: for sample.py and check.py."""
import os

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from transformers import AutoModelForCausalLM

END_OF_TEXT, START, END = 0, 1, 2


def load(folder, dtype=torch.bfloat16):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def noise(seed, row, position, n):
    """Gumbel noise of one position: the same for target and draft, as in coupled acceptance.

    The position is the highest word of the counter: in the lowest, neighbours would draw the same numbers, shifted by four.
    """
    rng = np.random.Generator(np.random.Philox(key=(seed << 32) + row, counter=[0, 0, 0, position]))
    return torch.from_numpy(rng.gumbel(size=n).astype(np.float32))


def choose(logits, temperature, gumbel):
    return logits.argmax(-1) if temperature == 0 else (logits / temperature + gumbel).argmax(-1)


@torch.inference_mode()
def generate(model, prompts, n_new, temperature=0.0, seed=1, stop=True):
    """prompts: lists of ids. Returns the continuation of each, through its <|im_end|> if stop, with at most n_new ids."""
    n = max(map(len, prompts))
    ids = torch.tensor([[END_OF_TEXT] * (n - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (n - len(p)) + [1] * len(p) for p in prompts])
    past, out, alive = None, [[] for _ in prompts], [True] * len(prompts)
    for t in range(n_new):
        positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1]:]
        r = model(input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=past, use_cache=True, logits_to_keep=1)
        past, logits = r.past_key_values, r.logits[:, -1].float()
        g = torch.stack([noise(seed, i, len(prompts[i]) + t, logits.shape[-1]) for i in range(len(prompts))]) if temperature else None
        ids = choose(logits, temperature, g)[:, None]
        for i, token in enumerate(ids[:, 0].tolist()):
            if alive[i]:
                out[i].append(token)
                alive[i] = not (stop and token in (END, END_OF_TEXT))
        if not any(alive):
            break
        mask = torch.cat((mask, torch.ones(len(prompts), 1, dtype=mask.dtype)), dim=1)
    return out
