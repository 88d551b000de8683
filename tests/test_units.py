import pytest

from dpca.units import walltime_seconds


@pytest.mark.parametrize(
    ("walltime", "seconds"),
    [
        ("30", 1800),
        ("30:10", 1810),
        ("02:00:00", 7200),
        ("1-00", 86400),
        ("1-02:30", 95400),
        ("1-02:30:05", 95405),
    ],
)
def test_walltimes_as_sbatch_takes_them(walltime, seconds):
    assert walltime_seconds(walltime) == seconds


@pytest.mark.parametrize("walltime", ["soon", "1:2:3:4", "-3", "2h"])
def test_other_times_are_refused(walltime):
    with pytest.raises(ValueError, match=walltime):
        walltime_seconds(walltime)
