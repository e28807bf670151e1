"""The Llama family in fifty lines, for training: RMSNorm, SwiGLU, rotary positions, grouped queries, tied embeddings.

Parameter names are those of the Hugging Face folder, so export is a copy. Weights are float32; the matrix products run in
bfloat16 under autocast.
"""
import dataclasses

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Shape:
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    head_dim: int = 64
    vocabulary: int = 4096
    context: int = 1024
    theta: float = 10000.0
    eps: float = 1e-5


SHAPES = {
    "target": Shape(512, 10, 8, 4, 1408),
    "draft": Shape(192, 3, 3, 1, 512),
    "target-small": Shape(384, 6, 6, 3, 1024),
    "draft-small": Shape(128, 3, 2, 1, 352),
}


class RMSNorm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x):
        h = x.float()
        return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight).to(x.dtype)


def rotate(x, cos, sin):  # x: [batch, heads, tokens, head_dim]; halves, as Hugging Face lays them out
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.q_proj = nn.Linear(s.hidden, s.heads * s.head_dim, bias=False)
        self.k_proj = nn.Linear(s.hidden, s.kv_heads * s.head_dim, bias=False)
        self.v_proj = nn.Linear(s.hidden, s.kv_heads * s.head_dim, bias=False)
        self.o_proj = nn.Linear(s.heads * s.head_dim, s.hidden, bias=False)

    def forward(self, x, cos, sin):
        b, n, _ = x.shape
        q, k, v = (p(x).view(b, n, -1, self.s.head_dim).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        g = self.s.heads // self.s.kv_heads
        if g > 1:
            k, v = k.repeat_interleave(g, dim=1), v.repeat_interleave(g, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, n, -1))


class Mlp(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(s.hidden, s.ffn, bias=False), nn.Linear(s.hidden, s.ffn, bias=False)
        self.down_proj = nn.Linear(s.ffn, s.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(s.hidden, s.eps), RMSNorm(s.hidden, s.eps)
        self.self_attn, self.mlp = Attention(s), Mlp(s)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.embed_tokens = nn.Embedding(s.vocabulary, s.hidden)
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.norm = RMSNorm(s.hidden, s.eps)
        frequency = s.theta ** (-torch.arange(0, s.head_dim, 2).float() / s.head_dim)
        angle = torch.outer(torch.arange(s.context).float(), frequency)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(p)  # each layer begins as the identity

    def hidden(self, ids):  # [batch, tokens] -> [batch, tokens, hidden], normed
        n = ids.shape[1]
        x = self.embed_tokens(ids).bfloat16()
        cos, sin = self.cos[:n].bfloat16(), self.sin[:n].bfloat16()
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)

    def logits(self, h):
        return F.linear(h, self.embed_tokens.weight)

    def forward(self, ids):
        return self.logits(self.hidden(ids))
