"""One target under atheris; libFuzzer needs a process for each."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["holdfast", "tests.fuzz.targets"]):
    from tests.fuzz.targets import TARGETS

if __name__ == "__main__":
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, TARGETS[name])
    atheris.Fuzz()
