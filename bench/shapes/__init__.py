"""What ordinary uses of the queue cost beside the plain job, on every durable store.

``python -m bench shapes``: each row is one shape of use with the figure to reach. Every figure is a
ratio to something that was measured in the same run, in turns, or a share of what is possible.
``--only WORD`` runs the rows whose name contains the word.
"""

from __future__ import annotations
