"""One trace from a web request through Python and Node workers, in five processes."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest

from tests.processes import running
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.servers import Valkey
    from tests.wire.peer import Peer

SITE = """
import json, os
from contextlib import asynccontextmanager

from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from holdfast import Holdfast, JobContext
from holdfast.contrib.otel import OpenTelemetry

provider = TracerProvider()
provider.add_span_processor(
    SimpleSpanProcessor(
        ConsoleSpanExporter(
            out=open(os.environ["SPANS"], "a", buffering=1),
            formatter=lambda span: span.to_json(indent=None) + "\\n",
        )
    )
)
trace.set_tracer_provider(provider)
app = Holdfast()
app.middleware(OpenTelemetry(parent=True))


@app.task("order.place", queue="orders")
async def place(ctx: JobContext, number: int) -> None:
    last = {"queue": "orders", "job": "order.done", "data": {"number": number}}
    await ctx.spawn("order.pack", {"next": last}, key="pack", queue="packing")


@app.task("order.done", queue="orders")
def done(number: int) -> int:
    return number


@asynccontextmanager
async def lifespan(site):
    async with app:
        yield


site = FastAPI(lifespan=lifespan)


@site.post("/orders/{number}")
async def order(number: int) -> str:
    with trace.get_tracer("site").start_as_current_span("POST /orders"):
        return (await place.using(queue="orders").submit(number)).job_id
"""


def _free_port() -> int:
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return int(line.getsockname()[1])


def _spans(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def _wait_for(what: str, path: Path) -> list[dict[str, Any]]:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        spans = _spans(path)
        if any(span["attributes"].get("holdfast.job.type") == what for span in spans):
            return spans
        time.sleep(0.05)  # other processes write the spans
    raise AssertionError([span["name"] for span in _spans(path)])


def _post(port: int) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            urlopen(Request(f"http://127.0.0.1:{port}/orders/7", method="POST"), timeout=10).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)  # the site starts in another process
        else:
            return


@pytest.mark.slow
async def test_one_trace_passes_through_web_python_node_and_python(
    peer: Peer, prefix: str, valkey_server: Valkey, tmp_path: Path
) -> None:
    (tmp_path / "traced.py").write_text(SITE, "utf-8")
    port, path = _free_port(), tmp_path / "spans"
    env = {
        **os.environ,
        "HOLDFAST_URL": f"{valkey_server.url}?prefix={prefix}",
        "SPANS": str(path),
        "PYTHONPATH": str(tmp_path),
    }
    web = [sys.executable, "-m", "uvicorn", "traced:site", "--port", str(port)]
    worker = [sys.executable, "-m", "holdfast", "worker", "traced:app", "-Q", "orders"]
    await peer.ask("workTraced", queue="packing")

    with running(web, cwd=tmp_path, env=env), running(worker, cwd=tmp_path, env=env):
        _post(port)
        spans = _wait_for("order.done", path)

    (request,) = [span for span in spans if span["name"] == "POST /orders"]
    trace_id = request["context"]["trace_id"].removeprefix("0x")
    assert {request["context"]["trace_id"]} == {span["context"]["trace_id"] for span in spans}
    types = [(span["name"], span["attributes"].get("holdfast.job.type")) for span in spans]
    for step in [
        ("submit orders", "order.place"),
        ("process orders", "order.place"),
        ("submit packing", "order.pack"),
        ("process orders", "order.done"),
    ]:
        assert step in types
    in_node = [span["parent"] or "" for span in await peer.ask("spans")]
    assert any(trace_id in parent for parent in in_node)
