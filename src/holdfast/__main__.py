"""``python -m holdfast``: the command line without its script on the PATH."""

from __future__ import annotations

from holdfast.cli import main

if __name__ == "__main__":
    main()
