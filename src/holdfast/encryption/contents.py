"""What of a job, a note and an event is sealed: all that a handler or a caller wrote freely.

Names, tags, times, states, codes and keys stay readable: stores order, search and match by them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from holdfast.encryption.envelope import unwrap
from holdfast.encryption.key_ring import KeyRing
from holdfast.model.job import Failure, Job, LogLine, Progress, Transition
from holdfast.model.reserved import PLACE
from holdfast.store import JobEvent, JobNote, Record, RecordWrite


class EncryptedTexts(msgspec.Struct, frozen=True, array_like=True):
    """The words of a failure or a log line, sealed as one."""

    message: str
    stack_trace: str = ""
    more: Mapping[str, str] = {}


_texts = msgspec.json.Decoder(EncryptedTexts)


class Contents:
    """Seals and opens the values that stores exchange with us."""

    def __init__(self, keys: KeyRing) -> None:
        self._keys = keys

    def sealed_job(self, job: Job) -> Job:
        """Seal a job; its deduplication digest gets keyed."""
        return replace(
            job,
            payload=self._keys.seal(job.payload, f"{job.id} payload"),
            dedupe=job.dedupe and replace(job.dedupe, digest=self._keys.digest(job.dedupe.digest)),
            **self._sealed(job),
        )

    def sealed_change(self, job: Job) -> Job:
        """Seal what a swap writes of a job."""
        return replace(job, **self._sealed(job))

    def opened_job(self, job: Job) -> Job:
        """Open a job; what no key opens stays sealed."""
        job_id = job.id
        return replace(
            job,
            payload=self._keys.open(job.payload, f"{job_id} payload"),
            result=self._opened(job.result, f"{job_id} result"),
            checkpoint=self._opened(job.checkpoint, f"{job_id} checkpoint"),
            failure=job.failure and self._opened_failure(job.failure, job_id),
            progress=job.progress and self._opened_progress(job.progress, job_id),
        )

    def sealed_note(self, note: JobNote) -> JobNote:
        """Seal what a running job wants kept."""
        job_id = note.fence.job_id
        return replace(
            note,
            progress=note.progress and self._sealed_progress(note.progress, job_id),
            checkpoint=self._sealed_bytes(note.checkpoint, f"{job_id} checkpoint"),
            log=note.log and self.sealed_line(note.log, job_id),
        )

    def sealed_line(self, line: LogLine, job_id: str) -> LogLine:
        """Seal a log line."""
        texts = EncryptedTexts(line.message, more=line.fields)
        return replace(line, message=self._sealed_texts(texts, f"{job_id} log"), fields={})

    def opened_line(self, line: LogLine, job_id: str) -> LogLine:
        """Open a log line."""
        texts = self._opened_texts(line.message, f"{job_id} log")
        return replace(line, message=texts.message, fields=texts.more) if texts else line

    def sealed_edge(self, edge: Transition, job_id: str) -> Transition:
        """Seal a transition that tells of a failure."""
        if edge.failure is None:
            return edge
        return replace(
            edge,
            reason=self._sealed_text(edge.reason, f"{job_id} reason"),
            failure=self._sealed_failure(edge.failure, job_id),
        )

    def opened_edge(self, edge: Transition, job_id: str) -> Transition:
        """Open a transition."""
        if edge.failure is None:
            return edge
        return replace(
            edge,
            reason=self._opened_text(edge.reason, f"{job_id} reason"),
            failure=self._opened_failure(edge.failure, job_id),
        )

    def opened_event(self, event: JobEvent) -> JobEvent:
        """Open an event."""
        job_id = event.job_id
        return replace(
            event,
            transition=event.transition and self.opened_edge(event.transition, job_id),
            progress=event.progress and self._opened_progress(event.progress, job_id),
        )

    def sealed_draft(self, draft: RecordWrite) -> RecordWrite:
        """Seal what a record is to hold; a place in a stream is no secret, and copies change it."""
        if draft.kind == PLACE:
            return draft
        return replace(draft, data=self._sealed_bytes(draft.data, f"{draft.kind} {draft.key}"))

    def opened_record(self, record: Record) -> Record:
        """Open a record."""
        return replace(record, data=self._keys.open(record.data, f"{record.kind} {record.key}"))

    def _sealed(self, job: Job) -> dict[str, object]:
        return {
            "result": self._sealed_bytes(job.result, f"{job.id} result"),
            "checkpoint": self._sealed_bytes(job.checkpoint, f"{job.id} checkpoint"),
            "failure": job.failure and self._sealed_failure(job.failure, job.id),
            "progress": job.progress and self._sealed_progress(job.progress, job.id),
            "trail": tuple(self.sealed_edge(edge, job.id) for edge in job.trail),
        }

    def _sealed_bytes(self, data: bytes | None, about: str) -> bytes | None:
        return None if data is None else self._keys.seal(data, about)

    def _opened(self, data: bytes | None, about: str) -> bytes | None:
        return None if data is None else self._keys.open(data, about)

    def _sealed_failure(self, failure: Failure, job_id: str) -> Failure:
        texts = EncryptedTexts(failure.message, failure.stack_trace, failure.context)
        message = self._sealed_texts(texts, f"{job_id} failure")
        return replace(failure, message=message, stack_trace="", context={})

    def _opened_failure(self, failure: Failure, job_id: str) -> Failure:
        texts = self._opened_texts(failure.message, f"{job_id} failure")
        if texts is None:
            return failure
        return replace(
            failure, message=texts.message, stack_trace=texts.stack_trace, context=texts.more
        )

    def _sealed_progress(self, progress: Progress, job_id: str) -> Progress:
        return replace(progress, message=self._sealed_text(progress.message, f"{job_id} progress"))

    def _opened_progress(self, progress: Progress, job_id: str) -> Progress:
        return replace(progress, message=self._opened_text(progress.message, f"{job_id} progress"))

    def _sealed_text(self, text: str, about: str) -> str:
        if not text:
            return text
        return self._keys.seal(text.encode("utf-8", "replace"), about).decode()

    def _opened_text(self, text: str, about: str) -> str:
        if not text:
            return text
        return self._keys.open(text.encode("utf-8", "replace"), about).decode()

    def _sealed_texts(self, texts: EncryptedTexts, about: str) -> str:
        if unwrap(texts.message.encode("utf-8", "replace")) is not None:
            return texts.message
        return self._keys.seal(msgspec.json.encode(texts), about).decode()

    def _opened_texts(self, text: str, about: str) -> EncryptedTexts | None:
        data = text.encode("utf-8", "replace")
        opened = self._keys.open(data, about)
        return None if opened is data else _texts.decode(opened)
