"""The files of the project, as the architecture tests read them."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "holdfast"
TEXT = {"", ".css", ".html", ".js", ".lua", ".md", ".mjs", ".py", ".sql", ".toml", ".txt", ".typed"}
UNREAD = {".git", ".venv", "__pycache__", "node_modules", "dist", "build", "htmlcov"}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def sources(*suffixes: str) -> list[Path]:
    """The files of the package with one of the suffixes."""
    files = (path for path in PACKAGE.rglob("*") if path.is_file())
    return sorted(path for path in files if path.suffix in suffixes)


def public_modules() -> list[Path]:
    """Modules without an underscore in their path, packages by their `__init__`."""
    return [path for path in sources(".py") if _is_public(path)]


def written_files() -> list[Path]:
    """Every text file that belongs to the project, generated and ignored ones left out."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:  # an unpacked archive, or a checkout that git does not trust
        paths = [path for path in ROOT.rglob("*") if not UNREAD & set(path.parts)]
    return sorted(path for path in paths if path.is_file() and path.suffix in TEXT)


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_public(path: Path) -> bool:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return not any(part.startswith("_") and part != "__init__" for part in parts)
