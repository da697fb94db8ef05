# SPDX-License-Identifier: MIT
"""How this machine handles the interrupts of GPUs now: what ``rtxg doctor`` says of the kernel module.

By itself a kernel handles them as ``slih``.  A loaded rtxg.ko serves those that a program attached, as
long as that program runs, and says which in a parameter that anyone may read.  May not: change
anything, or ask the module for more than that.
"""

from __future__ import annotations

from pathlib import Path

from .measure import find_interrupts
from .overheads import STOCK_KERNEL, Interrupts

#: "42:owner 43:pai": the interrupts whose threads the module serves, and how.
PARAMETER = Path("/sys/module/rtxg/parameters/irq_threads")
INTERRUPTS = Path("/proc/interrupts")

#: Modes of the module that are ways of handling in the analysis; a fixed priority is none of them.
_WAYS = {"owner": Interrupts.KLMIRQD, "pai": Interrupts.PAI}


def here(parameter: Path = PARAMETER, interrupts: Path = INTERRUPTS) -> tuple[Interrupts, str]:
    """How this machine handles GPU interrupts, and why that is to be assumed.

    Where it has interrupts of NVIDIA's driver, all of them are to be served; else any are a GPU's.
    """
    try:
        words = parameter.read_text(encoding="ascii").split()
        table = interrupts.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return STOCK_KERNEL, "rtxg.ko is not loaded here, or is too old to say what it serves"
    modes = {int(irq): mode for irq, _, mode in (word.partition(":") for word in words)}
    gpus = find_interrupts("nvidia", table) or {
        irq: name for irq in modes for name in find_interrupts(str(irq), table).values()
    }
    named = ", ".join(f"{irq} ({name})" for irq, name in sorted(gpus.items()))
    ways = {_WAYS.get(modes.get(irq, ""), STOCK_KERNEL) for irq in gpus}
    if len(ways) == 1 and (way := ways.pop()) is not STOCK_KERNEL:
        how = "at their owner's priority" if way is Interrupts.KLMIRQD else "as process-aware ones"
        return way, f"rtxg.ko serves interrupts {named} {how}, while what attached them runs"
    if not modes:
        return (
            STOCK_KERNEL,
            "rtxg.ko is loaded here and serves no interrupt; rtxg irq -o owner lets it",
        )
    return STOCK_KERNEL, f"rtxg.ko does not serve all of interrupts {named} by their owners"
