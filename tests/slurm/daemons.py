"""A Slurm of the test's own on this machine: munged, slurmctld and four slurmd, in a directory, on loopback."""

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "sinfo")
START_SECONDS, NODES = 60, 4
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL"}
"""All other states pass: besides PENDING and RUNNING, such as SIGNALING, and PREEMPTED, which here is a requeue's."""

CONFIG = """
ClusterName=dpca{port}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket,cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool-%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
MinJobAge=3600
SchedulerParameters=sched_interval=1,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill
{nodes}
PartitionName=low Nodes=n[1-{count}] Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=high Nodes=n[1-{count}] MaxTime=INFINITE State=UP PriorityTier=10
"""


def missing():
    """The programs that are not installed."""
    path = os.environ.get("PATH", "") + ":/usr/sbin"
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def until(what, seconds=120, explain=lambda: ""):
    """What a function returns, once that is something: Slurm tells nothing without being asked."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, f"not in {seconds} s: {explain()}"
        time.sleep(0.1)
    return found


class Slurm:
    """A running cluster."""

    def __init__(self, place):
        self.place = place

    @property
    def environment(self):
        """What its commands need, besides what there is now."""
        path = f"{os.environ['PATH']}:/usr/bin:/usr/sbin"
        return {**os.environ, "PATH": path, "SLURM_CONF": str(self.place / "slurm.conf")}

    def __call__(self, *command, check=True):
        """Standard output of a command of Slurm's."""
        done = subprocess.run([str(word) for word in command], env=self.environment, capture_output=True, text=True)
        if check and done.returncode:
            raise AssertionError(f"{command}: {done.stderr}\n{self.logs()}")
        return done.stdout.strip()

    def states(self, job):
        """Of a job's tasks, by index."""
        found = {}
        for line in self("scontrol", "show", "job", job, "--oneliner").splitlines():
            words = dict(word.split("=", 1) for word in line.split() if "=" in word)
            found[words.get("ArrayTaskId", words["JobId"])] = words["JobState"]
        return found

    def wait(self, job, seconds=120):
        """Until each task of a job has ended; returns their states."""

        def ended():
            states = self.states(job)
            return states if ENDED.issuperset(states.values()) else None

        return until(ended, seconds, lambda: f"job {job}: {self.states(job)}\n{self.logs()}")

    def queue(self, *how):
        """Numbers of the jobs that are pending or running, by sbatch's order."""
        return sorted(int(job) for job in self("squeue", "-h", "-o", "%A", *how).split())

    def logs(self):
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in self.place.glob("*.log"))


@contextmanager
def slurm(place: Path):
    """Start it, and end it by its processes' numbers."""
    place.mkdir(parents=True)
    place.chmod(0o755)
    ports = free_ports(NODES + 1)
    host = subprocess.run(["hostname", "-s"], capture_output=True, text=True).stdout.strip()
    cpus = os.cpu_count()
    nodes = "\n".join(
        f"NodeName=n{i + 1} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[i + 1]} CPUs={cpus} RealMemory=8000 State=UNKNOWN"
        for i in range(NODES)
    )
    (place / "slurm.conf").write_text(CONFIG.format(port=ports[0], host=host, place=place, nodes=nodes, count=NODES))
    (place / "state").mkdir()
    for i in range(NODES):
        (place / f"spool-n{i + 1}").mkdir()
    key = place / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    cluster, running = Slurm(place), []

    def start(*command):
        with open(place / f"{Path(command[0]).name}{len(running)}.out", "w") as said:
            running.append(subprocess.Popen(command, env=cluster.environment, stdout=said, stderr=said))

    try:
        start(
            *("/usr/sbin/munged", "--foreground", "--force", f"--socket={place}/munge.socket", f"--key-file={key}"),
            *(f"--pid-file={place}/munged.pid", f"--log-file={place}/munged.log", f"--seed-file={place}/munged.seed"),
        )
        until((place / "munge.socket").exists, START_SECONDS, cluster.logs)
        start("/usr/sbin/slurmctld", "-D", "-f", str(place / "slurm.conf"))
        for i in range(NODES):
            start("/usr/sbin/slurmd", "-D", "-N", f"n{i + 1}", "-f", str(place / "slurm.conf"))
        idle = f"idle {NODES}"
        until(
            lambda: cluster("sinfo", "-h", "-o", "%T %D", check=False).split("\n")[0] == idle,
            START_SECONDS,
            cluster.logs,
        )
        yield cluster
    finally:
        cluster("scancel", "--user=root", check=False)
        for process in reversed(running):
            process.terminate()
        for process in reversed(running):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
