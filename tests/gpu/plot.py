# SPDX-License-Identifier: MIT
"""Pictures of what the cases measured."""

from __future__ import annotations


from typing import Any

import numpy as np

from harness import Setup, work_in


def figure10(setup: Setup, plt: Any) -> None:
    """Shares of two programs over the time."""
    fig, axes = plt.subplots(1, 2, figsize=(10, 3.5), sharey=True)
    for ax, mode in zip(axes, ("stock", "rtxg"), strict=True):
        t = setup.plots["figure10"][mode]
        start = t[0][0][0, 0]
        grid = np.arange(start + 2.5e8, t[0][0][-1, 0] - 2.5e8, 1e8)
        work = np.array([[work_in([tenant], g - 2.5e8, g + 2.5e8)[0] for g in grid] for tenant in t])
        alone = work.sum(axis=0)
        later = f"vGPU1, 60 %, {setup.plots['figure10_late_s'][mode]:.1f} s later"
        for i, label in enumerate(("vGPU0, 40 %, 1.2 times the work", later)):
            ax.plot((grid - start) / 1e9, 100 * work[i] / np.maximum(alone, 1), label=label)
        for y in (40, 60):
            ax.axhline(y, color="grey", lw=0.5)
        ax.set_title(mode)
        ax.set_xlabel("time (s)")
    axes[0].set_ylabel("share of the work done (%), over 0.5 s")
    for ax in axes:
        ax.legend()
    fig.tight_layout()
    fig.savefig(setup.out / f"{setup.name}-figure10.png", dpi=110)


def figure11(setup: Setup, plt: Any) -> None:
    """Shares of four programs over the time."""
    data = setup.plots["figure11"]
    fig, axes = plt.subplots(1, len(data), figsize=(5 * len(data), 3.5), sharey=True)
    for ax, (mode, t) in zip(axes, data.items(), strict=True):
        start = t[0][0][0, 0]
        grid = np.arange(start + 2.5e8, t[0][0][-1, 0] - 2.5e8, 1e8)
        work = np.array([[work_in([x], g - 2.5e8, g + 2.5e8)[0] for g in grid] for x in t])
        for i, line in enumerate(100 * work / np.maximum(work.sum(axis=0), 1)):
            ax.plot((grid - start) / 1e9, line, label=f"vGPU{i}, 25 %")
        ax.set_title(mode)
        ax.set_xlabel("time (s)")
        ax.legend()
    axes[0].set_ylabel("share of the work done (%), over 0.5 s")
    fig.tight_layout()
    fig.savefig(setup.out / f"{setup.name}-figure11.png", dpi=110)


def figure12(setup: Setup, plt: Any) -> None:
    """Times of the frames of four detectors."""
    data = setup.plots["figure12"]
    fig, axes = plt.subplots(1, len(data), figsize=(3 * len(data), 3.5), sharey=True)
    for ax, (name, rows) in zip(axes, data.items(), strict=True):
        ax.boxplot(rows, showfliers=False, tick_labels=["60", "20", "10", "10"])
        ax.set_title(name)
        ax.set_xlabel("vGPU (%)")
    axes[0].set_ylabel("time for a frame (ms)")
    fig.tight_layout()
    fig.savefig(setup.out / f"{setup.name}-figure12.png", dpi=110)


def plot(setup: Setup) -> None:
    """Pictures beside the results, where matplotlib is."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        print("matplotlib is not installed: no plots")
        return
    for draw in (figure10, figure11, figure12):
        if draw.__name__ in setup.plots:
            draw(setup, plt)
