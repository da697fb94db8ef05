#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Training over several GPUs, as people run it: a process for each GPU, PyTorch and NCCL.

    collective_load.py GPUS SECONDS OUT

A multilayer perceptron in bf16 with DistributedDataParallel: each step ends with an all-reduce of
all gradients, in which the kernel of one GPU spins until those of the others have come. A line
goes to OUT for each step of the first process: "CLOCK_MONOTONIC ns at its end, steps so far". The
processes are forked before CUDA is there, so that the first one is this program.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

WIDTH, LAYERS, BATCH = 4096, 4, 4096


def train(rank: int, gpus: int, seconds: float, out: str) -> None:
    """One process of the training."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=gpus)
    layers: list[torch.nn.Module] = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers).cuda().to(torch.bfloat16)
    ddp = DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-3)
    data = torch.randn(BATCH, WIDTH, device="cuda", dtype=torch.bfloat16)
    ended = torch.zeros(1, device="cuda")
    with open(out if rank == 0 else os.devnull, "w", encoding="ascii", buffering=1) as file:
        end, steps = float("inf"), 0
        while True:
            optimizer.zero_grad(set_to_none=True)
            ddp(data).square().mean().backward()
            optimizer.step()
            # One process says when it is time to end: else one would wait for the other for ever.
            if rank == 0 and time.monotonic() > end:
                ended += 1
            dist.broadcast(ended, 0)
            steps += 1
            if ended.item():
                break
            if steps == 20:
                end = time.monotonic() + seconds
            if steps >= 20:
                print(time.monotonic_ns(), steps, file=file)
    dist.destroy_process_group()


def main(argv: list[str]) -> int:
    """Forks the other processes; returns the exit status."""
    if len(argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    gpus = int(argv[1])
    # A name of this run's own, and no port that another program may have.
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(20000 + os.getpid() % 10000))
    others = []
    for rank in range(1, gpus):
        pid = os.fork()
        if not pid:
            # Killed with the first one: it would wait for it for ever.
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
            train(rank, gpus, float(argv[2]), argv[3])
            os._exit(0)
        others.append(pid)
    Path(argv[3]).touch()
    train(0, gpus, float(argv[2]), argv[3])
    return max([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in others], default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
