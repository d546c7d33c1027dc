"""What the matrix does to the world of all situations: every verb, with every kind of fence.

A cell acts on a world and returns what the store answered; errors count as answers.
"""

from __future__ import annotations

from tests.conformance.cells import maintaining, paths, submitting, working
from tests.conformance.cells.cell import CELLS

__all__ = ["CELLS", "maintaining", "paths", "submitting", "working"]
