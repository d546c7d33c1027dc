"""The page of a form that was refused: what was typed is there again, with the fault beside it.

It works on the HTML of the page, so that a template writes each form once, for both cases.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from html.parser import HTMLParser

from holdfast.dashboard.security import TOKEN_FIELD
from holdfast.errors import Fault

NAMES = {"scheduled_at": "due", "scope": "name"}
"""Fields of faults that a form has under another name."""
REFUSED = "Nothing was changed."
TICKED = ("checkbox", "radio")
_Attributes = Sequence[tuple[str, str | None]]


def refilled(
    page: str, action: str, *, form: Mapping[str, Sequence[str]], faults: Sequence[Fault]
) -> str | None:
    """Return the page with the form as it was sent, open, and its faults; None: it has none."""
    forms = _FormFinder(page).found
    matching = [number for number, (to, _) in enumerate(forms) if to == action]
    if not matching:
        return None
    chosen = max(matching, key=lambda number: _alike(forms[number][1], form))
    return _FormFiller(chosen, form, faults).filled(page)


def _alike(hidden: Mapping[str, list[str]], form: Mapping[str, Sequence[str]]) -> int:
    return sum(list(form.get(name, ())) == values for name, values in hidden.items())


class _FormFinder(HTMLParser):
    """The forms of a page: where each leads, and what it has hidden."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, list[str]]]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "form":
            self.found.append((given.get("action") or "", defaultdict(list)))
        elif tag == "input" and given.get("type") == "hidden" and self.found:
            self.found[-1][1][given.get("name") or ""].append(given.get("value") or "")


class _FormFiller(HTMLParser):
    """Writes a page again, with one of its forms filled."""

    def __init__(
        self, chosen: int, form: Mapping[str, Sequence[str]], faults: Sequence[Fault]
    ) -> None:
        super().__init__(convert_charrefs=False)
        self._left = chosen + 1
        self._form = form
        self._faults = list(faults)
        self._out: list[str] = []
        self._details: list[int] = []
        self._inside = False
        self._top = 0
        self._select: str | None = None
        self._option: _Attributes | None = None
        self._after: dict[str, str] = {}
        """What follows the end of a tag."""
        self._is_dropped = False
        """Whether the old content of a text is left out."""
        self._has_focus = False

    def filled(self, page: str) -> str:
        self.feed(page)
        self.close()
        others = "; ".join(f"{each.field} {each.message}".strip() for each in self._faults)
        said = f"{REFUSED[:-1]}: {others}." if others else REFUSED
        self._out[self._top] += f'<p class="fault refused" role="alert">{escape(said)}</p>'
        return "".join(self._out)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raw = self.get_starttag_text() or ""
        if tag == "details":
            self._details.append(len(self._out))
        if tag == "form":
            self._left -= 1
            self._inside = self._left == 0
        fill = getattr(self, f"_fill_{tag}", None) if self._inside else None
        self._out.append(fill(raw, attrs) if fill else raw)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._out.append(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "details" and self._details:
            self._details.pop()
        if tag == "textarea":
            self._is_dropped = False
        if tag == "form":
            self._inside = False
        self._out.append(f"</{tag}>{self._after.pop(tag, '')}")

    def handle_data(self, data: str) -> None:
        if self._is_dropped:
            return
        if self._option is not None:
            given = dict(self._option)
            value = given.get("value", data.strip())
            ticked = " selected" if value in self._form.get(self._select or "", ()) else ""
            kept = [(name, text) for name, text in self._option if name != "selected"]
            self._out.append(_tag("option", kept)[:-1] + f"{ticked}>")
            self._option = None
        self._out.append(data)

    def handle_entityref(self, name: str) -> None:
        self._keep(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self._keep(f"&#{name};")

    def handle_decl(self, decl: str) -> None:
        self._keep(f"<!{decl}>")

    def _keep(self, text: str) -> None:
        if not self._is_dropped:
            self._out.append(text)

    def _fill_form(self, raw: str, _: _Attributes) -> str:
        self._top = len(self._out)
        for place in self._details:
            if " open" not in self._out[place]:
                self._out[place] = self._out[place][:-1] + " open>"
        return raw

    def _fill_input(self, raw: str, attrs: _Attributes) -> str:
        given = dict(attrs)
        name, kind = given.get("name") or "", given.get("type", "text")
        if kind == "hidden" or not name:
            return raw
        values = self._form.get(name, ())
        if kind in TICKED:
            kept = [each for each in attrs if each[0] != "checked"]
            is_on = (given.get("value") or "on") in values
            return _tag("input", [*kept, ("checked", None)] if is_on else kept)
        kept = [each for each in attrs if each[0] != "value" or not values]
        value = [("value", values[-1])] if values else []
        marks, fault = self._marked(name)
        return _tag("input", [*kept, *value, *marks]) + fault

    def _fill_textarea(self, raw: str, attrs: _Attributes) -> str:
        name = dict(attrs).get("name") or ""
        marks, self._after["textarea"] = self._marked(name)
        tag = _tag("textarea", [*attrs, *marks])
        if name not in self._form:
            return tag
        self._is_dropped = True
        return f"{tag}\n{escape(self._form[name][-1])}"

    def _fill_select(self, raw: str, attrs: _Attributes) -> str:
        self._select = dict(attrs).get("name") or ""
        marks, self._after["select"] = self._marked(self._select)
        return _tag("select", [*attrs, *marks])

    def _fill_option(self, raw: str, attrs: _Attributes) -> str:
        if self._select not in self._form:
            return raw
        self._option = attrs
        return ""

    def _marked(self, name: str) -> tuple[_Attributes, str]:
        """Return the attributes of a field with a fault, and what stands behind the field."""
        mine = [fault for fault in self._faults if name in _names(fault.field)]
        if not mine:
            return (), ""
        self._faults = [fault for fault in self._faults if fault not in mine]
        focus: _Attributes = () if self._has_focus else (("autofocus", None),)
        self._has_focus = True
        said = "; ".join(fault.message for fault in mine)
        return (("aria-invalid", "true"), *focus), f'<span class="fault">{escape(said)}</span>'


def _names(field: str) -> set[str]:
    """Return the names that a form can have for the field of a fault."""
    whole = field.partition("[")[0]
    first, _, rest = whole.partition(".")
    return {whole, first, rest.rpartition(".")[2], NAMES.get(whole, whole)} - {"", TOKEN_FIELD}


def _tag(name: str, attrs: _Attributes) -> str:
    parts = [key if value is None else f'{key}="{escape(value)}"' for key, value in attrs]
    return f"<{' '.join([name, *parts])}>"
