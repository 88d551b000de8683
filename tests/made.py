"""What many tests begin with, such as a result that they only read: made once a process, and copied to each."""

import atexit
import os
import pickle
import shutil
from contextlib import chdir
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

_PLACE = TemporaryDirectory(prefix="dpca-tests-", ignore_cleanup_errors=True)
atexit.register(_PLACE.cleanup)  # else its end is a ResourceWarning, which is an error in processes of tests
_OWNER = os.getpid()


def made(make, *arguments, **options):
    """Have here what `make(*arguments, **options)` leaves in an empty directory; it is called once for equal arguments.

    `make` is a function of a module, and what it makes depends on its arguments alone: a test that patches what it calls, or
    that is about the making, calls it itself.
    """
    assert os.getpid() == _OWNER
    key = sha256(pickle.dumps((make.__module__, make.__qualname__, arguments, sorted(options.items())))).hexdigest()
    there = Path(_PLACE.name, key)
    if not there.exists():
        partial = Path(f"{there}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        with chdir(partial):
            make(*arguments, **options)
        partial.rename(there)
    shutil.copytree(there, ".", dirs_exist_ok=True, symlinks=True)
