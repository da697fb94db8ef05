# SPDX-License-Identifier: MIT
"""JupyterHub itself, with its systemd spawner and the hooks of examples/jupyterhub: what runs in a
user's server is in the user's vGPU.

systemd is not here: two scripts stand for systemctl and systemd-run, and start the server in a real
cgroup of the unit's name."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import BUILD, ROOT, Daemon, wait_for
from test_cgroup import Tree, tree  # noqa: F401 - a fixture
from test_examples import environment, vgpus

pytestmark = pytest.mark.slow

#: starts what follows its options in the cgroup of the unit, with the unit's environment
SYSTEMD_RUN = r"""#!/bin/bash
while [[ $1 == --* ]]; do
	case $1 in
	--unit) unit=$2; shift ;;
	--property=EnvironmentFile=*) file=${1#--property=EnvironmentFile=} ;;
	--working-directory) shift ;;
	esac
	shift
done
# As systemd does with what is no letter of a unit's name.
unit=${unit// /\\x20}
mkdir -p "$UNITS/$unit.service"
echo $BASHPID >"$UNITS/$unit.service/cgroup.procs"
set -a
. "$file"
exec setsid "$@" </dev/null >"$LOGS/$unit" 2>&1 &
"""
SYSTEMCTL = r"""#!/bin/bash
[ "$1" = --version ] && { echo "systemd 252 (252)"; exit; }
procs=$UNITS/${2// /\\x20}.service/cgroup.procs
case $1 in
is-active) grep -q . "$procs" ;;
stop) while grep -q . "$procs"; do kill -9 $(cat "$procs"); sleep 0.1; done ;;
*) false ;;
esac
"""
#: what a notebook server is to the hub: it answers, says its version, and starts programs
SERVER = """
import http.server, os, subprocess
from urllib.parse import urlparse
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("X-JupyterHub-Version", os.environ["HUB_VERSION"])
        self.end_headers()
        self.wfile.write(b"{}")
    def log_message(self, *words): pass
kernel = subprocess.Popen(os.environ["KERNEL"].split())
url = urlparse(os.environ["JUPYTERHUB_SERVICE_URL"])
http.server.HTTPServer((url.hostname, url.port), Handler).serve_forever()
"""
#: no proxy: nothing of the test goes through one
CONFIG = """
import os, sys
from jupyterhub import __version__
from jupyterhub.proxy import Proxy
class NoProxy(Proxy):
    routes, should_start = {{}}, False
    async def add_route(self, spec, target, data): self.routes[spec] = {{"routespec": spec, "target": target, "data": data}}
    async def delete_route(self, spec): self.routes.pop(spec, None)
    async def get_all_routes(self): return self.routes
c.JupyterHub.proxy_class = NoProxy
c.JupyterHub.spawner_class = "systemd"
exec(open("{hooks}").read())
c.Spawner.pre_spawn_hook = rtxg_pre_spawn
c.Spawner.post_stop_hook = rtxg_post_stop
c.Spawner.cmd = [sys.executable, "{folder}/server.py"]
c.Spawner.args = []
c.Spawner.start_timeout = c.Spawner.http_timeout = 600
c.Spawner.environment = {{"KERNEL": "{device} -u 1000 -s -p 20000", "RTXG_SOCKET": "{socket}", "HUB_VERSION": __version__}}
c.Spawner.env_keep = ["PATH", "LD_LIBRARY_PATH"]
c.SystemdSpawner.username_template = "root"
c.Authenticator.allow_all = True
c.Authenticator.username_pattern = ".*"
c.Authenticator.manage_groups = False
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.bind_url = "http://127.0.0.1:{ports[0]}"
c.JupyterHub.hub_port = {ports[1]}
c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{folder}/secret"
c.ConfigurableHTTPProxy.auth_token = "x"
c.JupyterHub.load_groups = {{"staff": ["ann lee@example.org"], "others": ["bob"]}}
c.JupyterHub.services = [{{"name": "test", "api_token": "{token}"}}]
c.JupyterHub.load_roles = [{{"name": "test", "services": ["test"], "scopes": ["admin:users", "admin:servers"]}}]
"""
TOKEN = "0123456789abcdef0123456789abcdef"
ANN, BOB = "ann%20lee%40example.org", "bob"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has JupyterHub. RTXG_JUPYTERHUB: one that is there already."""
    if given := os.environ.get("RTXG_JUPYTERHUB"):
        return Path(given)
    place = tmp_path_factory.mktemp("hub")
    subprocess.run([sys.executable, "-m", "venv", place], check=True, timeout=300)
    done = subprocess.run(
        [
            place / "bin/pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "jupyterhub",
            "jupyterhub-systemdspawner",
        ],
        capture_output=True,
        text=True,
        timeout=1200,
    )
    if done.returncode:
        pytest.skip(f"JupyterHub cannot be installed: {done.stderr.strip()[-300:]}")
    return place / "bin/python"


class Hub:
    """A hub, and its door for programs."""

    def __init__(self, daemon: Daemon, tree: Tree, python: Path) -> None:  # noqa: F811
        folder = daemon.folder / "hub"
        folder.mkdir()
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self.ports = [s.getsockname()[1] for s in sockets]
        for s in sockets:
            s.close()
        tree.make("/system.slice")
        for name, text in (
            ("systemd-run", SYSTEMD_RUN),
            ("systemctl", SYSTEMCTL),
            ("server.py", SERVER),
        ):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        (folder / "config.py").write_text(
            CONFIG.format(
                hooks=ROOT / "examples/jupyterhub/rtxg_hooks.py",
                folder=folder,
                socket=daemon.socket,
                ports=self.ports,
                token=TOKEN,
                device=BUILD / "tests/conform/device",
            )
        )
        own = environment(daemon, UNITS=str(tree.folder("/system.slice")), LOGS=str(folder))
        own |= {"PATH": f"{folder}:{own['PATH']}"}
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [python, "-m", "jupyterhub", "-f", folder / "config.py"],
                cwd=folder,
                env=own,
                stdout=log,
                stderr=log,
            )
        wait_for("the hub answers", self.answers)

    def answers(self) -> bool:
        """Whether it does; it must not have ended."""
        assert self.process.poll() is None, self.log.read_text()[-4000:]
        try:
            return self.ask("GET", "")[0] == 200
        except OSError:
            return False

    def ask(self, method: str, path: str) -> tuple[int, dict[str, object]]:
        """A request of its API: the status and the answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports[1]}/hub/api/{path}",
            method=method,
            headers={"Authorization": f"token {TOKEN}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            return error.code, {}

    def runs(self, user: str) -> bool:
        """Whether the user's server is there and ready."""
        server = self.ask("GET", f"users/{user}")[1].get("server")
        return server is not None


@pytest.fixture
def hub(running: Daemon, tree: Tree, python: Path) -> Iterator[Hub]:  # noqa: F811
    """One that ends with the test."""
    one = Hub(running, tree, python)
    yield one
    one.process.kill()
    one.process.wait()
    for procs in tree.folder("/system.slice").glob("*/cgroup.procs"):
        for pid in procs.read_text().split():
            os.kill(int(pid), signal.SIGKILL)


def test_what_a_users_server_starts_is_in_the_users_vgpu(running: Daemon, hub: Hub) -> None:
    """Two users, one with a name that systemd writes differently; a share by group; the vGPU goes
    with the server.
    """
    for user in (ANN, BOB):
        hub.ask("POST", f"users/{user}")
        assert hub.ask("POST", f"users/{user}/server")[0] in (201, 202), hub.log.read_text()[-4000:]
    wait_for("both programs have tasks", lambda: len(running.tasks()) == 2)
    made = {
        name: (v["min_ppm"], [c.rsplit("/")[-1] for c in v["cgroups"]])
        for name, v in vgpus(running).items()
    }
    (ann,) = (name for name in made if name.startswith("jupyter-ann_lee@example.org"))
    assert made == {ann: (300000, [r"jupyter-ann\x20lee@example.org-singleuser.service"]),
                    "jupyter-bob": (0, ["jupyter-bob-singleuser.service"])}
    assert sorted(t["vgpu"] for t in running.tasks()) == sorted([ann, "jupyter-bob"])
    for user in (ANN, BOB):
        wait_for("it is ready", lambda user=user: hub.runs(user))
        assert hub.ask("DELETE", f"users/{user}/server")[0] in (202, 204)
    wait_for("the vGPUs have gone", lambda: vgpus(running) == {})
