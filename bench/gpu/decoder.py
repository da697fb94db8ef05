# SPDX-License-Identifier: MIT
"""A decoding transformer with random weights, for loads that behave as language models do.

May not: know anything of rtxg. What it computes is meaningless and, with one seed on one card,
always the same. Its cache has a fixed size, so that a step can be replayed as a CUDA graph.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional


class Decoder:
    """Weights, and a cache of keys and values for `slots` sequences of at most `room` tokens."""

    def __init__(
        self,
        *,
        width: int,
        layers: int,
        slots: int,
        room: int,
        device: str = "cuda",
        vocabulary: int = 8192,
        seed: int = 1,
    ) -> None:
        self.heads, self.size = max(1, width // 64), 64
        self.width, self.slots, self.room, self.device = self.heads * 64, slots, room, device
        self.type = torch.bfloat16 if device == "cuda" else torch.float32
        torch.manual_seed(seed)

        def weight(rows: int, columns: int) -> Tensor:
            made = torch.randn(rows, columns, device=device, dtype=self.type)
            return made.mul_(1 / math.sqrt(columns))

        w = self.width
        self.embedding = torch.randn(vocabulary, w, device=device, dtype=self.type)
        self.places = torch.randn(room, w, device=device, dtype=self.type).mul_(0.1)
        self.layers = [
            (weight(3 * w, w), weight(w, w), weight(4 * w, w), weight(w, 4 * w))
            for _ in range(layers)
        ]
        shape = (layers, slots, self.heads, room, self.size)
        self.keys = torch.zeros(shape, device=device, dtype=self.type)
        self.values = torch.zeros(shape, device=device, dtype=self.type)
        self.all_slots = torch.arange(slots, device=device)
        self.all_places = torch.arange(room, device=device)
        # Of the next step: the last token of each sequence, and its place.
        self.tokens = torch.zeros(slots, dtype=torch.long, device=device)
        self.at = torch.zeros(slots, dtype=torch.long, device=device)

    def norm(self, x: Tensor) -> Tensor:
        """Of each token."""
        return functional.layer_norm(x, (self.width,))

    def after(self, x: Tensor, heads: Tensor, layer: tuple[Tensor, ...]) -> Tensor:
        """What comes after the attention in a layer."""
        _, out, up, down = layer
        x = x + functional.linear(heads, out)
        return x + functional.linear(functional.gelu(functional.linear(self.norm(x), up)), down)

    def logits(self, x: Tensor) -> Tensor:
        """Of the next token."""
        return functional.linear(self.norm(x), self.embedding)

    @torch.inference_mode()
    def prefill(self, prompt: Tensor, slot: int) -> None:
        """Reads a prompt (at most `room` tokens) into a slot, and finds the token after it."""
        length = prompt.shape[0]
        x = self.embedding[prompt] + self.places[:length]
        for i, layer in enumerate(self.layers):
            qkv = functional.linear(self.norm(x), layer[0])
            q, k, v = qkv.view(length, 3, self.heads, self.size).permute(1, 2, 0, 3)
            self.keys[i, slot, :, :length] = k
            self.values[i, slot, :, :length] = v
            a = functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)
            x = self.after(x, a[0].transpose(0, 1).reshape(length, self.width), layer)
        self.tokens[slot] = self.logits(x[-1]).argmax()
        self.at[slot] = length

    @torch.inference_mode()
    def step(self) -> None:
        """One token more for every slot, also for those that hold nothing of interest."""
        x = self.embedding[self.tokens] + self.places[self.at]
        seen = (self.all_places[None] <= self.at[:, None])[:, None, None]
        for i, layer in enumerate(self.layers):
            qkv = functional.linear(self.norm(x), layer[0])
            q, k, v = qkv.view(self.slots, 3, self.heads, self.size).unbind(1)
            self.keys[i, self.all_slots, :, self.at] = k
            self.values[i, self.all_slots, :, self.at] = v
            a = functional.scaled_dot_product_attention(
                q[:, :, None], self.keys[i], self.values[i], attn_mask=seen
            )
            x = self.after(x, a.reshape(self.slots, self.width), layer)
        self.tokens.copy_(self.logits(x).argmax(-1))
        self.at.add_(1).clamp_(max=self.room - 1)

    def captured(self) -> torch.cuda.CUDAGraph | None:
        """The step as a CUDA graph; None where that does not work."""
        if self.device != "cuda":
            return None
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    self.step()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.step()
            return graph
        except RuntimeError as e:
            print(f"decoder: no CUDA graph: {e}", flush=True)
            return None
