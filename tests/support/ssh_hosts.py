"""Hosts that are reached by ssh: a real sshd on loopback, with keys of its own, a port for each, and an ``ssh_config``.

What a host runs is forced by the port. As root sshd wants a user and a folder of its own: it gets both in a mount
namespace, so that nothing of the machine changes.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.engines import free_port
from tests.support.started import started

REPOSITORY = Path(__file__).parents[2]
_IN_NAMESPACE = """
mount --make-rprivate / && mount --bind {folder}/passwd /etc/passwd && mount -t tmpfs none /run && mkdir /run/sshd &&
exec {sshd} -D -e -f {folder}/sshd_config
"""


def missing_sshd() -> str:
    """Why tests with hosts are skipped, or nothing."""
    for program in ("ssh", "sshd", "ssh-keygen"):
        if _found(program) is None:
            return f"no {program} on this machine: apt-get install openssh-server"
    if (
        os.geteuid() == 0
        and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode
    ):
        return "sshd needs a user of its own, and no mount namespace can be made here"
    return ""


def _found(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")


def exporter(number: int, tag: str) -> str:
    """The command by which a host is a simulated node; ``tag`` is in its name."""
    words = [sys.executable, "-m", "gputop", "export", "demo", "--seed", str(number), "--hostname", f"h{number}-{tag}",
             "--stdout", "--until-silent", "10"]  # fmt: skip
    return f"cd {shlex.quote(str(REPOSITORY))} && exec {shlex.join(words)}"


@contextlib.contextmanager
def ssh_hosts(
    folder: Path,
    hosts: Mapping[str, str],
    *,
    asking: tuple[str, ...] = (),
    unknown: tuple[str, ...] = (),
) -> Iterator[Path]:
    """A running sshd; gives the ``ssh_config`` by which these hosts, name → what they run, are reached. Those in
    ``asking`` want a password, the key of those in ``unknown`` is not known."""
    for key in ("host_key", "user_key"):
        subprocess.run(
            [_found("ssh-keygen") or "", "-q", "-t", "ed25519", "-N", "", "-f", folder / key],
            check=True,
        )
    public = (folder / "host_key.pub").read_text().split()[:2]
    shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
    ports = {name: free_port() for name in hosts}
    server = [f"ListenAddress 127.0.0.1:{port}" for port in ports.values()]
    server += [f"HostKey {folder}/host_key", f"AuthorizedKeysFile {folder}/authorized_keys", f"PidFile {folder}/pid",
               "StrictModes no", "UsePAM no", "PermitRootLogin yes", "MaxStartups 64"]  # fmt: skip
    client, known = [], []
    for name, command in hosts.items():
        script = folder / f"{name}.sh"
        script.write_text(f"{command}\n")
        server += [f"Match LocalPort {ports[name]}", f"  ForceCommand /bin/sh {script}"]
        server += ["  PubkeyAuthentication no"] * (name in asking)
        client += [f"Host {name}", "  HostName 127.0.0.1", f"  Port {ports[name]}"]
        known += [f"[127.0.0.1]:{ports[name]} {' '.join(public)}\n"] * (name not in unknown)
    client += ["Host *", f"  IdentityFile {folder}/user_key", "  IdentitiesOnly yes", "  IdentityAgent none",
               f"  UserKnownHostsFile {folder}/known_hosts", "  StrictHostKeyChecking yes"]  # fmt: skip
    (folder / "known_hosts").write_text("".join(known))
    (folder / "sshd_config").write_text("\n".join(server) + "\n")
    (folder / "ssh_config").write_text("\n".join(client) + "\n")
    sshd = _found("sshd") or ""
    command = [sshd, "-D", "-e", "-f", str(folder / "sshd_config")]
    if os.geteuid() == 0:
        users = Path("/etc/passwd").read_text()
        more = "" if "\nsshd:" in users else "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n"
        (folder / "passwd").write_text(users + more)
        command = ["unshare", "-m", "sh", "-c", _IN_NAMESPACE.format(folder=folder, sshd=sshd)]
    # Unpacked and not installed, it has its libraries beside it.
    libraries = [str(path) for path in Path(sshd).parents[1].glob("lib/*-linux-gnu")]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)}
    with (folder / "log").open("wb") as log, started(command, log, env=environment):
        deadline = time.monotonic() + 20.0
        while not all(map(_listens, ports.values())):
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.05)
        yield folder / "ssh_config"


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
