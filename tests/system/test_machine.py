import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpca.system import machine
from dpca.system.machine import Limit, Peak, cores, free_disk, memory_budget, memory_limits

GIB = 2**30


def tree(root, files):
    for path, text in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def groups(root):
    return {limit.name: (limit.bytes, limit.free) for limit in memory_limits({}, root) if "group" in limit.name}


def test_version_2_limits_count_at_every_level(tmp_path):
    tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/slurm/job_7/step_0\n",
            "sys/fs/cgroup/slurm/job_7/step_0/memory.max": "max\n",
            "sys/fs/cgroup/slurm/job_7/step_0/memory.current": "100\n",
            "sys/fs/cgroup/slurm/job_7/memory.max": f"{4 * GIB}\n",
            "sys/fs/cgroup/slurm/job_7/memory.current": f"{3 * GIB}\n",
            "sys/fs/cgroup/slurm/job_7/memory.stat": f"anon 5\ninactive_file {2 * GIB}\n",
        },
    )
    # 3 GiB are used, but 2 of them are page cache that goes when memory is needed.
    assert groups(tmp_path) == {"control group /slurm/job_7": (4 * GIB, 3 * GIB)}


def test_version_1_limits_count_and_its_largest_number_is_none(tmp_path):
    mount = "sys/fs/cgroup/memory"
    tree(
        tmp_path,
        {
            "proc/self/cgroup": "9:cpu:/x\n4:memory:/batch/1\n0::/\n",
            f"{mount}/batch/1/memory.limit_in_bytes": "9223372036854771712\n",
            f"{mount}/batch/1/memory.usage_in_bytes": "10\n",
            f"{mount}/batch/memory.limit_in_bytes": f"{GIB}\n",
            f"{mount}/batch/memory.usage_in_bytes": f"{GIB // 2}\n",
            f"{mount}/batch/memory.stat": "cache 1\ntotal_inactive_file 0\n",
        },
    )
    assert groups(tmp_path) == {"control group /batch": (GIB, GIB // 2)}


def test_a_container_that_sees_its_own_group_as_the_root_is_found(tmp_path):
    tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/docker/abc\n",
            "sys/fs/cgroup/memory.max": f"{GIB}\n",
            "sys/fs/cgroup/memory.current": "0\n",
        },
    )
    assert groups(tmp_path) == {"control group /": (GIB, GIB)}


def test_a_machine_without_groups_has_its_own_memory(tmp_path):
    (limit,) = memory_limits({}, tmp_path)
    assert limit.name == "this machine's memory"
    assert 0 < limit.free <= limit.bytes


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"SLURM_MEM_PER_NODE": "2048"}, 2 * GIB),
        ({"SLURM_MEM_PER_CPU": "512", "SLURM_CPUS_ON_NODE": "4"}, 2 * GIB),
        ({"SLURM_MEM_PER_NODE": "0"}, None),
        ({}, None),
    ],
)
def test_slurms_allocation_is_a_limit(environ, expected, tmp_path):
    found = [limit.bytes for limit in memory_limits(environ, tmp_path) if "Slurm" in limit.name]
    assert found == ([] if expected is None else [expected])


LIMITS = [Limit(16 * GIB, 3 * GIB, "this machine's memory"), Limit(4 * GIB, 2 * GIB, "control group /job")]


def test_the_default_budget_is_half_of_what_is_free_under_the_tightest_limit():
    budget = memory_budget(None, LIMITS)
    assert (budget.bytes, budget.lowered) == (GIB, False)
    assert budget.origin == "half of the 2 GiB free of control group /job"


def test_more_than_a_limit_is_lowered_to_it_and_said_so():
    budget = memory_budget(8 * GIB, LIMITS)
    assert budget.lowered
    assert budget.bytes == pytest.approx(2 * GIB + machine.private_bytes(), rel=0.01)  # others hold the rest
    assert budget.origin == "what is free of control group /job, 4 GiB, which is less than the 8 GiB asked for"
    assert memory_budget(3 * GIB, LIMITS).bytes == 3 * GIB


def in_a_process_of_its_own(script):
    """What it prints: here, memory of other tests may be given back in between."""
    imports = "import numpy as np\nfrom dpca.system.machine import private_bytes, watched_memory\n"
    command = [sys.executable, "-c", imports + script]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_private_memory_counts_what_is_touched_until_the_end():
    script = (
        "with watched_memory(3600) as peak:\n"
        "    while not peak.bytes: pass\n"  # the first sample; the next would be in an hour
        "    before, held = private_bytes(), np.ones(2**24)\n"
        "    after = private_bytes()\n"
        "print(after - before, peak.bytes - after)\n"
    )
    grown, above = map(int, in_a_process_of_its_own(script).split())
    assert 0.95 * 2**27 < grown < 1.05 * 2**27
    assert above > -(2**23)


def test_private_memory_is_sampled_while_it_is_held():
    script = (
        "with watched_memory(0.001) as peak:\n"
        "    before, held = private_bytes(), np.ones(2**24)\n"
        "    while peak.bytes < before + 2**26: pass\n"
        "    del held\n"
        "print(peak.bytes - before)\n"
    )
    assert int(in_a_process_of_its_own(script)) > 0.95 * 2**26


def test_free_disk_of_a_path_that_does_not_exist_yet(tmp_path):
    assert free_disk(tmp_path / "a" / "b") == pytest.approx(free_disk(tmp_path), rel=0.01)
    assert free_disk(Path("relative/to/here")) > 0


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/self/cgroup": "0::/job/step\n", "sys/fs/cgroup/job/cpu.max": "100000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/job/step\n", "sys/fs/cgroup/job/step/cpu.max": "max 100000\n"}, None),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/job\n",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
            },
            1,
        ),
        ({"proc/self/cgroup": "3:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n"}, None),
        ({}, None),
    ],
)
def test_cores_are_those_of_affinity_and_of_quotas_at_every_level(tmp_path, files, expected):
    tree(tmp_path, files)
    assert cores(tmp_path) == (expected or len(os.sched_getaffinity(0)))


def test_memory_is_counted_where_it_is_higher_than_before_in_a_stage(monkeypatch):
    """A count walks over all pages, so that it is not made each time."""
    resident, counts = [100 * 2**20], []
    monkeypatch.setattr(machine, "resident_bytes", lambda: resident[0])
    monkeypatch.setattr(machine, "private_bytes", lambda: counts.append(resident[0]) or resident[0] + 1)
    peak = Peak()
    for stage, mebibytes, at in (
        ("a", 100, 1),
        ("a", 100, 1),
        ("a", 200, 2),
        ("a", 150, 2),
        ("b", 50, 3),
        ("b", 50, 3),
    ):
        peak.enter(stage)
        resident[0] = mebibytes * 2**20
        peak.look()
        assert len(counts) == at, (stage, mebibytes)
    assert peak.stages == {"a": 200 * 2**20 + 1, "b": 50 * 2**20 + 1}
    peak.count()
    assert len(counts) == 4
