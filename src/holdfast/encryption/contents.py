"""Which parts of jobs, notes, events and records are encrypted: all free text and data.

Names, tags, times, states, codes and keys stay readable: stores order, search and match by them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from holdfast.encryption.envelope import PREFIX, unwrap
from holdfast.encryption.key_ring import KeyRing
from holdfast.model.job import Failure, Job, LogLine, Progress, Transition
from holdfast.model.reserved import (
    DRAINED,
    EDITS,
    LIMIT_DECLARATIONS,
    LIMIT_OVERRIDES,
    NAMES,
    PLACE,
    QUEUE_PROFILES,
    TASKS,
)
from holdfast.store import JobEvent, JobNote, Record, RecordWrite

_LIMITS = (LIMIT_DECLARATIONS, LIMIT_OVERRIDES)
_PLAIN = frozenset({NAMES, PLACE, TASKS, QUEUE_PROFILES, EDITS, DRAINED, *_LIMITS})
"""Kinds of records that are not encrypted."""


class EncryptedTexts(msgspec.Struct, frozen=True, array_like=True):
    """The texts of a failure or a log line, encrypted as one."""

    message: str
    stack_trace: str = ""
    more: Mapping[str, str] = {}


_texts = msgspec.json.Decoder(EncryptedTexts)


class Contents:
    """Encrypts and decrypts the values that go into a store and come out of it."""

    def __init__(self, keys: KeyRing) -> None:
        self._keys = keys

    def encrypt_job(self, job: Job) -> Job:
        """Encrypt a new job; its deduplication digest becomes a keyed one."""
        return replace(
            job,
            payload=self._keys.encrypt(job.payload, f"{job.id} payload"),
            extra=self._encrypt_bytes(job.extra, f"{job.id} extra"),
            dedupe=job.dedupe and replace(job.dedupe, digest=self._keys.digest(job.dedupe.digest)),
            **self._encrypt_fields(job),
        )

    def sized(self, job: Job, payload_bytes: int) -> tuple[Job, int]:
        """Return a new job as it is stored, without its payload, and the bytes of its payload."""
        rest = self.encrypt_job(replace(job, payload=b""))
        is_encrypted = job.payload.startswith(PREFIX)
        return rest, payload_bytes if is_encrypted else self._keys.encrypted_size(payload_bytes)

    def encrypt_change(self, job: Job) -> Job:
        """Encrypt what a swap writes of a job."""
        return replace(job, **self._encrypt_fields(job))

    def decrypt_job(self, job: Job) -> Job:
        """Decrypt a job; what no key decrypts stays encrypted."""
        job_id = job.id
        return replace(
            job,
            payload=self._keys.decrypt(job.payload, f"{job_id} payload"),
            extra=self._decrypt_bytes(job.extra, f"{job_id} extra"),
            result=self._decrypt_bytes(job.result, f"{job_id} result"),
            checkpoint=self._decrypt_bytes(job.checkpoint, f"{job_id} checkpoint"),
            failure=job.failure and self._decrypt_failure(job.failure, job_id),
            progress=job.progress and self._decrypt_progress(job.progress, job_id),
        )

    def encrypt_note(self, note: JobNote) -> JobNote:
        """Encrypt progress, checkpoint, log line and payload of a running job."""
        job_id = note.fence.job_id
        return replace(
            note,
            progress=note.progress and self._encrypt_progress(note.progress, job_id),
            checkpoint=self._encrypt_bytes(note.checkpoint, f"{job_id} checkpoint"),
            payload=self._encrypt_bytes(note.payload, f"{job_id} payload"),
            log=note.log and self.encrypt_line(note.log, job_id),
        )

    def encrypt_line(self, line: LogLine, job_id: str) -> LogLine:
        """Encrypt a log line."""
        texts = EncryptedTexts(line.message, more=line.fields)
        return replace(line, message=self._encrypt_texts(texts, f"{job_id} log"), fields={})

    def decrypt_line(self, line: LogLine, job_id: str) -> LogLine:
        """Decrypt a log line."""
        texts = self._decrypt_texts(line.message, f"{job_id} log")
        return replace(line, message=texts.message, fields=texts.more) if texts else line

    def encrypt_transition(self, transition: Transition, job_id: str) -> Transition:
        """Encrypt the reason and failure of a transition."""
        if transition.failure is None:
            return transition
        return replace(
            transition,
            reason=self._encrypt_text(transition.reason, f"{job_id} reason"),
            failure=self._encrypt_failure(transition.failure, job_id),
        )

    def decrypt_transition(self, transition: Transition, job_id: str) -> Transition:
        """Decrypt the reason and failure of a transition."""
        if transition.failure is None:
            return transition
        return replace(
            transition,
            reason=self._decrypt_text(transition.reason, f"{job_id} reason"),
            failure=self._decrypt_failure(transition.failure, job_id),
        )

    def decrypt_event(self, event: JobEvent) -> JobEvent:
        """Decrypt an event."""
        job_id = event.job_id
        return replace(
            event,
            transition=event.transition and self.decrypt_transition(event.transition, job_id),
            progress=event.progress and self._decrypt_progress(event.progress, job_id),
        )

    def encrypt_record(self, write: RecordWrite) -> RecordWrite:
        """Encrypt a record, except what is no secret and is read or changed without the key.

        That is a stream position, which copying changes, and declarations, which submitters read.
        """
        if write.kind.partition("@")[0] in _PLAIN:  # kind@namespace
            return write
        return replace(write, data=self._encrypt_bytes(write.data, f"{write.kind} {write.key}"))

    def decrypt_record(self, record: Record) -> Record:
        """Decrypt a record."""
        return replace(record, data=self._keys.decrypt(record.data, f"{record.kind} {record.key}"))

    def _encrypt_fields(self, job: Job) -> dict[str, object]:
        return {
            "result": self._encrypt_bytes(job.result, f"{job.id} result"),
            "checkpoint": self._encrypt_bytes(job.checkpoint, f"{job.id} checkpoint"),
            "failure": job.failure and self._encrypt_failure(job.failure, job.id),
            "progress": job.progress and self._encrypt_progress(job.progress, job.id),
            "trail": tuple(self.encrypt_transition(transition, job.id) for transition in job.trail),
        }

    def _encrypt_bytes(self, data: bytes | None, about: str) -> bytes | None:
        return None if data is None else self._keys.encrypt(data, about)

    def _decrypt_bytes(self, data: bytes | None, about: str) -> bytes | None:
        return None if data is None else self._keys.decrypt(data, about)

    def _encrypt_failure(self, failure: Failure, job_id: str) -> Failure:
        texts = EncryptedTexts(failure.message, failure.stack_trace, failure.context)
        message = self._encrypt_texts(texts, f"{job_id} failure")
        return replace(failure, message=message, stack_trace="", context={})

    def _decrypt_failure(self, failure: Failure, job_id: str) -> Failure:
        texts = self._decrypt_texts(failure.message, f"{job_id} failure")
        if texts is None:
            return failure
        return replace(
            failure, message=texts.message, stack_trace=texts.stack_trace, context=texts.more
        )

    def _encrypt_progress(self, progress: Progress, job_id: str) -> Progress:
        return replace(progress, message=self._encrypt_text(progress.message, f"{job_id} progress"))

    def _decrypt_progress(self, progress: Progress, job_id: str) -> Progress:
        return replace(progress, message=self._decrypt_text(progress.message, f"{job_id} progress"))

    def _encrypt_text(self, text: str, about: str) -> str:
        if not text:
            return text
        return self._keys.encrypt(text.encode("utf-8", "replace"), about).decode()

    def _decrypt_text(self, text: str, about: str) -> str:
        if not text:
            return text
        return self._keys.decrypt(text.encode("utf-8", "replace"), about).decode()

    def _encrypt_texts(self, texts: EncryptedTexts, about: str) -> str:
        if unwrap(texts.message.encode("utf-8", "replace")) is not None:
            return texts.message
        return self._keys.encrypt(msgspec.json.encode(texts), about).decode()

    def _decrypt_texts(self, text: str, about: str) -> EncryptedTexts | None:
        data = text.encode("utf-8", "replace")
        plain = self._keys.decrypt(data, about)
        return None if plain is data else _texts.decode(plain)
