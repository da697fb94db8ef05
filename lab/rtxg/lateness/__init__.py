# SPDX-License-Identifier: MIT
"""What `rtxg latency` measures, over loads and over time: the table of loads with its verdict, the
long-term record and its report.

The measuring program is in C (latency/). This package starts it, keeps what it prints, and draws.
It imports nothing of the rest of the lab, and matplotlib only where a picture is asked for.
"""
