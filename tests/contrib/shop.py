"""An application written for Celery's documented API; tests run it with Celery and with ours."""

import os
import time
from pathlib import Path

from celery import Celery, chain, chord, group, shared_task
from celery.exceptions import Ignore, MaxRetriesExceededError
from celery.result import AsyncResult
from celery.schedules import crontab
from celery.utils.log import get_task_logger

app = Celery("shop", broker=os.environ["BROKER"], backend=os.environ["BACKEND"])
app.conf.update(
    task_serializer="json",
    result_serializer="json",
    accept_content=["json"],
    timezone="UTC",
    enable_utc=True,
)
app.conf.beat_schedule = {
    "nightly": {
        "task": "shop.add",
        "schedule": crontab(hour=3, minute=30, day_of_week="mon-fri"),
        "args": (16, 16),
    },
}
logger = get_task_logger(__name__)
PATIENCE = 60


@app.on_after_configure.connect
def setup_periodic_tasks(sender, **kwargs):
    sender.add_periodic_task(30.0, add.s(1, 1), name="add every 30 s")


class Counted(app.Task):
    """A base class with hooks."""

    def on_success(self, retval, task_id, args, kwargs):
        note(f"success {retval}")

    def on_failure(self, exc, task_id, args, kwargs, einfo):
        note(f"failure {type(exc).__name__}")

    def on_retry(self, exc, task_id, args, kwargs, einfo):
        note("retry")


def note(text):
    with Path(os.environ["NOTES"]).open("a") as file:
        file.write(f"{text}\n")


@app.task
def add(x, y):
    logger.info("adding %s and %s", x, y)
    return x + y


@app.task
def total(numbers):
    return sum(numbers)


@app.task
def divide(a, b):
    return a / b


@app.task(bind=True, max_retries=3)
def flaky(self, times):
    if self.request.retries < times:
        raise self.retry(countdown=0, exc=ConnectionError("not yet"))
    return self.request.retries


@app.task(bind=True, max_retries=1)
def hopeless(self):
    raise self.retry(countdown=0)


@app.task(autoretry_for=(OSError,), max_retries=2, default_retry_delay=0, base=Counted)
def unreliable():
    raise OSError("the network is down")


@app.task(bind=True, base=Counted, name="shop.named")
def described(self, left, *, right=1):
    return [self.name, self.request.retries, self.request.called_directly, left, right]


@shared_task
def shout(text, times=1):
    return text.upper() * times


@app.task
def ignored():
    raise Ignore


@app.task
def remember(value):
    note(f"remembered {value}")


@app.task
def failed_with(request, exc, traceback):
    note(f"errback {type(exc).__name__} {'ZeroDivisionError' in traceback}")


def outcome(call):
    """What a call returns, or the name of what it raises."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001  # its name is what is compared
        return type(error).__name__


def get(result):
    return outcome(lambda: result.get(timeout=PATIENCE))


def main():
    finished = add.delay(1, 1)
    linked = add.apply_async((4, 4), link=remember.s())
    failing = divide.apply_async((1, 0), link_error=failed_with.s())
    callback = add.s(2, 2)
    callback.link(remember.s())
    header = [add.s(number, number) for number in range(5)]
    outcomes = {
        "delay": get(finished),
        "states": [finished.state, finished.successful(), finished.ready(), finished.failed()],
        "by id": get(AsyncResult(finished.id)),
        "keyword arguments": get(described.delay(1, right=2)),
        "wrong arguments": outcome(lambda: add.delay(1)),
        "called": add(1, 2),
        "shared": get(shout.delay("ab", times=2)),
        "countdown": get(add.apply_async((1, 2), countdown=0.3)),
        "queue": get(add.apply_async(args=[2, 3], kwargs={}, priority=5)),
        "by name": get(app.send_task("shop.add", args=[3, 4])),
        "chain": get(chain(add.s(1, 2), add.s(3), add.s(4))()),
        "pipe": get((add.s(1, 2) | add.s(10)).delay()),
        "immutable": get(chain(add.s(1, 1), add.si(5, 5))()),
        "partial": get(add.s(2).delay(3)),
        "group": get(group(add.s(number, number) for number in range(5))()),
        "chord": get(chord(header)(total.s())),
        "chord in a chain": get((group(header) | total.s() | add.s(100)).delay()),
        "chains in a group": get(
            group(chain(add.s(1, 1), add.s(1)), chain(add.s(2, 2), add.s(2)))()
        ),
        "retried": get(flaky.delay(2)),
        "retries exceeded": get(flaky.delay(9)),
        "without an exception": get(hopeless.delay()),
        "retried by itself": get(unreliable.delay()),
        "failure": get(divide.delay(1, 0)),
        "failed chain": get(chain(divide.s(1, 0))()),
        "linked": get(linked),
        "link of a signature": get(callback.delay()),
        "errback": [get(failing), failing.state, "ZeroDivisionError" in failing.traceback],
        "applied": add.apply((5, 6)).get(),
        "applied and retried": flaky.apply((2,)).get(),
        "applied and failed": outcome(lambda: divide.apply((1, 0)).get()),
    }
    remembered = wait_for_notes(2)
    return {**outcomes, "notes": remembered, "caught": MaxRetriesExceededError.__name__}


def wait_for_notes(count):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        notes = Path(os.environ["NOTES"]).read_text().splitlines()
        if sum(line.startswith("remembered") for line in notes) >= count:
            return sorted(notes)
        time.sleep(0.05)  # another process writes the notes
    return "the links did not run"
