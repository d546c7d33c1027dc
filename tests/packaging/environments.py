"""Clean virtual environments with chosen distributions, made without network or pip.

Each holds the files of the built wheel and links to the files of exactly those distributions that
pip would install for the chosen extras, as the wheel's own metadata names them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "holdfast-queue"
LIBRARY = sysconfig.get_path("purelib", "venv", vars={"base": ".", "platbase": "."})


class CleanEnvironment:
    """A virtual environment with the wheel and what its extras require."""

    def __init__(self, folder: Path, wheel: Path, *extras: str) -> None:
        self.folder = folder
        venv.create(folder, symlinks=os.name != "nt", with_pip=False)
        self._library = folder / LIBRARY
        for entry in unpacked(wheel).iterdir():
            (self._library / entry.name).symlink_to(entry)
        self.distributions = set(required(self._library, extras))
        for name in self.distributions:
            self._link(metadata.distribution(name))

    def run(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run `python` of the environment, isolated from everything else."""
        bare = {k: v for k, v in os.environ.items() if not k.startswith(("HOLDFAST", "PYTHON"))}
        python = self.folder / ("Scripts" if os.name == "nt" else "bin") / "python"
        return subprocess.run(
            [str(python), *words],
            cwd=cwd or self.folder,
            env=bare,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def holdfast(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command that the wheel's entry point names."""
        return self.run("-c", "import sys; from holdfast.cli import main; sys.exit(main())", *words)

    def _link(self, distribution: metadata.Distribution) -> None:
        """Link the files of a distribution; those of folders that it shares, one by one."""
        shared = shared_folders()
        for file in distribution.files or ():
            if ".." in file.parts or file.suffix == ".pyc":
                continue  # scripts and manual pages lie outside the library
            depth = len(file.parts) if file.parts[0] in shared else 1
            target = self._library.joinpath(*file.parts[:depth])
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(Path(str(distribution.locate_file(Path(*file.parts[:depth])))))


@cache
def shared_folders() -> set[str]:
    """Folders that several distributions install files into, such as opentelemetry's."""
    return {name for name, owners in metadata.packages_distributions().items() if owners[1:]}


@cache
def unpacked(wheel: Path) -> Path:
    """The folder with the files of a wheel. Environments share it, and what Python compiles."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(wheel.parent / "unpacked")
    return wheel.parent / "unpacked"


def required(library: Path, extras: tuple[str, ...]) -> Iterator[str]:
    """The distributions that a wheel requires, directly or through others."""
    [itself] = metadata.distributions(name=PROJECT, path=[str(library)])
    open_ = [(itself, extra) for extra in ("", *extras)]
    seen = {(canonicalize_name(PROJECT), extra) for extra in ("", *extras)}
    while open_:
        distribution, extra = open_.pop()
        for text in distribution.requires or ():
            wanted = Requirement(text)
            if wanted.marker and not wanted.marker.evaluate({"extra": extra}):
                continue
            name = canonicalize_name(wanted.name)
            for more in ("", *wanted.extras):
                if (name, more) not in seen:
                    seen.add((name, more))
                    found = itself if name == PROJECT else metadata.distribution(name)
                    open_.append((found, more))
            if name != PROJECT:
                yield name


def build(folder: Path, source: Path) -> tuple[Path, Path]:
    """Build the wheel and the source distribution with what is installed."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=60)
    [wheel], [archive] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, archive
