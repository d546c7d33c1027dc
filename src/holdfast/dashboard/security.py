"""What protects the pages: their headers, the judge of changing requests, and form tokens."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from holdfast.errors import ForbiddenError
from holdfast.model.reserved import DASHBOARD
from holdfast.runtime.randomness import Randomness
from holdfast.store import RecordWrite, Store

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types holdfast"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
TOKEN_FIELD = "token"  # noqa: S105  # the name of a field


def check_own_page(headers: Mapping[bytes, bytes]) -> None:
    """Refuse a change that no page of this site requests.

    Every present browser sends Sec-Fetch-Site. Where it is missing, Origin must be this host: a
    program without either is refused as well, it has the API.
    """
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        own = site == b"same-origin"
    else:
        host = headers.get(b"host", b"").lower()
        origin = headers.get(b"origin", b"").lower()
        own = bool(host) and origin in (b"http://" + host, b"https://" + host)
    if not own:
        raise ForbiddenError("only the pages of the dashboard itself may change anything")


class FormTokens:
    """Tokens that prove that a form came from a page which this caller got."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def of(self, subject: str) -> str:
        """Return the token of a session or caller."""
        return hmac.new(self._secret, subject.encode(), hashlib.sha256).hexdigest()

    def check(self, subject: str, given: str) -> None:
        """ForbiddenError unless the token is that of the subject."""
        if not hmac.compare_digest(self.of(subject).encode(), given.encode()):
            raise ForbiddenError("this form is too old: load its page again, then repeat the step")


async def shared_secret(store: Store, randomness: Randomness) -> bytes:
    """Return the secret of the form tokens, which all servers of a store share."""
    made = (randomness.token() + randomness.token()).encode()
    await store.keep([RecordWrite(kind=DASHBOARD, key="form-secret", data=made, version=0)])
    (record,) = await store.records(DASHBOARD, ["form-secret"])
    return made if record is None else record.data
