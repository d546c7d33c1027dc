"""The spellings of secrets in texts, as patterns with their replacements.

Every pattern runs in time linear in the text: repetitions are bounded, possessive, or start only
where a word starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

MASK = "***"
NAMES = (
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "pwd",
    "secret",
    "authorization",
    "cookie",
    "credential",
    "jwt",
    "session_id",
    "sessid",
    "api_key",
    "access_key",
    "account_key",
    "auth_key",
    "encryption_key",
    "master_key",
    "private_key",
    "service_key",
    "signing_key",
    "ssh_key",
)
_SHORT = (
    r"""(?<![a-z])pass(?=(?:\\*["'])?\]?\s?=|\\*["']\s?:|$)|(?<=[_-])pass(?![a-z])"""
    r"""|(?<![a-z])auth(?![a-z])|token(?!s\\*["']?\s?[:=]\s?\d+\b)"""
)
"""Names that are also parts of other words and ordinary verbs."""
_SHORT_HINTS = ("pass", "auth", "token")
_JOINED = str.maketrans("", "", "_- ")

_QUOTE = r"""(?:\\{0,8}["'`]|\\u002[27]|&quot;|&#3[49];|&apos;|%2[27])"""
_NOT_VALUES = (
    "true|false|yes|no|on|off|none|null|nil|undefined|empty|unset|ok|valid|invalid|missing|required"
    "|expired|revoked|unknown|wrong|failed|denied|granted|rejected|accepted|must|is|was|has|not"
    "|cannot|str|bytes|string|int|bool|object|any|optional"
)
_DESCRIPTION = (
    r"(?:count|counts|length|len|size|type|ttl|age|limit|policy|url|uri|endpoint|file|path"
    r"|expir(?:y|es|ed|ation)(?:[_-]?(?:in|at))?)"
)
"""Last parts of names whose values describe a secret: ``token_type``, ``password_file``."""
_SCHEME = r"(?:Bearer|Basic|Digest|Token|Negotiate|NTLM|ApiKey|Api-Key|Key|Hawk|OAuth)"
_PARAMETERS = r"(?:Digest|Hawk|OAuth|Signature|AWS4-HMAC-SHA256)"
_PROSE = r"(?:tokens?|auth\w{0,16}|schemes?|headers?|credentials?|realm|format|secrets?)\b"


class _Spelling(NamedTuple):
    """How a secret is written, and what replaces it."""

    hints: tuple[str, ...]
    """A text without any of these, in lower case, does not contain the spelling."""
    pattern: re.Pattern[str]
    replacement: str

    def mask(self, text: str, lowered: str) -> str:
        """Return a text with this spelling masked."""
        for hint in self.hints:
            if hint in lowered:
                return self.pattern.sub(self.replacement, text)
        return text


def _spelling(hints: str, pattern: str, replacement: str, *, any_case: bool = True) -> _Spelling:
    flags = re.IGNORECASE if any_case else re.NOFLAG
    return _Spelling(tuple(hints.split()), re.compile(pattern, flags), replacement)


def _exact(hints: str, pattern: str, replacement: str) -> _Spelling:
    return _spelling(hints, pattern, replacement, any_case=False)


_ANYWHERE = (
    _exact(
        "-----begin",
        r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)[\s\S]*?"
        r"(-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
        rf"\1{MASK}\2",
    ),
    _exact("://", r"(://[^\s/?#:@]{0,256}):[^\s/?#]{1,4096}@", rf"\1:{MASK}@"),
    _exact(
        "://",
        r"(://[^\s/?#:@\[]{0,256}):(?!\d{1,5}(?:[/?#]|$)|\*\*\*)"
        r"""[^\s@"'<>]{1,256}@(?=[\w.-])""",
        rf"\1:{MASK}@",
    ),
    _spelling("http", r"(\bhttps?://)[^\s/?#:@]{1,256}@", rf"\1{MASK}@"),
    _exact("hf_", r"\bhf_([0-9a-f]{12})_[0-9a-f]{8,}", rf"hf_\1_{MASK}"),
    _exact("whsec_", r"\bwhsec_[A-Za-z0-9+/=_-]{6,}", f"whsec_{MASK}"),
    _exact("eyj", r"(?<![\w-])eyJ[\w-]{6,}+\.[\w-]{4,}+(?:\.[\w-]*+)?", MASK),
    _exact(
        "akia asia aroa aida",
        r"(?<![A-Za-z0-9])(AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}+",
        rf"\1{MASK}",
    ),
    _exact(
        "ghp_ gho_ ghs_ ghu_ ghr_ github_pat_ glpat- npm_ hf_",
        r"\b(gh[opsur]_|github_pat_|glpat-|npm_|hf_)[A-Za-z0-9_-]{20,}+",
        rf"\1{MASK}",
    ),
    _exact("xox xapp-", r"\b(xox[abeoprs]-|xapp-)[A-Za-z0-9-]{10,}+", rf"\1{MASK}"),
    _exact("sk_ sk- rk_", r"\b([sr]k[_-](?:live|test|proj|ant|or)[_-])[\w-]{10,}+", rf"\1{MASK}"),
    _exact("sk-", r"(?<![\w-])sk-[A-Za-z0-9]{20,}+", f"sk-{MASK}"),
    _exact(
        "aiza ya29. sg. pypi- dop_v1_",
        r"\b(AIza|ya29\.|SG\.|pypi-|dop_v1_)[\w.-]{20,}+",
        rf"\1{MASK}",
    ),
    _spelling(
        "? & %26",
        r"((?:[?&]|%26|&amp;)(?:sig|key|auth|code|sid|pass|pw|[\w.-]{0,40}signature)(?:=|%3D))"
        r"""[^\s&"'<>]+""",
        rf"\1{MASK}",
    ),
    _exact(
        "-u --user --proxy-user",
        r"""((?<!\S)(?:-u|--user|--proxy-user)[ =]["']?[^\s:"']{1,128}:)[^\s"']+""",
        rf"\1{MASK}",
    ),
    _spelling(
        "password passphrase identified",
        rf"((?:password|passphrase|identified by)\s{{1,4}})(?P<q>{_QUOTE})"
        r"(?:(?!(?<!\\)(?P=q)).)*+(?:(?P=q))?",
        rf"\1\g<q>{MASK}\g<q>",
    ),
    _spelling(
        "authorization",
        rf"(authorization\\*[\"']?\s{{0,4}}[:=]\s{{0,4}}\\*[\"']?{_PARAMETERS}\s)"
        r"""(?:=\\?"[^"\n]{0,1024}"|[^"'\n\\])*+""",
        rf"\1{MASK}",
    ),
    _spelling(
        "cookie",
        r"(cookie2?:\s{0,4})[^\s;,\"']++(?:;\s{0,4}[^\s;\"']++)*+",
        rf"\1{MASK}",
    ),
)
_AFTER_NAMES = (
    _spelling("bearer", rf"\b(Bearer)\s{{1,8}}(?!{_PROSE})[\w.~+/=-]{{6,}}", rf"\1 {MASK}"),
    _exact(
        "basic",
        r"\b((?i:Basic))\s{1,8}(?=[A-Za-z._~+/-]{0,400}[0-9=]|[A-Za-z]{0,400}?[a-z][A-Z])"
        r"[\w.~+/=-]{6,}",
        rf"\1 {MASK}",
    ),
)


_ALL_HINTS = tuple({hint for each in (*_ANYWHERE, *_AFTER_NAMES) for hint in each.hints})


class Spellings:
    """Masks secrets by their shapes, and the values after secret names."""

    def __init__(self, further: Iterable[str]) -> None:
        given = (*NAMES, *further)
        words = "|".join(re.escape(name).replace("_", r"[_\- ]?") for name in given)
        names = f"(?:{words}|{_SHORT})"
        self._secret_name = re.compile(names, re.IGNORECASE)
        self._hints = (*(name.lower().translate(_JOINED) for name in given), *_SHORT_HINTS)
        self._by_names = _by_names(names)

    def mask(self, text: str) -> str:
        """Return a text with every secret masked."""
        lowered = text.lower()
        joined = lowered.translate(_JOINED)
        # Lists, because they cost a third of generators: most texts contain no hint at all.
        is_shaped = [hint for hint in _ALL_HINTS if hint in lowered]
        is_named = [hint for hint in self._hints if hint in joined]
        for spelling in _ANYWHERE if is_shaped else ():
            text = spelling.mask(text, lowered)
        for pattern, replacement in self._by_names if is_named else ():
            text = pattern.sub(replacement, text)
        for spelling in _AFTER_NAMES if is_shaped else ():
            text = spelling.mask(text, lowered)
        return text

    def names(self, name: str) -> bool:
        """Whether a field of this name contains a secret."""
        return self._secret_name.search(name) is not None


def _by_names(names: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return the patterns of ``name: value`` and its relatives."""
    name = (
        rf"(?<![\w-])(?!(?-i:(?:OLD)?PWD=/))[\w-]{{0,80}}{names}"
        rf"(?![\w-]{{0,40}}(?:(?<=[_-])|(?-i:(?<=[a-z])(?=[A-Z]))){_DESCRIPTION}(?![\w-]))"
        r"[\w-]{0,40}(?:\s(?:key|token|value|hash))?"
    )
    end = rf"(?:{_QUOTE})?\]?"
    separator = (
        r"\s{0,8}(?::\s{0,4}(?:str|bytes|string)(?:\s?\|\s?None)?\s{0,4}=(?!=)"
        r"|!=|={1,3}>?|:=|:(?!:)|%3[AD])\s{0,8}"
    )
    quoted = rf"(?:b|r|u|f|rb|br)?(?P<q>{_QUOTE})(?:(?!(?<!\\)(?P=q)).)++(?:(?P=q))?"
    several = rf"[\[(]\s{{0,8}}b?{_QUOTE}[^\])\n]*+[\])]?"
    bare = (
        rf"(?!(?:{_NOT_VALUES})\.?(?:[\s,;:)\]}}\"'|]|$))(?!{_QUOTE}{{2}})"
        rf"(?:(?:{_SCHEME})\s+\S+|[^\s,;&)\]}}]+)"
    )
    pair = (
        rf"([\[(]\s?b?(?:{_QUOTE}){name}(?:{_QUOTE}),\s{{0,4}}b?)(?P<q>{_QUOTE})"
        r"(?:(?!(?<!\\)(?P=q)).){1,4096}+(?P=q)(?=\s?[\])])"
    )
    made = (
        (rf"({name}{end}{separator})(?:{quoted}|{several}|{bare})", rf"\1\g<q>{MASK}\g<q>"),
        (pair, rf"\1\g<q>{MASK}\g<q>"),
        (rf"(<(?:\w{{1,20}}:)?{name}(?:\s[^<>]{{0,256}})?>)[^<\n]+", rf"\1{MASK}"),
        (rf"((?<!\S)(?=--?[a-z]){name}\s{{1,4}})(?![-|>]){bare}", rf"\1{MASK}"),
    )
    return tuple((re.compile(one, re.IGNORECASE), by) for one, by in made)
