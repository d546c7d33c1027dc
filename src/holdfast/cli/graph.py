"""The command that shows the workflow around a job."""

from __future__ import annotations

import click

from holdfast.cli.common import answer, on_store, store_options
from holdfast.cli.tables import table
from holdfast.operations.graph import JobGraph


@click.command()
@click.argument("job_id", metavar="ID")
@click.option("--all", "every", is_flag=True, help="Show each job, also siblings that are alike.")
@store_options
def graph(job_id: str, every: bool, url: str | None, as_json: bool) -> None:
    """Show the jobs around a job: what it waits for, what it spawned, what waits for them."""
    found = on_store(url, lambda app: app.graph(job_id, collapse=not every))
    answer(found, as_json=as_json, show=lambda: _show(found))


def _show(graph: JobGraph) -> None:
    numbers = {node.id: number for number, node in enumerate(graph.nodes, 1)}
    after = {node.id: "" for node in graph.nodes}
    for edge in graph.edges:
        text = f"{numbers[edge.source]} ({edge.kind})"
        after[edge.target] += f", {text}" if after[edge.target] else text
    table(
        ("NODE", "TYPE", "QUEUE", "JOBS", "STATES", "AFTER", "FIRST JOB"),
        [
            (
                f"{numbers[node.id]}{' *' if node.current else ''}",
                node.type,
                node.queue,
                node.count,
                " ".join(f"{state}={count}" for state, count in node.states.items()),
                after[node.id] or "-",
                node.id,
            )
            for node in graph.nodes
        ],
    )
    if graph.truncated:
        click.echo(f"the first {graph.jobs} jobs; there are more")
