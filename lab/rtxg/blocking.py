# SPDX-License-Identifier: MIT
"""How long a job may wait for one of k GPUs.

The k-FMLP (klmirqd paper, appendix A) keeps a FIFO queue a GPU; a request joins the queue with the
least work ahead of it.  Four bounds on that wait are given, from the loosest to the exact one:

    oblivious (theorem 2)  >=  aware (theorem 1)  >=  capped  >=  exact (0-1 program)

Sections, ``l``, are in any one unit; ``k`` is the number of GPUs in the pool.  A bound for task i
needs the sections of the *other* GPU-using tasks of its cluster only.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil

import numpy as np

Number = Fraction | int


def kfmlp_oblivious(others: Sequence[Number], k: int, longest: Number | None = None) -> Fraction:
    """Theorem 2: max{l} * |T^R without T_i| / k, for an implementation that is not told lengths.

    :param longest: the longest section of *all* tasks, the own one included; default: of the others.
    """
    if not others:
        return Fraction(0)
    return Fraction(max(others) if longest is None else longest) * len(others) / k


def kfmlp_aware(others: Sequence[Number], k: int) -> Fraction:
    """Theorem 1: (sum of the other sections) / k."""
    return sum((Fraction(length) for length in others), Fraction(0)) / k


def kfmlp_capped(others: Sequence[Number], k: int) -> Fraction:
    """The least, over t = 0..k-1, of (sum of all but the t longest sections) / (k - t).

    However requests are spread, the t longest lie in at most t queues, so that k - t queues hold
    nothing but the rest, and the shortest of these no more than the average.  t = 0 is theorem 1;
    with fewer than k others it says what theorem 1 does not: there is no wait.
    """
    lengths = sorted((Fraction(length) for length in others), reverse=True)
    rest = sum(lengths, Fraction(0))
    best = rest / k
    for t in range(1, k):
        if t > len(lengths):
            break
        rest -= lengths[t - 1]
        best = min(best, rest / (k - t))
    return best


def kfmlp_exact(others: Sequence[Number], k: int) -> Fraction:
    """The 0-1 program of equation (3), solved with HiGHS: the greatest possible length of the
    shortest queue.

    The solver works in floating point; its assignment is evaluated again in exact arithmetic.  It
    searches a number of nodes that does not depend on the machine's speed.  Up to
    :data:`EXACT_REQUESTS` others that is enough in nearly all cases; where it is not, and beyond, the
    bound that it has proven is used, and beyond :data:`SEARCHED_REQUESTS` :func:`kfmlp_capped`.  The
    answer is safe and never above :func:`kfmlp_capped`.
    """
    return _shortest_queue(tuple(sorted((Fraction(length) for length in others), reverse=True)), k)


@contextlib.contextmanager
def _quiet_stdout() -> Iterator[None]:
    """Keep the solver from printing: HiGHS sometimes writes a line of debugging to file descriptor 1,
    in the middle of a command's output."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


#: Up to so many other requests the 0-1 program is solved to optimality, or for so many nodes.
EXACT_REQUESTS, _EXACT_NODES = 12, 3000

#: Up to so many, the bound proven within so many nodes is used.
SEARCHED_REQUESTS, _SEARCHED_NODES = 24, 200


@lru_cache(maxsize=4096)
def _shortest_queue(lengths: tuple[Fraction, ...], k: int) -> Fraction:
    if len(lengths) < k:
        return Fraction(0)
    if k == 1:
        return sum(lengths, Fraction(0))
    upper = kfmlp_capped(lengths, k)
    queues = [Fraction(0)] * k
    for length in lengths:  # longest first to the shortest queue: a good assignment, often the best
        queues[queues.index(min(queues))] += length
    exact = len(lengths) <= EXACT_REQUESTS
    if min(queues) == upper or len(lengths) > SEARCHED_REQUESTS:
        return upper
    if not exact and upper - min(queues) <= upper / 100:
        return upper
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import lil_array

    n = len(lengths)
    longest = lengths[0]  # all is measured by it, so that the unit does not matter
    weights = np.array([float(length / longest) for length in lengths])
    # Variables: x[queue, request] for every pair, then b.
    columns = n * k + 1
    rows = lil_array((k + n, columns))
    highest = np.append(np.ones(columns - 1), float(upper / longest) * (1 + 1e-9))
    for queue in range(k):
        rows[queue, queue * n : (queue + 1) * n] = weights
        rows[queue, columns - 1] = -1.0
        highest[queue * n : queue * n + queue] = 0.0  # queues are alike: request r lies in one of 0..r
    for request in range(n):
        for queue in range(k):
            rows[k + request, queue * n + request] = 1.0
    with _quiet_stdout():
        result = milp(
            c=np.append(np.zeros(columns - 1), -1.0),
            constraints=LinearConstraint(
                rows.tocsr(), np.append(np.zeros(k), np.ones(n)), np.append(np.full(k, np.inf), np.ones(n))
            ),
            bounds=Bounds(np.append(np.zeros(columns - 1), float(min(queues) / longest) * (1 - 1e-9)), highest),
            integrality=np.append(np.ones(columns - 1), 0),
            options={
                "node_limit": _EXACT_NODES if exact else _SEARCHED_NODES,
                "mip_rel_gap": 0.0 if exact else 1e-2,
            },
        )
    if exact and result.status == 0:
        assigned = np.round(result.x[:-1]).reshape(k, n)
        return max(
            min(queues),
            min(sum((length for length, x in zip(lengths, row, strict=True) if x), Fraction(0)) for row in assigned),
        )
    proven = getattr(result, "mip_dual_bound", None)
    if proven is None:
        return upper
    return min(upper, longest * Fraction(ceil(-proven * (1 + 1e-9) * 2**40), 2**40))


def omlp_k_exclusion(
    others: Sequence[Number], cpus: int, k: int, *, requests: bool
) -> Fraction:
    """Suspension-oblivious blocking under the clustered k-exclusion OMLP, for comparison.

    Brandenburg and Anderson, "Real-time resource-sharing under clustered scheduling" (EMSOFT 2011):
    a job may have to donate its priority once, until a request that waits behind ceil(m/k) - 1
    others and its own section are through, whether it uses a GPU or not; one that requests a GPU
    also waits for up to ceil(m/k) - 1.  Requests that wait together are of different tasks, so the
    longest ones of the *other* tasks count, each once, as in SchedCAT.
    """
    span = ceil(Fraction(cpus, k))
    lengths = sorted((Fraction(length) for length in others), reverse=True)
    donated = sum(lengths[:span], Fraction(0))
    return donated + (sum(lengths[: span - 1], Fraction(0)) if requests else 0)


#: k-FMLP bounds by name; each takes (sections of the others, k).
KFMLP_BOUNDS: dict[str, Callable[[Sequence[Number], int], Fraction]] = {
    "oblivious": kfmlp_oblivious,
    "aware": kfmlp_aware,
    "capped": kfmlp_capped,
    "exact": kfmlp_exact,
}
