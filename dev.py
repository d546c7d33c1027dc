#!/usr/bin/env python3
"""Set up .venv beside this file and run a development command in it.

Needs Python 3.11+ and nothing else: `python3 dev.py demo`, `python3 dev.py test`.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

if sys.version_info < (3, 11):
    sys.exit("holdfast needs Python 3.11 or newer, this is " + sys.version.split()[0])

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / "python"
STAMP = VENV / "synced"

CORE = ("core",)
FULL = ("core", "full")
FUZZ = ("core", "full", "fuzz")
"""Files of pins/: versions with hashes, of all that is installed."""
PURE = ("src/holdfast/model/*.py", "src/holdfast/errors.py")
"""What the tests of the model must cover, branch by branch."""

COMMANDS = {
    "demo": (CORE, ["holdfast", "demo"], "run the demonstration, with the core packages only"),
    "test": (
        FULL,
        ["python", "-m", "pytest", "-n", "2", "--dist", "worksteal"],
        "run the tests, on every store",
    ),
    "postgres": (
        FULL,
        ["python", "-m", "tests.postgres_versions"],
        "run the tests of the PostgreSQL store on servers of every major version",
    ),
    "check": (FULL, None, "format, lint, types, import contracts, model coverage, conformance"),
    "conformance": (FULL, ["python", "-m", "tests.conformance_table"], "write docs/conformance.md"),
    "sync": (FULL, ["python", "-m", "scripts.generate_sync"], "write operations/sync.py"),
    "docs": (FULL, ["python", "-m", "scripts.build_docs"], "build the documentation into site/"),
    "bench": (FULL, ["python", "-m", "bench"], "run the benchmarks"),
    "mutants": (FULL, ["python", "-m", "tests.mutants"], "see that the suite catches known bugs"),
    "simulate": (FULL, ["python", "-m", "tests.simulate"], "run the whole system in virtual time"),
    "fuzz": (
        FUZZ,
        ["python", "-m", "tests.fuzz"],
        "feed every decoder with a million strange inputs",
    ),
    "torture": (
        FULL,
        ["python", "-m", "tests.torture"],
        "kill real workers and servers for a while",
    ),
    "shell": (FULL, [os.environ.get("SHELL", "sh")], "open a shell inside the environment"),
}


def main(arguments: list[str]) -> int:
    name = arguments[0] if arguments else "help"
    if name not in COMMANDS:
        print("usage: python3 dev.py COMMAND [ARGUMENT...]\n")
        for command, (_, _, purpose) in COMMANDS.items():
            print(f"  {command:12} {purpose}")
        return 0 if name in ("help", "-h", "--help") else 2
    packages, command, _ = COMMANDS[name]
    sync(*packages)
    os.chdir(ROOT)
    os.environ["VIRTUAL_ENV"] = str(VENV)
    os.environ["PATH"] = str(BIN) + os.pathsep + os.environ.get("PATH", os.defpath)
    if command is None:
        return check()
    return replace_this_process([*command, *arguments[1:]])


def sync(*pins: str) -> None:
    """Install holdfast and what is pinned, unless the same was installed before."""
    place = f"{sys.version} {sys.base_prefix} {ROOT}"
    files = [f"pins/{name}.txt" for name in pins]
    state = _digest_of(place, pins)
    done = STAMP.read_text("utf-8").splitlines() if STAMP.exists() else []
    if state in done:
        return
    if _digest(place.encode()) not in done or not PYTHON.exists():
        create_environment()
    print(f"holdfast: installing {', '.join(files)} into {VENV}", file=sys.stderr)
    wanted = [word for file in files for word in ("-r", file)]
    subprocess.run([*installer(), "--require-hashes", *wanted], cwd=ROOT, check=True)
    itself = ["--no-deps", "--no-build-isolation", "-e", "."]
    subprocess.run([*installer(), *itself], cwd=ROOT, check=True)
    smaller = [_digest_of(place, pins[:count]) for count in range(1, len(pins) + 1)]
    STAMP.write_text("\n".join([_digest(place.encode()), *smaller]) + "\n", "utf-8")


def _digest_of(place: str, pins: tuple[str, ...]) -> str:
    files = ("pyproject.toml", *(f"pins/{name}.txt" for name in pins))
    return _digest(place.encode(), *map(_read, files))


def create_environment() -> None:
    """Make .venv anew: it is missing, unfinished, moved, or of another interpreter."""
    uv = shutil.which("uv")
    if uv:
        subprocess.run([uv, "venv", "-q", "--clear", "-p", sys.executable, VENV], check=True)
        return
    if importlib.util.find_spec("ensurepip") is None:
        sys.exit(
            "holdfast: this Python cannot create virtual environments. On Debian or Ubuntu run "
            "'apt-get install python3-venv' and try again, or install uv"
        )
    venv.create(VENV, clear=True, with_pip=True)


def installer() -> list[str]:
    uv = shutil.which("uv")
    if uv:
        return [uv, "pip", "install", "-q", "-p", str(PYTHON)]
    return [str(PYTHON), "-m", "pip", "install", "-q", "--disable-pip-version-check"]


def check() -> int:
    """Run every check, then name the ones that failed."""
    checks = {
        "format": ["ruff", "format", "--check", "."],
        "lint": ["ruff", "check", "."],
        "types": ["mypy"],
        "types, strictly": ["pyright", "--pythonpath", str(PYTHON)],
        "imports": ["lint-imports", "--no-logo"],
        **model_coverage(),
        "conformance": ["python", "-m", "tests.conformance_table", "--check"],
    }
    failed = [name for name, command in checks.items() if not passes(name, command)]
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return 1 if failed else 0


def model_coverage() -> dict[str, list[str]]:
    """The model is pure, so its own tests must take every branch of it."""
    data = "--data-file=.coverage.model"
    return {
        "model tests": ["coverage", "run", data, "-m", "pytest", "-q", "tests/model"],
        "model coverage": [
            "coverage",
            "report",
            data,
            "--fail-under=100",
            "--include",
            ",".join(PURE),
        ],
    }


def passes(name: str, command: list[str]) -> bool:
    print(f"--- {name}: {' '.join(command)}", flush=True)
    started = time.monotonic()
    done = subprocess.run([str(BIN / command[0]), *command[1:]], check=False)
    print(f"    {time.monotonic() - started:.1f} s", flush=True)
    return done.returncode == 0


def replace_this_process(command: list[str]) -> int:
    program = shutil.which(command[0]) or command[0]
    sys.stdout.flush()
    if os.name == "nt":
        return subprocess.run([program, *command[1:]], check=False).returncode
    return os.execv(program, [program, *command[1:]])


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _read(name: str) -> bytes:
    return (ROOT / name).read_bytes()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
