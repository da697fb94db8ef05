#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs as people run them, for the mix of the GPU benchmarks: each knows nothing of rtxg.

    framework_load.py jax|train|fft|chat CONTROL OUT [--device cuda|cpu] [--most SECONDS]

jax: products of bf16 matrices in JAX. train: ResNet-50 in PyTorch, batch 64, a batch prepared on
the CPU between two steps. fft: two-dimensional FFTs in CuPy. chat: a small transformer in PyTorch
that decodes 8 tokens after a random pause of 20 to 120 ms, again and again.

The file CONTROL says what to do: `run`, `pause` or `quit`. A program that pauses keeps its context
and has no work. A line goes to OUT for each piece of work: "begin end what", CLOCK_MONOTONIC ns,
from the moment the work was there (a request came, the token before was out) to the moment the
result was on the CPU. `what` is REQUEST.TOKEN for the chat and 0.0 for the others. The first line,
"0 0 ready", says that the program is warm. After --most seconds (600) it ends by itself. On the CPU
all is small: to try the program out.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from control import Control


def products(cpu: bool) -> Callable[[], None]:
    """A chain of matrix products, waited for at its end."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    n, length = (64, 2) if cpu else (4096, 40)
    b = jax.random.normal(jax.random.PRNGKey(1), (n, n), jnp.bfloat16) / n**0.5

    @jax.jit
    def chain(a: jax.Array) -> jax.Array:
        for _ in range(length):
            a = a @ b
        return a

    state = [chain(b)]

    def once() -> None:
        state[0] = chain(state[0])
        state[0].block_until_ready()

    return once


def fft(cpu: bool) -> Callable[[], None]:
    """Two-dimensional FFTs, there and back, waited for at the end."""
    if cpu:
        import numpy as xp
    else:
        import cupy as xp
    n, length = (64, 2) if cpu else (4096, 20)
    a = (xp.arange(n * n, dtype=xp.float32) % 97).reshape(n, n).astype(xp.complex64)

    def once() -> None:
        x = a
        for _ in range(length):
            x = xp.fft.ifft2(xp.fft.fft2(x))
        if not cpu:
            xp.cuda.get_current_stream().synchronize()

    return once


def train(cpu: bool) -> tuple[Callable[[], None], Callable[[], None]]:
    """A step of training on the GPU; and the preparation of a batch on the CPU."""
    import numpy as np
    import torch
    from torch import nn

    device, batch, side = ("cpu", 2, 32) if cpu else ("cuda", 64, 224)
    torch.manual_seed(1)
    if cpu:
        model: nn.Module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(7200, 10))
    else:
        import torchvision

        model = torchvision.models.resnet50(weights=None)
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    pictures = np.random.default_rng(1).integers(0, 255, (4 * batch, side, side, 3), np.uint8)
    chosen = np.random.default_rng(2)
    labels = torch.randint(0, 10, (batch,), device=device)
    ready: list[torch.Tensor] = []

    def prepare() -> None:
        part = pictures[chosen.integers(0, len(pictures), batch)][:, :, ::-1]
        ready[:] = [torch.from_numpy(np.ascontiguousarray(part)).permute(0, 3, 1, 2)]

    def step() -> None:
        x = ready[0].to(device, non_blocking=True).float().div_(255)
        x = x.contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        loss.item()

    return step, prepare


class Chat:
    """Decodes a few tokens a request."""

    TOKENS = 8

    def __init__(self, cpu: bool) -> None:
        import torch
        from decoder import Decoder

        more = {"width": 64, "layers": 2} if cpu else {"width": 1024, "layers": 8}
        self.torch = torch
        device = "cpu" if cpu else "cuda"
        self.model = Decoder(slots=1, room=256, device=device, vocabulary=1024, **more)
        self.prompt = torch.arange(32, device=device)
        self.pause = random.Random(5)
        self.requests = 0

    def wait_s(self) -> float:
        """Until the next request comes."""
        return self.pause.uniform(0.020, 0.120)

    def request(self, say: Callable[[int, int, str], None]) -> None:
        """One request, token by token; the first token needs the prompt to be read."""
        self.requests += 1
        begin = time.monotonic_ns()
        self.model.prefill(self.prompt, 0)
        for token in range(self.TOKENS):
            if token:
                self.model.step()
            self.model.tokens.tolist()  # the token is on the CPU
            end = time.monotonic_ns()
            say(begin, end, f"{self.requests}.{token}")
            begin = end


def main() -> int:
    """Runs the load."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=("jax", "train", "fft", "chat"))
    parser.add_argument("control", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--most", type=float, default=600)
    args = parser.parse_args()
    control, cpu = Control(args.control, args.most), args.device == "cpu"
    with args.out.open("w", encoding="ascii", buffering=1) as out:

        def say(begin: int, end: int, what: str = "0.0") -> None:
            print(begin, end, what, file=out)

        if args.kind == "chat":
            chat = Chat(cpu)
            for _ in range(3):
                chat.request(lambda *_: None)
            say(0, 0, "ready")
            while control.may_run():
                time.sleep(chat.wait_s())
                chat.request(say)
            return 0
        if args.kind == "train":
            once, prepare = train(cpu)
        else:
            once, prepare = (products if args.kind == "jax" else fft)(cpu), lambda: None
        for _ in range(3):
            prepare()
            once()
        say(0, 0, "ready")
        while control.may_run():
            prepare()
            begin = time.monotonic_ns()
            once()
            say(begin, time.monotonic_ns())
    return 0


if __name__ == "__main__":
    sys.exit(main())
