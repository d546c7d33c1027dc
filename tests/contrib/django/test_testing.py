"""The mixin for Django's test cases: jobs run on the connections of the test."""

from __future__ import annotations

import io
import unittest

import pytest
from django.db import transaction
from django.test import TestCase

from holdfast.contrib.django.testing import HoldfastTestMixin
from tests.contrib.shop import tasks
from tests.contrib.shop.models import Order


class Confirming(HoldfastTestMixin, TestCase):
    """What a project writes."""

    def test_confirms(self) -> None:
        with transaction.atomic():
            order = Order.objects.create(item="tea")
            tasks.confirm.enqueue(order.pk)
            tasks.confirm_async.enqueue(Order.objects.create(item="milk").pk)

        done = self.run_jobs()

        assert ["COMPLETED", "COMPLETED"] == [job.state for job in done]
        assert [True, True] == [order.confirmed for order in Order.objects.all()]

    async def test_confirms_async(self) -> None:
        order = await Order.objects.acreate(item="tea")
        await tasks.confirm_async.aenqueue(order.pk)

        await self.arun_jobs()
        await order.arefresh_from_db()

        assert order.confirmed

    def test_each_has_its_own_jobs(self) -> None:
        tasks.answer.enqueue()

        assert 1 == len(self.jobs.submitted())
        assert [] == self.jobs.submitted(tasks.fail.module_path)

    def test_raises_what_handlers_raise(self) -> None:
        tasks.fail.enqueue()

        with self.assertRaises(ValueError):  # noqa: PT027  # a project's own test
            self.run_jobs()


@pytest.mark.usefixtures("project")
def test_test_case_runs_jobs_on_its_own_connection() -> None:
    names = [name for name in vars(Confirming) if name.startswith("test_")]
    suite = unittest.TestSuite([Confirming(name) for name in names])

    result = unittest.TextTestRunner(io.StringIO(), verbosity=0).run(suite)

    assert [] == [text for _, text in [*result.errors, *result.failures]]
    assert len(names) == result.testsRun


Confirming.__test__ = False  # type: ignore[attr-defined]  # run by the test above
