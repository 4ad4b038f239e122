"""Where the packages are that Debian does not have."""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build/python/bin/python3"


def use_build_python():
    """Starts this program again in build/python, where there is one."""
    if PYTHON.exists() and pathlib.Path(sys.executable) != PYTHON:
        os.execv(PYTHON, [str(PYTHON)] + sys.argv)


def skip(missing):
    print(f"skipped: {missing}; deploy/install-deps.sh installs it into "
          f"{PYTHON.parents[1]}, from PyPI")
    sys.exit(77)
