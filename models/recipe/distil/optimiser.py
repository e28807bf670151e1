"""Loss and optimiser of a draft: Muon for the matrices of the layers, Adam for embedding, head and norms.

Loss of a position of an answer: cross-entropy against the target's likeliest ids and the rest as one more outcome, or, where
none were collected, against the token that it wrote.
"""
import torch

from muon import orthogonalise

LR, ADAM_LR, WEIGHT_DECAY = 0.02, 0.003, 0.01


def loss_of(logits, labels, top_rows, top_logprobs):
    """Sum over positions, in nats. logits: [n, rows]."""
    log_q = logits.float()
    log_q = log_q - torch.logsumexp(log_q, -1, keepdim=True)
    if top_rows.shape[1] == 0:
        return -log_q.gather(1, labels.clamp(min=0)[:, None])[labels >= 0].sum()
    has_row = top_rows >= 0
    p = top_logprobs.exp()
    rest = (1 - p.sum(-1)).clamp(min=0)
    log_top = log_q.gather(1, top_rows.clamp(min=0))
    q_rest = (1 - (log_top.exp() * has_row).sum(-1)).clamp(min=1e-4)
    return -(p * has_row * log_top).sum() - (rest * q_rest.log()).sum()


def dense_parameters(model):
    return [(name, p) for name, p in model.named_parameters() if name != "embed_tokens.weight"]


class Optimiser:
    def __init__(self, model):
        self.model, self.state = model, {}

    def moments(self, name, p):
        return self.state.setdefault(name, {"m": torch.zeros_like(p), "v": torch.zeros_like(p)})

    @torch.no_grad()
    def dense(self, grads, scale, t, factor):
        for name, p in dense_parameters(self.model):
            g = sum(worker[name] for worker in grads) * scale
            kept = self.moments(name, p)
            if p.dim() == 2 and name != "lm_head.weight":
                kept["m"].lerp_(g, 0.05)
                lr = LR * factor * max(1.0, p.shape[0] / p.shape[1]) ** 0.5
                p.mul_(1 - lr * WEIGHT_DECAY).add_(orthogonalise(g.lerp(kept["m"], 0.95)), alpha=-lr)
            else:
                self.adam(p, g, kept, t, factor)
            for worker in grads:
                worker[name].zero_()

    @torch.no_grad()
    def rows(self, rows, g, t, factor):
        p = self.model.embed_tokens.weight
        kept = self.moments("embed_tokens.weight", p)
        some = {name: kept[name][rows] for name in kept}
        values = p[rows]
        self.adam(values, g, some, t, factor)
        for name in kept:
            kept[name][rows] = some[name]
        p[rows] = values

    def adam(self, p, g, kept, t, factor):
        kept["m"].lerp_(g, 0.1)
        kept["v"].lerp_(g * g, 0.05)
        p.addcdiv_(kept["m"] / (1 - 0.9**t), (kept["v"] / (1 - 0.95**t)).sqrt() + 1e-8, value=-ADAM_LR * factor)
