"""Two hosts on one machine: network namespaces with names of their own, a link each, and a remote shell that enters them. As root, with iproute2.

    with two_hosts(folder) as hosts:          # NoHosts where namespaces are not to be had
        subprocess.run(mpirun_between(hosts, words)); hosts.limit("1gbit"); hosts.cut("nb")
        with hosts.wire("build/wire", delay_ms=1, loss=0.01) as (device, told): ...

mpirun reaches them by `--mca plm rsh --mca plm_rsh_agent AGENT` (hosts.agent), `lockstep launch` by `--agent`. The namespaces, and what runs in them, are gone afterwards.
"""
import contextlib
import json
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

NAMES = ("na", "nb")
AGENT = """#!/bin/sh
# As ssh: a host whose link is down is not reached.
host=$1; shift
ip netns exec "{prefix}$host" ip route get {here} >/dev/null 2>&1 || exit 255
exec ip netns exec "{prefix}$host" unshare --uts sh -c 'hostname "$0" && exec sh -c "$1"' "$host" "$*"
"""


class NoHosts(Exception):
    """There are no network namespaces here: not root, no tools, or the kernel refuses."""


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


@dataclass
class Hosts:
    agent: Path
    prefix: str
    net: str  # the first two numbers of their addresses

    def cut(self, host):
        ip("-n", self.prefix + host, "link", "set", "eth0", "down")

    def limit(self, rate, hosts=NAMES):
        """What these hosts send has this rate from now on, as tc writes it (`200mbit`); none: as fast as it goes."""
        burst = "512kb" if rate and rate.endswith("gbit") else "64kb"  # tokens come some hundred times a second
        for host in hosts:
            subprocess.run([self.agent, host, "tc qdisc del dev eth0 root"], capture_output=True)
            if not rate:
                continue
            shaped = subprocess.run([self.agent, host, f"tc qdisc add dev eth0 root tbf rate {rate} burst {burst} latency 200ms"], capture_output=True, text=True)
            if shaped.returncode:
                raise NoHosts(f"no rate was set: {shaped.stderr.strip()[:80]}")

    @contextlib.contextmanager
    def wire(self, program, **faults):
        """A second link between the two, by build/wire, with its faults: delay_ms, jitter_ms, loss, reorder. Its device, and what it carried and lost, known behind the block."""
        told, device = {}, "wire0"
        options = [word for name, value in faults.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        spaces = [f"/run/netns/{self.prefix}{host}" for host in NAMES]
        process = subprocess.Popen([program, *spaces, device, "--seed", "7", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            if process.stdout.readline().strip() != "ready":
                raise NoHosts(f"no network namespaces: {process.stderr.read().strip()[:80]}")
            for number, host in enumerate(NAMES, 1):
                ip("-n", self.prefix + host, "addr", "add", f"{self.net}.78.{number}/30", "dev", device)
                ip("-n", self.prefix + host, "link", "set", device, "mtu", "1400", "up")
            yield device, told
        finally:
            said, _ = process.communicate(timeout=30)  # its input ends, and so does it
            if said.strip():
                told.update(json.loads(said.strip().splitlines()[-1]))


def mpirun_between(hosts, words):
    """The command line of a process on each of the two."""
    return ["mpirun", "--host", "na:1,nb:1", "-n", "2", "--map-by", "slot", "--bind-to", "none", "--mca", "plm", "rsh", "--mca", "plm_rsh_agent", str(hosts.agent),
            *map(str, words)]  # fmt: skip


@contextlib.contextmanager
def two_hosts(folder):
    """The hosts, for the time of the block; `folder` gets the remote shell."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
        raise NoHosts("no network namespaces")
    prefix, net, bridge = f"ls{os.getpid()}-", f"10.{os.getpid() % 200 + 20}", f"b{os.getpid()}"
    try:
        try:
            ip("link", "add", bridge, "type", "bridge")
            ip("addr", "add", f"{net}.77.1/24", "dev", bridge)
            ip("link", "set", bridge, "up")
            for number, host in enumerate(NAMES, 2):
                ip("netns", "add", prefix + host)
                ip("link", "add", f"{bridge}{host}", "type", "veth", "peer", "name", "eth0", "netns", prefix + host)
                ip("link", "set", f"{bridge}{host}", "master", bridge, "up")
                ip("-n", prefix + host, "addr", "add", f"{net}.77.{number}/24", "dev", "eth0")
                ip("-n", prefix + host, "link", "set", "eth0", "up")
                ip("-n", prefix + host, "link", "set", "lo", "up")
        except subprocess.CalledProcessError as error:
            raise NoHosts(f"no network namespaces: {error.stderr.strip()[:80]}") from None
        agent = Path(folder) / "agent"
        agent.write_text(AGENT.format(prefix=prefix, here=f"{net}.77.1"))
        agent.chmod(0o755)
        yield Hosts(agent, prefix, net)
    finally:
        for host in NAMES:
            for pid in ip("netns", "pids", prefix + host, check=False).stdout.split():  # Open MPI's daemon on a host that nobody reaches any more
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            ip("netns", "del", prefix + host, check=False)
        ip("link", "del", bridge, check=False)
