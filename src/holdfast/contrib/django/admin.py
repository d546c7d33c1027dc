"""Jobs in Django's admin: a list with filters, a page per job, and buttons to retry and cancel.

Everything goes through the operations of the app; there is no table and no query set behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import msgspec
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path, reverse

from holdfast.contrib.django.configured import app
from holdfast.contrib.django.models import StoredJob
from holdfast.errors import HoldfastError, NotFoundError
from holdfast.model.job import State
from holdfast.operations.filters import JobFilter

PAGE = 50
"""Jobs on a page of the list."""
MOST_SHOWN = 10_000
"""Characters of a payload or an output that the page of a job shows."""
RETRIED = (State.FAILED, State.DEAD_LETTER)
CANCELLED = (State.PENDING, State.SCHEDULED, State.DELAYED, State.RUNNING, State.RETRYING)


@admin.register(StoredJob)
class JobAdmin(admin.ModelAdmin):
    """Shows jobs to those who may view them; lets those who may change them retry and cancel."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Jobs are submitted by code."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Retention deletes jobs."""
        return False

    def get_urls(self) -> list[Any]:
        """Return the list, the page of a job, and the two actions."""
        wrap, name = self.admin_site.admin_view, "holdfast_storedjob"
        return [
            path("", wrap(self.changelist_view), name=f"{name}_changelist"),
            path("<path:job_id>/change/", wrap(self.job_view), name=f"{name}_change"),
            path("<path:job_id>/retry/", wrap(self.retry_view), name=f"{name}_retry"),
            path("<path:job_id>/cancel/", wrap(self.cancel_view), name=f"{name}_cancel"),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: object = None) -> HttpResponse:
        """Show a page of the list."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        given = {name: request.GET.get(name, "") for name in ("state", "queue", "type")}
        page: Any = None
        try:
            page = app.sync.search(**_filter(given, request.GET.get("cursor")))
        except HoldfastError as error:
            messages.error(request, str(error))
        following = page.next_cursor if page else None
        return self._page(
            request,
            "jobs",
            title="Jobs",
            page=page,
            given=given,
            states=list(State),
            next_page=f"?{urlencode({**given, 'cursor': following})}" if following else "",
        )

    def job_view(self, request: HttpRequest, job_id: str) -> HttpResponse:
        """Show one job."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            job = app.sync.get(job_id, include_history=True)
            payload, lines = app.sync.payload(job_id), app.sync.logs(job_id)
        except NotFoundError:
            raise Http404(f"there is no job {job_id}") from None
        return self._page(
            request,
            "job",
            title=f"{job.type} {job.job_id}",
            job=job,
            payload=_shown(payload.payload),
            output=_shown(job.output),
            lines=lines,
            may_retry=self.has_change_permission(request) and job.state in RETRIED,
            may_cancel=self.has_change_permission(request) and job.state in CANCELLED,
        )

    def retry_view(self, request: HttpRequest, job_id: str) -> HttpResponse:
        """Retry a job."""
        return self._act(request, job_id, "retried", lambda: app.sync.retry(job_id))

    def cancel_view(self, request: HttpRequest, job_id: str) -> HttpResponse:
        """Cancel a job."""
        reason = f"by {request.user} in the admin"
        return self._act(
            request, job_id, "cancelled", lambda: app.sync.cancel(job_id, reason=reason)
        )

    def _act(
        self, request: HttpRequest, job_id: str, done: str, act: Callable[[], Any]
    ) -> HttpResponse:
        if not self.has_change_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        try:
            result = act()
        except HoldfastError as error:
            messages.error(request, str(error))
        else:
            self.log_change(request, StoredJob(id=job_id), f"{done}: {result.status}")
            messages.success(request, f"{done.capitalize()}: {result.status}.")
        return redirect(reverse("admin:holdfast_storedjob_change", args=[job_id]))

    def _page(self, request: HttpRequest, template: str, **context: object) -> HttpResponse:
        request.current_app = self.admin_site.name
        return TemplateResponse(
            request,
            f"admin/holdfast/{template}.html",
            {**self.admin_site.each_context(request), "opts": self.opts, **context},
        )


def _filter(given: dict[str, str], cursor: str | None) -> JobFilter:
    wanted: JobFilter = {"limit": PAGE, "cursor": cursor or None}
    if given["state"]:
        wanted["states"] = [given["state"]]
    if given["queue"]:
        wanted["queues"] = [given["queue"]]
    if given["type"]:
        wanted["types"] = [given["type"]]
    return wanted


def _shown(value: object) -> str:
    """Return a value as text; a long one shortened."""
    text = msgspec.json.format(msgspec.json.encode(value)).decode()
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}\n({len(text)} characters)"
