"""Webhooks: signed HTTP messages about ended jobs, delivered at least once by jobs."""

from __future__ import annotations

from holdfast.webhooks.address_guard import AddressGuard, RefusedAddressError
from holdfast.webhooks.callbacks import CallbackScreen
from holdfast.webhooks.registry import Webhooks
from holdfast.webhooks.values import (
    Delivery,
    DeliveryPage,
    Webhook,
    WebhookFilters,
    WebhookSettings,
)

__all__ = [
    "AddressGuard",
    "CallbackScreen",
    "Delivery",
    "DeliveryPage",
    "RefusedAddressError",
    "Webhook",
    "WebhookFilters",
    "WebhookSettings",
    "Webhooks",
]
