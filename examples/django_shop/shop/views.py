"""The pages of the shop."""

import json

from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_POST

from holdfast import NotFoundError
from holdfast.contrib.django import app
from shop.models import Order
from shop.tasks import confirm


@require_POST
def create_order(request: HttpRequest) -> HttpResponse:
    """Store an order and the task that confirms it, both or neither."""
    with transaction.atomic():
        order = Order.objects.create(item=json.loads(request.body)["item"])
        result = confirm.enqueue(order.pk)
        if order.item == "unicorn":
            transaction.set_rollback(True)
            return JsonResponse({"error": "we have no unicorns"}, status=409)
    return JsonResponse({"id": order.pk, "job_id": result.id}, status=201)


def read_order(request: HttpRequest, order_id: int) -> HttpResponse:
    """Show an order."""
    order = get_object_or_404(Order, pk=order_id)
    return JsonResponse({"id": order.pk, "item": order.item, "confirmed": order.confirmed})


def read_job(request: HttpRequest, job_id: str) -> HttpResponse:
    """Show the state of a job."""
    try:
        job = app.sync.get(job_id)
    except NotFoundError:
        return JsonResponse({}, status=404)
    return JsonResponse({"state": job.state, "attempt": job.attempt, "output": job.output})
