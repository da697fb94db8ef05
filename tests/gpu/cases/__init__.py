# SPDX-License-Identifier: MIT
"""The cases that need a GPU, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

from harness import Setup

from . import (
    admitted,
    apis,
    batch,
    burst,
    cheap,
    churn,
    collective,
    cost,
    daemon,
    exact,
    features,
    figure12,
    figures,
    gaps,
    latency,
    life,
    llm,
    mix,
    multi,
    overheads,
    pauses,
    restart,
    shares,
    soak,
    stopped,
    waits,
)

#: a case's function is named case_ and its name; the first line of its docstring says what it does
CASES: dict[str, Callable[[Setup], None]] = {
    case.__name__.removeprefix("case_"): case
    for case in (
        latency.case_latency,
        latency.case_period,
        shares.case_shares1ms,
        shares.case_shares20ms,
        shares.case_eager,
        shares.case_graph,
        shares.case_kinds,
        figures.case_figure10,
        gaps.case_gaps,
        pauses.case_pauses,
        shares.case_forks,
        shares.case_many,
        multi.case_multi,
        collective.case_collective,
        collective.case_trainings,
        cost.case_copies,
        cost.case_alone,
        shares.case_caps,
        daemon.case_daemon,
        life.case_probes,
        cost.case_actions,
        life.case_guardian,
        life.case_discovery,
        figure12.case_figure12,
        latency.case_mps,
        churn.case_churn,
        burst.case_burst,
        batch.case_batch,
        cheap.case_cheap,
        mix.case_mix,
        exact.case_exact,
        apis.case_apis,
        features.case_features,
        features.case_pair,
        features.case_checkpoint,
        admitted.case_admitted,
        overheads.case_overheads,
        llm.case_llm,
        restart.case_restart,
        waits.case_waits,
        stopped.case_stopped,
        figures.case_figure9,
        figures.case_figure11,
        soak.case_soak,
    )
}
