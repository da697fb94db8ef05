#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch loads of the GPU benchmarks: plain programs that know nothing of rtxg.

    torch_load.py eager|graph|detect SECONDS OUT [BATCH]

eager and graph: ResNet-50 inference with random weights, launched kernel by kernel or replayed as a CUDA graph. detect: a
Faster R-CNN detector (ResNet-50 with feature pyramid, random weights) on one 600 x 800 frame after another. One line an
iteration goes to OUT: "CLOCK_MONOTONIC ns at its end, milliseconds it took". The first line is written when the model is
warm. If LOAD_GO is set, it then waits until a file of that name exists, so that several programs start together.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable


def resnet(batch: int, graph: bool) -> Callable[[], None]:
    """Returns one iteration of ResNet-50 inference, bf16, channels last, ended by a synchronisation."""
    import torch
    import torchvision

    model = (
        torchvision.models.resnet50(weights=None).cuda().eval().to(torch.bfloat16, memory_format=torch.channels_last)
    )
    data = torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)

    def once() -> None:
        with torch.inference_mode():
            model(data)
        torch.cuda.synchronize()

    for _ in range(3):
        once()
    if not graph:
        return once
    captured = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(captured):
        model(data)

    def replay() -> None:
        captured.replay()
        torch.cuda.synchronize()

    replay()
    return replay


def detector() -> Callable[[], None]:
    """Returns the detection of one frame, boxes on the CPU at the end."""
    import torch
    import torchvision

    model = torchvision.models.detection.fasterrcnn_resnet50_fpn(
        weights=None, weights_backbone=None, num_classes=21, box_score_thresh=0.2
    )
    model = model.cuda().eval()
    frames = [torch.rand(3, 600, 800) for _ in range(4)]
    state = {"n": 0}

    def once() -> None:
        frame = frames[state["n"] % 4].cuda(non_blocking=True)
        state["n"] += 1
        with torch.inference_mode():
            boxes = model([frame])[0]
        boxes["boxes"].cpu()

    for _ in range(3):
        once()
    return once


def main(argv: list[str]) -> int:
    """Runs the load; returns the exit status."""
    if len(argv) < 4 or argv[1] not in ("eager", "graph", "detect"):
        print(__doc__, file=sys.stderr)
        return 2
    batch = int(argv[4]) if len(argv) > 4 else 64
    once = detector() if argv[1] == "detect" else resnet(batch, argv[1] == "graph")
    with open(argv[3], "w", encoding="ascii", buffering=1) as out:
        print(time.monotonic_ns(), 0.0, file=out)
        go = os.environ.get("LOAD_GO")
        while go and not os.path.exists(go):
            time.sleep(0.01)
        end = time.monotonic() + float(argv[2])
        while time.monotonic() < end:
            began = time.monotonic_ns()
            once()
            ended = time.monotonic_ns()
            print(ended, (ended - began) / 1e6, file=out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
