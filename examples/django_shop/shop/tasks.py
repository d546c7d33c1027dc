"""The tasks of the shop, written with Django's own decorator."""

import os
import time

from shop.models import Order

try:
    from django.tasks import task
except ImportError:  # before Django 6
    from django_tasks import task


@task()
def confirm(order_id: int) -> str:
    """Confirm an order; the pause stands for a slow payment provider."""
    time.sleep(float(os.environ.get("SHOP_PAUSE", "0")))
    order = Order.objects.get(pk=order_id)
    order.confirmed = True
    order.save()
    return order.item
