# SPDX-License-Identifier: MIT
"""Two nodes, each in its vGPU by a launch prefix. Under ROS 2: ros2 launch ./robot.launch.py"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

#: node -> the prefix of its command
PREFIXES = {
    "perception": "rtxg run -v perception -p 50 --cpu-policy fifo --cpu-priority 20 --",
    "mapping": "rtxg run -v mapping --",
}


def generate_launch_description():  # noqa: ANN201 - ROS 2's own type, which need not be installed
    """What `ros2 launch` asks for."""
    from launch import LaunchDescription
    from launch_ros.actions import Node

    nodes = [Node(package="my_robot", executable=name, name=name, prefix=prefix) for name, prefix in PREFIXES.items()]
    return LaunchDescription(nodes)


if __name__ == "__main__" and os.environ.get("RTXG_MOCK"):
    mock = Path(__file__).resolve().parent / "mock_node.py"
    extra = os.environ.get("RTXG_MOCK_RUN", "").split()  # options of rtxg run for all nodes
    nodes = [subprocess.Popen([*prefix.split()[:2], *extra, *prefix.split()[2:], sys.executable, str(mock), name])
             for name, prefix in PREFIXES.items()]
    sys.exit(max(node.wait() for node in nodes))
