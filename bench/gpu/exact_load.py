#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs whose results are compared bit by bit: run alone, and stopped again and again.

    exact_load.py cublas|fft|train|decode CONTROL OUT [--device cuda|cpu] [--most SECONDS]

Each begins from fixed seeds and computes rounds, each from the result of the one before, so that
one wrong bit anywhere changes all that follows. The file CONTROL gives orders: `N for SECONDS` does
rounds from the beginning until the time is over, `N rounds COUNT` does so many of them from the
beginning, `quit` ends the program. N is the order's number. For each order done a line goes to OUT:
"N COUNT SHA256 begin end", the times in CLOCK_MONOTONIC ns. The first line is "0 0 ready 0 0".
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn

from control import Control
from decoder import Decoder

#: what a round is: it computes, and returns the bytes of its result
Round = Callable[[], bytes]


def raw(t: torch.Tensor) -> bytes:
    """The bits of a result."""
    return t.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()


def cublas(device: str) -> Round:
    """A chain of matrix products in three precisions."""
    n = 64 if device == "cpu" else 2048
    types = (torch.float32, torch.bfloat16, torch.float64)
    b = {t: (torch.randn(n, n, dtype=torch.float64) / n**0.5).to(device, t) for t in types}
    a = dict(b)

    def once() -> bytes:
        for t in types:
            for _ in range(4):
                a[t] = a[t] @ b[t]
            # it neither vanishes nor overflows, whatever the number of rounds
            a[t] = a[t] / a[t].abs().amax().clamp_min(1e-30)
        return b"".join(raw(a[t][:8, :64]) for t in types) + raw(a[torch.float32].sum(0))

    return once


def fft(device: str) -> Round:
    """FFTs there and back, with a shift in between."""
    n = 64 if device == "cpu" else 2048
    state = [torch.randn(n, n, dtype=torch.complex64).to(device)]

    def once() -> bytes:
        x = torch.fft.fft2(state[0])
        x = torch.roll(x, 1, 0)
        x = torch.fft.ifft2(x)
        state[0] = x / x.abs().amax()
        return raw(torch.view_as_real(state[0][::64]))

    return once


def train(device: str) -> Round:
    """Steps of training of a small convolutional network."""
    side, batch = (16, 4) if device == "cpu" else (64, 64)
    width = 8 if device == "cpu" else 64
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, stride=2, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 100),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    x = torch.randn(batch, 3, side, side).to(device)
    y = torch.randint(0, 100, (batch,)).to(device)

    def once() -> bytes:
        for _ in range(2):
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        return raw(loss) + raw(next(model.parameters()))

    return once


def decode(device: str) -> Round:
    """Tokens of a transformer, four sequences at a time."""
    more = {"width": 64, "layers": 2} if device == "cpu" else {"width": 1024, "layers": 8}
    model = Decoder(slots=4, room=512, device=device, vocabulary=1024, **more)
    for slot in range(4):
        model.prefill(torch.arange(16 + slot, device=device), slot)

    def once() -> bytes:
        if int(model.at[0]) >= model.room - 20:
            for slot in range(4):
                model.prefill(
                    torch.arange(16 + slot, device=device) + int(model.tokens[slot]) % 7, slot
                )
        said = []
        for _ in range(8):
            model.step()
            said.append(model.tokens.clone())
        return raw(torch.stack(said))

    return once


def obey(order: str, begin_anew: Callable[[], Round]) -> str:
    """Does what an order says; the line about it."""
    number, what, value = order.split()
    torch.manual_seed(7)
    once, digest, count = begin_anew(), hashlib.sha256(), 0
    begin = time.monotonic_ns()
    while (
        count < int(value)
        if what == "rounds"
        else time.monotonic_ns() < begin + float(value) * 1e9 or not count
    ):
        digest.update(once())
        count += 1
    return f"{number} {count} {digest.hexdigest()} {begin} {time.monotonic_ns()}"


def main() -> int:
    """Runs the load."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = {"cublas": cublas, "fft": fft, "train": train, "decode": decode}
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("control", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--most", type=float, default=600)
    args = parser.parse_args()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    control = Control(args.control, args.most)
    with args.out.open("w", encoding="ascii", buffering=1) as out:
        obey("0 rounds 2", lambda: kinds[args.kind](args.device))  # libraries choose and load
        print("0 0 ready 0 0", file=out)
        order = ""
        while (order := control.next_order(order)) != "quit":
            print(obey(order, lambda: kinds[args.kind](args.device)), file=out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
