#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Names of this architecture's system calls, from the compiler's headers, as lines of a C array.

usage: syscall_names.py COMPILER...
"""

from __future__ import annotations

import re
import subprocess
import sys

HEADER = "#include <asm/unistd.h>\n"


def main() -> int:
    """Print `[NUMBER] = "NAME",` for each."""
    done = subprocess.run(
        [*sys.argv[1:], "-E", "-dM", "-"], input=HEADER, capture_output=True, text=True, check=True
    )
    for name, number in re.findall(r"^#define __NR_(\w+) (\d+)$", done.stdout, re.M):
        print(f'[{number}] = "{name}",')
    return 0


if __name__ == "__main__":
    sys.exit(main())
