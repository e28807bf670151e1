"""The draft: the Llama of model.py with a head of its own, its first weights from the target, and its checkpoint.

checkpoint.pt has everything of the last step that was saved: weights, moments of the optimiser, and the state (step, tokens, seconds, loss).
"""
import os

import torch

from distil.target import first_embeddings
from model import Llama, Shape

EMBEDDING_SIZE, HEAD_SIZE = 0.3, 0.06  # root mean squares at the beginning


def shape_of(plan, target):
    hidden, layers = (int(word) for word in plan["shape"].split("x"))
    head_dim = 64 if hidden % 64 == 0 else 32
    heads = hidden // head_dim
    ffn = -(-hidden * 8 // 3 // 32) * 32
    return Shape(hidden, layers, heads, 1 if heads % 2 else heads // 2, ffn, head_dim, target["vocab_size"], plan["context"])


class Draft(Llama):
    """Llama with a head of its own, for some ids."""

    def __init__(self, shape, n_rows):
        super().__init__(shape)
        self.lm_head = torch.nn.Linear(shape.hidden, n_rows, bias=False)

    def after(self, x):  # embedded rows -> hidden states
        n = x.shape[1]
        cos, sin = self.cos[:n].bfloat16(), self.sin[:n].bfloat16()
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


def first_weights(model, target_folder, head_ids):
    found = first_embeddings(target_folder, model.s.hidden)
    with torch.no_grad():
        model.lm_head.weight.normal_(std=HEAD_SIZE)
        model.embed_tokens.weight.normal_(std=EMBEDDING_SIZE)
        if found is not None:
            model.embed_tokens.weight.copy_(torch.from_numpy(found[0]) * EMBEDDING_SIZE)
            model.lm_head.weight.copy_(torch.from_numpy(found[1][head_ids]) * HEAD_SIZE)
    return found is not None


def save_checkpoint(path, model, optimiser, state):
    beside = path.with_name(path.name + ".tmp")
    torch.save({"model": model.state_dict(), "optimiser": optimiser.state, "state": state}, beside)
    os.replace(beside, path)


def load_checkpoint(path, model, optimiser):
    if not path.exists():
        return {"step": 0, "tokens": 0, "seconds": 0.0}
    kept = torch.load(path, weights_only=True)
    model.load_state_dict(kept["model"])
    optimiser.state = kept["optimiser"]
    return kept["state"]
