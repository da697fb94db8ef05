# SPDX-License-Identifier: MIT
"""A plugin for a run of pytest over another project's tests (-p part_of_suite).

$RTXG_SUITE_RAN names a file.  With $RTXG_SUITE_LIMIT_S, the run ends after the test that passes so
many seconds, and the tests that ran are written there.  Without it, only the tests that stand there
run.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest


class Part:
    """Of the tests."""

    def __init__(self) -> None:
        self.ran = Path(os.environ["RTXG_SUITE_RAN"])
        limit = os.environ.get("RTXG_SUITE_LIMIT_S")
        self.end = time.monotonic() + float(limit) if limit else None
        self.session: pytest.Session | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """For pytest."""
        self.session = session
        if self.end is not None:
            self.ran.write_text("")

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """For pytest."""
        if self.end is None:
            wanted = set(self.ran.read_text().splitlines())
            config.hook.pytest_deselected(
                items=[item for item in items if item.nodeid not in wanted]
            )
            items[:] = [item for item in items if item.nodeid in wanted]

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """For pytest."""
        if self.end is None:
            return
        with self.ran.open("a") as file:
            print(nodeid, file=file)
        if self.session and time.monotonic() > self.end:
            self.session.shouldstop = "the time is over"


def pytest_configure(config: pytest.Config) -> None:
    """For pytest."""
    config.pluginmanager.register(Part())
