"""The service as a process: real sockets, real signals."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from holdfast import SyncClient
from holdfast.cli import cli
from holdfast.errors import ServiceError
from tests.architecture import tree
from tests.certificates import Authority
from tests.cli.conftest import APP, environment
from tests.http.site import API
from tests.processes import PIPE, running
from tests.waiting import in_time
from tests.wire.peer import find_node

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow
TIMEOUT = 20


@dataclass
class Server:
    """A service in another process."""

    process: subprocess.Popen[str]
    address: str
    url: str
    environment: dict[str, str]
    output: list[str]

    def call(self, method: str, path: str, body: object = None, key: str = "") -> Any:
        headers = {"content-type": "application/json"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}{API}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            return json.loads(response.read())

    def status(self, path: str, key: str = "") -> int:
        try:
            self.call("GET", path, key=key)
        except urllib.error.HTTPError as error:
            return error.code
        return 200

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT)


@contextlib.contextmanager
def serving(folder: Path, *arguments: str, url: str = "") -> Iterator[Server]:
    """Run ``holdfast serve`` on a free port."""
    url = url or f"sqlite:///{folder}/jobs.db"
    settings = environment(PYTHONPATH=os.pathsep.join(sys.path), PYTHONUNBUFFERED="1")
    command = [sys.executable, "-m", "holdfast", "serve", "--url", url, "--port", "0", *arguments]
    output: list[str] = []
    with running(
        command, cwd=folder, env=settings, stdout=PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        output.append(line)
        match = re.search(r" at (https?://\S+),", line)
        assert match, line + process.stdout.read()
        reader = threading.Thread(target=lambda: output.extend(process.stdout or ()))
        reader.start()
        try:
            yield Server(process, match[1], url, settings, output)
        finally:
            process.kill()
            reader.join()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One service for all tests that do not stop it."""
    with serving(tmp_path_factory.mktemp("served")) as server:
        yield server


@pytest.mark.req("S-1", "S-2")
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_accepted_jobs_survive_a_killed_service_and_a_stop_ends_streams(
    tmp_path: Path, loop: str
) -> None:
    if loop == "asyncio":
        (tmp_path / "uvloop.py").write_text("raise ImportError('not installed')")
    with serving(tmp_path) as server:
        jobs = {"jobs": [{"type": "a", "payload": n} for n in range(50)]}
        ids = [r["job_id"] for r in server.call("POST", "/jobs/batch", jobs)["results"]]
        ids.append(server.call("POST", "/jobs", {"type": "a", "payload": 1})["job_id"])
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(TIMEOUT)
    with serving(tmp_path) as server:
        found = server.call("GET", "/jobs?limit=1000")["jobs"]
        stream = urllib.request.urlopen(f"{server.address}{API}/events", timeout=TIMEOUT)
        assert b": connected\n" == stream.readline()
        waited: list[Any] = []
        path = f"/jobs/{ids[0]}/wait?timeout=60"
        waiter = threading.Thread(target=lambda: waited.append(server.call("GET", path)))
        waiter.start()
        server.call("GET", "/jobs")

        assert 0 == server.stop()
        stream.read()
        waiter.join(TIMEOUT)

    assert set(ids) == {job["job_id"] for job in found}
    assert "SCHEDULED" == waited[0]["state"]
    assert any("no API key exists: only this machine may call" in line for line in server.output)


def test_clients_that_trust_the_certificate_connect_over_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    files = authority.certificate("127.0.0.1")
    options = ("--certificate", str(files.chain), "--certificate-key", str(files.key))
    with serving(tmp_path, *options) as server:
        assert server.address.startswith("https://127.0.0.1:")
        with (
            SyncClient(server.address) as client,
            pytest.raises(ServiceError, match="SSL_CERT_FILE"),
        ):
            client.submit("a", 1)

        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        with SyncClient(server.address) as client:
            job = client.submit("a", 1)
            assert "a" == client.get(job.job_id).type
        listed = subprocess.run(
            [sys.executable, "-m", "holdfast", "jobs", "--url", server.address],
            env={**server.environment, "SSL_CERT_FILE": str(authority.file)},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=True,
        )
        assert job.job_id in listed.stdout


def test_service_promotes_due_jobs_without_another_process(server: Server) -> None:
    job = {"type": "due", "payload": 1, "delay": 0.05, "queue": "later"}
    server.call("POST", "/jobs", job)

    request = {"worker_id": "w", "wait": 10, "queues": ["later"]}
    claimed = server.call("POST", "/workers/claim", request)

    assert 1 == len(claimed["jobs"])


def test_port_in_use_is_reported(server: Server, tmp_path: Path) -> None:
    port = server.address.rpartition(":")[2]

    second = holdfast("serve", "--port", port, "--url", f"sqlite:///{tmp_path}/x.db")

    assert 1 == second.exit_code
    assert "cannot listen on 127.0.0.1" in second.output


def holdfast(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.mark.req("A-20")
def test_address_that_other_machines_reach_needs_keys_and_tls(tmp_path: Path) -> None:
    store = ("--url", f"sqlite:///{tmp_path}/jobs.db")

    open_ = holdfast("serve", "--host", "0.0.0.0", "--port", "0", *store)
    made = holdfast("keys", "create", "me", "--role", "admin", "--json", *store)
    without_tls = holdfast("serve", "--host", "0.0.0.0", "--port", "0", *store)
    secret = json.loads(made.output)["secret"]

    assert (2, 2) == (open_.exit_code, without_tls.exit_code)
    assert "no API key exists" in open_.output
    assert "in the clear" in without_tls.output
    with serving(tmp_path, "--host", "0.0.0.0", "--behind-proxy", url=store[1]) as server:
        server.address = server.address.replace("0.0.0.0", "127.0.0.1")
        assert 401 == server.status("/jobs")
        assert 200 == server.status("/jobs", key=secret)
        assert "is revoked" in holdfast("keys", "revoke", secret.split("_")[1], *store).output
        listed = holdfast("keys", "list", *store)
        in_time(lambda: server.status("/jobs", key=secret) == 401, within=TIMEOUT, every=0.1)

    assert "revoked" in listed.output
    assert secret not in listed.output


@pytest.mark.req("A-20")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--behind-proxy",), "--behind-proxy would be open"),
        (("--proxy", "10.0.0.1"), "--behind-proxy would be open"),
        (("--cors", "*"), "every web page"),
    ],
)
def test_loopback_without_a_key_is_not_opened_to_others(
    tmp_path: Path, options: tuple[str, ...], reason: str
) -> None:
    store = ("--url", f"sqlite:///{tmp_path}/jobs.db")

    refused = holdfast("serve", "--port", "0", *options, *store)

    assert 2 == refused.exit_code
    assert reason in refused.output


@pytest.mark.req("A-20")
@pytest.mark.parametrize(
    ("options", "seen"), [((), "127.0.0.1"), (("--proxy", "127.0.0.0/8"), "203.0.113.7")]
)
def test_forwarded_addresses_count_only_from_named_proxies(
    tmp_path: Path, options: tuple[str, ...], seen: str
) -> None:
    store = ("--url", f"sqlite:///{tmp_path}/jobs.db")
    made = holdfast("keys", "create", "me", "--role", "admin", "--json", *store)
    secret = json.loads(made.output)["secret"]
    with serving(tmp_path, "--behind-proxy", *options, url=store[1]) as server:
        headers = {"authorization": f"Bearer {secret}", "x-forwarded-for": "203.0.113.7"}
        pause = urllib.request.Request(
            f"{server.address}{API}/queues/q/pause", b"", headers, method="POST"
        )
        urllib.request.urlopen(pause, timeout=TIMEOUT).close()
        audit = server.call("GET", "/audit", key=secret)

    assert [seen, socket.gethostname()] == [entry["client"] for entry in audit["entries"]]


def test_proxy_that_is_no_address_is_refused(tmp_path: Path) -> None:
    refused = holdfast("serve", "--proxy", "front", "--url", f"sqlite:///{tmp_path}/jobs.db")

    assert 2 == refused.exit_code
    assert "--proxy must be an IP address or a network" in refused.output


WORKERS = {"node": "worker.mjs", "bash": "worker.sh"}


@pytest.mark.parametrize("runtime", WORKERS)
def test_example_worker_in_another_language_runs_jobs(server: Server, runtime: str) -> None:
    program = str(find_node()[0]) if runtime == "node" else shutil.which(runtime)
    if program is None:
        pytest.skip(f"{runtime} is not installed")
    script = tree.ROOT / "examples" / WORKERS[runtime]
    assert len(script.read_text("utf-8").splitlines()) <= 60
    good = server.call("POST", "/jobs", {"type": "greet", "payload": {"name": "Ada"}})
    bad = server.call("POST", "/jobs", {"type": "nonsense", "payload": {}})

    variables = {
        **server.environment,
        "HOLDFAST_HTTP": server.address,
        "HOLDFAST_API_KEY": "",
        "JOBS": "2",
    }
    subprocess.run([program, str(script)], env=variables, check=True, timeout=60)

    done = server.call("GET", f"/jobs/{good['job_id']}/wait?timeout=10")
    failed = server.call("GET", f"/jobs/{bad['job_id']}")
    assert ("COMPLETED", {"greeting": "hello Ada"}) == (done["state"], done["result"]["output"])
    assert ("FAILED", "UNKNOWN_TYPE") == (failed["state"], failed["failure"]["code"])


def test_dev_command_also_serves_the_api(tmp_path: Path) -> None:
    (tmp_path / "jobs_here.py").write_text(APP, "utf-8")
    url = f"sqlite:///{tmp_path}/jobs.db"
    folders = [str(tmp_path), *sys.path]
    settings = environment(PYTHONPATH=os.pathsep.join(folders))
    command = [sys.executable, "-m", "holdfast", "dev", "jobs_here", "--port=0", f"--url={url}"]
    with running(command, cwd=tmp_path, env=settings, stderr=PIPE) as process:
        assert process.stderr is not None
        address = ""
        for line in process.stderr:
            if match := re.search(r"^api +(http://\S+)/docs", line):
                address = match[1]
                break
        server = Server(process, address, url, settings, [])
        job = server.call("POST", "/jobs", {"type": "greet", "payload": {"name": "Ada"}})
        done = server.call("GET", f"/jobs/{job['job_id']}/wait?timeout=20")
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        process.wait(TIMEOUT)

    assert (0, "hello Ada") == (process.returncode, done["result"]["output"])


def test_dev_command_names_the_port_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / "jobs_here.py").write_text(APP, "utf-8")
    settings = environment(PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "holdfast", "dev", "jobs_here", f"--port={port}"]
        with running(command, cwd=tmp_path, env=settings, stderr=PIPE) as process:
            assert process.stderr is not None
            said = next(line for line in process.stderr if line.startswith("dashboard"))
            process.send_signal(signal.SIGTERM)
            process.stderr.read()
            process.wait(TIMEOUT)

    assert f"dashboard  unavailable: port {port}: " in said
    assert said.endswith("; name another with --port\n")


def test_flags_give_profiles_limits_and_webhook_settings(tmp_path: Path) -> None:
    flags = ["--profile", "mail=lease", "--payload-limit", "100", "--webhooks-allow", "http,ports"]
    with serving(tmp_path, *flags, "--keep-completed", "forever") as server:
        job = server.call("POST", "/jobs", {"type": "a", "payload": 1, "queue": "mail"})
        found = server.call("GET", f"/jobs/{job['job_id']}")
        webhook = server.call("POST", "/webhooks", {"url": "http://example.org:81/x"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            server.call("POST", "/jobs", {"type": "a", "payload": "x" * 100})
        with refused.value as reply:
            message = reply.read().decode()

    assert ("lease", 4) == (found["profile"], found["max_attempts"])
    assert "http://example.org:81/x" == webhook["url"]
    assert "exceeds limit of 100 bytes" in message
