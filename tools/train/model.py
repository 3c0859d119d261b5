"""The model, with exactly the meaning of Qwen3MoeForCausalLM, and its export to that class's files.

Training computes every expert for every token: with 16 small experts two large products beat gathering rows, and a
weight of zero removes the experts that were not chosen. The result is the same sum.
"""

import dataclasses
import json
import math
import pathlib

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Config:
    vocab: int = 2048
    d_model: int = 256
    layers: int = 5
    heads: int = 4
    kv_heads: int = 2
    d_head: int = 64
    experts: int = 16
    top_k: int = 4
    d_ff: int = 256
    context: int = 1024
    theta: float = 10000.0
    eps: float = 1e-6


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * h.to(x.dtype)


def rope_tables(c, length, device):
    inverse = 1.0 / c.theta ** (torch.arange(0, c.d_head, 2, device=device, dtype=torch.float32) / c.d_head)
    angle = torch.outer(torch.arange(length, device=device, dtype=torch.float32), inverse)
    angle = torch.cat((angle, angle), -1)
    return angle.cos(), angle.sin()


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.q = nn.Linear(c.d_model, c.heads * c.d_head, bias=False)
        self.k = nn.Linear(c.d_model, c.kv_heads * c.d_head, bias=False)
        self.v = nn.Linear(c.d_model, c.kv_heads * c.d_head, bias=False)
        self.o = nn.Linear(c.heads * c.d_head, c.d_model, bias=False)
        self.q_norm = RMSNorm(c.d_head, c.eps)
        self.k_norm = RMSNorm(c.d_head, c.eps)

    def forward(self, x, cos, sin):
        c = self.c
        b, t, _ = x.shape
        q = rope(self.q_norm(self.q(x).view(b, t, c.heads, c.d_head)).transpose(1, 2), cos, sin)
        k = rope(self.k_norm(self.k(x).view(b, t, c.kv_heads, c.d_head)).transpose(1, 2), cos, sin)
        v = self.v(x).view(b, t, c.kv_heads, c.d_head).transpose(1, 2)
        group = c.heads // c.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        y = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, t, -1))


class Experts(nn.Module):
    """Router and experts. Rows e*d_ff..(e+1)*d_ff of `gate` and `up`, and those columns of `down`, are expert e."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.router = nn.Linear(c.d_model, c.experts, bias=False)
        self.gate = nn.Linear(c.d_model, c.experts * c.d_ff, bias=False)
        self.up = nn.Linear(c.d_model, c.experts * c.d_ff, bias=False)
        self.down = nn.Linear(c.experts * c.d_ff, c.d_model, bias=False)

    def forward(self, x):
        c = self.c
        with torch.autocast(x.device.type, enabled=False):
            scores = F.linear(x.float(), self.router.weight).softmax(-1)
            best, chosen = scores.topk(c.top_k, -1)
            best = best / best.sum(-1, keepdim=True)
            weights = torch.zeros_like(scores).scatter(-1, chosen, best)
        h = F.silu(self.gate(x)) * self.up(x)
        h = h.unflatten(-1, (c.experts, c.d_ff)) * weights.to(h.dtype).unsqueeze(-1)
        return self.down(h.flatten(-2)), scores, weights


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(c.d_model, c.eps), RMSNorm(c.d_model, c.eps)
        self.attention, self.experts = Attention(c), Experts(c)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        y, scores, weights = self.experts(self.norm2(x))
        return x + y, scores, weights


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embedding = nn.Embedding(c.vocab, c.d_model)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.norm = RMSNorm(c.d_model, c.eps)
        self.head = nn.Linear(c.d_model, c.vocab, bias=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                last = name.endswith(("attention.o.weight", "experts.down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * c.layers) if last else 0.02)

    def forward(self, ids, routing=False):
        """(logits, balance loss), or with `routing` also the routing weights of every layer."""
        cos, sin = rope_tables(self.c, ids.shape[1], ids.device)
        x = self.embedding(ids)
        balance, kept = 0.0, []
        for layer in self.layers:
            x, scores, weights = layer(x, cos, sin)
            load = (weights > 0).float().mean((0, 1)) / self.c.top_k
            balance = balance + self.c.experts * (load * scores.mean((0, 1))).sum()
            if routing:
                kept.append(weights)
        logits = self.head(self.norm(x))
        return (logits, balance / self.c.layers, kept) if routing else (logits, balance / self.c.layers)


# ---------------------------------------------------------------- export


def hf_tensors(model):
    """(name, tensor) in the names of Qwen3MoeForCausalLM's checkpoint."""
    c = model.c
    yield "model.embed_tokens.weight", model.embedding.weight
    for i, layer in enumerate(model.layers):
        p, a, m = f"model.layers.{i}.", layer.attention, layer.experts
        yield p + "input_layernorm.weight", layer.norm1.weight
        for short in "qkvo":
            yield f"{p}self_attn.{short}_proj.weight", getattr(a, short).weight
        yield p + "self_attn.q_norm.weight", a.q_norm.weight
        yield p + "self_attn.k_norm.weight", a.k_norm.weight
        yield p + "post_attention_layernorm.weight", layer.norm2.weight
        yield p + "mlp.gate.weight", m.router.weight
        for e in range(c.experts):
            rows = slice(e * c.d_ff, (e + 1) * c.d_ff)
            yield f"{p}mlp.experts.{e}.gate_proj.weight", m.gate.weight[rows]
            yield f"{p}mlp.experts.{e}.up_proj.weight", m.up.weight[rows]
            yield f"{p}mlp.experts.{e}.down_proj.weight", m.down.weight[:, rows]
    yield "model.norm.weight", model.norm.weight
    yield "lm_head.weight", model.head.weight


def hf_config(c, dtype, end, stop):
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": stop,
        "pad_token_id": end,
        "decoder_sparse_step": 1,
        "head_dim": c.d_head,
        "hidden_act": "silu",
        "hidden_size": c.d_model,
        "initializer_range": 0.02,
        "intermediate_size": c.d_ff,
        "max_position_embeddings": c.context,
        "max_window_layers": c.layers,
        "mlp_only_layers": [],
        "moe_intermediate_size": c.d_ff,
        "norm_topk_prob": True,
        "num_attention_heads": c.heads,
        "num_experts": c.experts,
        "num_experts_per_tok": c.top_k,
        "num_hidden_layers": c.layers,
        "num_key_value_heads": c.kv_heads,
        "output_router_logits": False,
        "rms_norm_eps": c.eps,
        "rope_scaling": None,
        "rope_theta": c.theta,
        "router_aux_loss_coef": 0.001,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": dtype,
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": c.vocab,
    }


def write_safetensors(path, tensors):
    """The format by hand: a JSON header with shapes and offsets, then the bytes."""
    names = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
    header, at, blobs = {"__metadata__": {"format": "pt"}}, 0, []
    for name, t in tensors:
        blob = t.contiguous().view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": names[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs.append(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    temporary = path.with_suffix(".part")
    with open(temporary, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for blob in blobs:
            f.write(blob)
    temporary.replace(path)
    return at


def export(model, directory, tokenizer, dtype=torch.float16, shard_bytes=14 << 20):
    """Writes config.json and the shards with their index. The tokenizer's files are the caller's."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    shards, size = [[]], 0
    with torch.no_grad():
        for name, t in hf_tensors(model):
            t = t.detach().to("cpu", dtype)
            if not torch.isfinite(t).all():
                raise SystemExit(f"{name} has values that are not finite")
            if shards[-1] and size + t.numel() * t.element_size() > shard_bytes:
                shards.append([])
                size = 0
            shards[-1].append((name, t))
            size += t.numel() * t.element_size()
    files = {}
    total = 0
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        total += write_safetensors(directory / file, shard)
        files.update({name: file for name, _ in shard})
    (directory / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": files}, indent=1) + "\n"
    )
    ids = tokenizer.specials
    config = hf_config(model.c, str(dtype).removeprefix("torch."), ids["<|endoftext|>"], ids["<|im_end|>"])
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")
