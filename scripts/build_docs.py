"""Build the documentation site: ``make docs``, or ``python -m scripts.build_docs FOLDER``.

The pages are those of docs/. Their fences say what tests do with a block, which the site
generator does not know: they are rewritten in a copy. Every warning of the generator, such as a
link that leads nowhere, fails the build.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w+) (example|output|file=(\S+))$", re.MULTILINE)
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class BrokenSiteError(Exception):
    """The generator found fault with the pages."""


def build(target: Path) -> None:
    """Write the site to a folder; BrokenSiteError names what is wrong with it."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        shutil.copy(ROOT / "zensical.toml", place)
        shutil.copytree(ROOT / "docs", place / "docs")
        for page in (place / "docs").glob("*.md"):
            page.write_text(rewritten(page.read_text("utf-8")), "utf-8")
        command = [str(Path(sys.executable).parent / "zensical"), "build", "--strict"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        said = COLOUR.sub("", done.stdout + done.stderr)
        if done.returncode:
            raise BrokenSiteError(said)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(place / "site", target)
    (target / "llms.txt").write_text("\n".join(_index()) + "\n", "utf-8")


def rewritten(text: str) -> str:
    """Return a page whose fences name a language, and a title for a file."""
    return FENCE.sub(lambda found: f"```{found[1]}" + _title(found[3]), text)


def navigation() -> list[str]:
    """Return the pages that the navigation names, in order."""
    return list(
        _pages(tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"])
    )


def _pages(entries: object) -> Iterator[str]:
    match entries:
        case str():
            yield entries
        case list():
            for entry in entries:
                yield from _pages(entry)
        case dict():
            for entry in entries.values():
                yield from _pages(entry)


def _title(file: str | None) -> str:
    return f' title="{file}"' if file else ""


def _index() -> Iterator[str]:
    """The pages with their titles, for programs that read."""
    yield "# holdfast"
    yield ""
    yield "> A durable job queue for Python: one job model, one set of promises, four stores."
    yield ""
    for page in navigation():
        text = (ROOT / "docs" / page).read_text("utf-8")
        found = TITLE.search(text)
        yield f"- [{found[1] if found else page}]({page.removesuffix('.md')}/)"


def main() -> None:
    """Build the site into the folder that the first argument names."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "site")
    try:
        build(target)
    except BrokenSiteError as error:
        sys.exit(f"holdfast: the pages have faults\n{error}")
    sys.stdout.write(f"{target}\n")


if __name__ == "__main__":
    main()
