"""A real cluster of three nodes, from the same binary as the single server."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from redis import Redis

from tests.servers import Valkey
from tests.store.redis.servers import until

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOTS = 16384
NODES = 3
READY_WITHIN = 20.0


class Node(Valkey):
    """One node; its bus listens beside its port, on loopback only."""

    def __init__(self) -> None:
        super().__init__(["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"])


@contextlib.contextmanager
def running_cluster() -> Iterator[list[Node]]:
    """Start three nodes and join them."""
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(Node()) for _ in range(NODES)]
        clients = [stack.enter_context(Redis(port=node.port)) for node in nodes]
        share = SLOTS // NODES
        for i, client in enumerate(clients):
            last = SLOTS - 1 if i == NODES - 1 else (i + 1) * share - 1
            client.execute_command("CLUSTER ADDSLOTSRANGE", i * share, last)
        for node in nodes[1:]:
            clients[0].execute_command("CLUSTER MEET", "127.0.0.1", node.port)
        until(lambda: all(map(_is_whole, clients)), "the cluster did not form")
        yield nodes


def _is_whole(client: Redis) -> bool:
    info = client.execute_command("CLUSTER INFO")
    fields = (
        info
        if isinstance(info, dict)
        else dict(line.split(":", 1) for line in bytes(info).decode().split("\r\n") if ":" in line)
    )
    return (fields["cluster_state"], fields["cluster_known_nodes"]) == ("ok", str(NODES))
