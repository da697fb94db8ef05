# SPDX-License-Identifier: MIT
"""Verdicts as plain data and as data frames.  Times are microseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

    from .analysis import Analysis


def _time(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def analysis_to_json(
    analysis: Analysis, advice: Sequence[str] = (), speedup: int = 1, only: str | None = None
) -> dict[str, Any]:
    """A verdict as plain data, as ``rtxg analyze --json`` prints it.

    :param advice: what :func:`rtxg.what_would_fix` found.
    :param speedup: R of the effective utilisation.
    :param only: leave out the tasks but this one.
    """
    return {
        "name": analysis.taskset.name,
        "schedulable": analysis.schedulable,
        "hard": analysis.hard,
        "interrupts": analysis.interrupts.value,
        "lock": analysis.lock,
        "overheads": analysis.overheads.as_dict(),
        "utilization": float(analysis.taskset.utilization),
        "effective_utilization": float(analysis.taskset.effective_utilization(speedup)),
        "advice": list(advice),
        "clusters": [
            {
                "cluster": c.index,
                "cpus": c.cpus,
                "utilization": float(c.utilization),
                "schedulable": c.schedulable,
                "rounds": c.rounds,
                "hard_tests": c.hard_tests,
                "suspension_aware": c.aware,
            }
            for c in analysis.clusters
        ],
        "tasks": [
            {
                "name": r.task.name,
                "cluster": r.task.cluster,
                "schedulable": r.schedulable,
                "reason": r.reason or None,
                "period": _time(r.task.period),
                "deadline": _time(r.task.deadline),
                "demand": _time(r.task.demand),
                "inflated": _time(r.inflated),
                "blocking": _time(r.blocking),
                "suspension": _time(r.suspension),
                "tardiness": _time(r.tardiness),
                "response": _time(r.response),
                "terms": [
                    {
                        "symbol": t.symbol,
                        "equation": t.equation,
                        "meaning": t.meaning,
                        "value": _time(t.value),
                    }
                    for t in r.terms
                ],
            }
            for r in analysis.results
            if only in (None, r.task.name)
        ],
    }


def frame(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """Rows as a pandas data frame.

    :raises ImportError: pandas is not there; the text has the remedy.
    """
    try:
        import pandas
    except ImportError:
        raise ImportError(
            "to_frame() needs the Python package pandas: pip install 'rtxg[frames]'"
        ) from None
    return pandas.DataFrame(list(rows))
