# SPDX-License-Identifier: MIT
"""Slurm with the prolog and epilog of examples/slurm, in a clean Debian: its own slurmctld, slurmd
and munge, and this tree's packages. (tests/daemon/test_examples.py has the cgroup's side.)
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import ROOT, Make

SLURM_CONF = """\
ClusterName=rtxg
SlurmctldHost=NODE(127.0.0.1)
SlurmctldPort=26817
SlurmdPort=26818
SlurmUser=root
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
GresTypes=gpu,shard
Prolog=/etc/slurm/rtxg-prolog
Epilog=/etc/slurm/rtxg-epilog
NodeName=NODE NodeAddr=127.0.0.1 CPUs=4 Gres=gpu:1,shard:100 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES OverSubscribe=YES State=UP
"""

#: all of it in one shell, which ends what it started
SCRIPT = r"""
started=
trap 'kill $started; wait' EXIT
trap 'exit 1' TERM
sed "s/NODE/$(hostname -s)/" /slurm.conf >/etc/slurm/slurm.conf
# There is no systemd that could give it a cgroup.
echo CgroupPlugin=cgroup/v1 >/etc/slurm/cgroup.conf
printf 'AutoDetect=off\nName=gpu File=/dev/zero\nName=shard Count=100\n' >/etc/slurm/gres.conf
mkdir -p /var/lib/slurm/slurmctld /var/lib/slurm/slurmd /run/munge
chown munge /run/munge
rtxgd --system >/tmp/rtxgd.log 2>&1 &
started=$!
setpriv --reuid munge --regid munge --clear-groups munged -F >/tmp/munged.log 2>&1 &
started="$started $!"
until munge -n >/dev/null 2>&1; do sleep 0.2; done
slurmctld -D >/tmp/slurmctld.log 2>&1 &
started="$started $!"
slurmd -D >/tmp/slurmd.log 2>&1 &
started="$started $!"
until sinfo -h -o %T | grep -q idle; do
	kill -0 $! || { cat /tmp/slurmd.log; exit 1; }
	sleep 0.5
done
shows() { echo "$1: $(rtxg vgpu ls -n -o VGPU,MIN,CGROUPS | grep -v default | xargs)"; }
gone() { until [ -z "$(rtxg vgpu ls -n -o VGPU | grep slurm)" ]; do sleep 0.2; done; }
srun --gres=shard:30 rtxg vgpu ls -n -o VGPU,MIN | grep slurm | xargs echo job:
gone; shows after
srun rtxg vgpu ls -n -o VGPU,MIN | grep slurm | xargs echo without:
gone
# Two at a time: the second one sees both.
srun --gres=shard:30 -n 1 -c 1 sh -c 'touch /tmp/first; until [ -e /tmp/second ]; do sleep 0.2; done' &
until [ -e /tmp/first ]; do sleep 0.2; done
srun --gres=shard:60 -n 1 -c 1 sh -c 'rtxg vgpu ls -n -o VGPU,MIN | grep slurm | xargs echo both:; touch /tmp/second'
wait $!; gone
# What Slurm counts as free and another program has reserved: the prolog fails, and the log says why.
rtxg vgpu create other --min 50%
sbatch --gres=shard:80 --wrap 'echo it ran' >/dev/null
until sinfo -h -o %T | grep -q drain; do sleep 0.5; done
shows refused
grep -o 'reservation is more than what is left to reserve.*' /tmp/slurmd.log | head -n 1 | xargs -0 printf 'why: %s'
"""


@pytest.mark.slow
def test_jobs_of_slurm_get_their_shards(built: Path, make_chroot: Make) -> None:
    """The shards that a job asked for are its vGPU's reservation while it runs; a job without has
    no reservation; one that does not fit drains the node.
    """
    inside = make_chroot("bookworm")
    inside.take(built, "debs")
    inside(
        "apt-get update; apt-get install -y --no-install-recommends /debs/librtxg0_*.deb "
        "/debs/rtxg_*.deb slurmctld slurmd slurm-client munge hostname"
    )
    (inside.root / "slurm.conf").write_text(SLURM_CONF)
    for name in ("rtxg-prolog", "rtxg-epilog"):
        shutil.copy(ROOT / "examples/slurm" / name, inside.root / "etc/slurm" / name)
    said = dict(line.split(": ", 1) for line in inside(SCRIPT).splitlines() if ": " in line)
    assert said["job"] == "slurm-1 30.0%"
    assert said["after"] == ""
    assert said["without"] == "slurm-2 0.0%"
    assert said["both"] == "slurm-3 30.0% slurm-4 60.0%"
    assert said["refused"].startswith("other 50.0%")
    assert "(80%; the limit is 50%)" in said["why"]
