"""An encrypted store keeps the contract: the suite of all stores, with a key ring in front."""

from __future__ import annotations

from tests.conformance.test_verbs_add import *  # noqa: F403
from tests.conformance.test_verbs_claim import *  # noqa: F403
from tests.conformance.test_verbs_events import *  # noqa: F403
from tests.conformance.test_verbs_find import *  # noqa: F403
from tests.conformance.test_verbs_keys import *  # noqa: F403
from tests.conformance.test_verbs_leases import *  # noqa: F403
from tests.conformance.test_verbs_outcomes import *  # noqa: F403
from tests.conformance.test_verbs_spawning import *  # noqa: F403
from tests.conformance.test_verbs_swap import *  # noqa: F403
from tests.conformance.test_verbs_update import *  # noqa: F403
