"""What would make a page wider than a phone: shared by the tests of all pages that commands write."""

from __future__ import annotations

from html.parser import HTMLParser


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, str]] = []
        self.columns = self.most = 0
        self.found: list[str] = []
        self.scaled = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "meta":
            self.scaled |= given.get("name") == "viewport"
        if tag in ("svg", "img") and not (given.get("width") or "100%").endswith("%"):
            self.found.append(f"{tag} of width {given['width']}")
        if tag == "table":
            self.most = 0
        self.columns = 0 if tag in ("table", "tr") else self.columns + (tag in ("td", "th"))
        self.most = max(self.most, self.columns)
        if tag in ("div", "table"):
            self.open.append((tag, given.get("class") or ""))

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("div", "table"):
            return
        self.open.pop()
        if tag == "table" and self.most > 2 and "wide" not in {name for _, name in self.open}:
            self.found.append(f"table of {self.most} columns")


def too_wide(html: str) -> list[str]:
    """Pictures that do not scale, tables of several columns that do not scroll by themselves, and a page that is told
    in the width of a desk."""
    page = _Page()
    page.feed(html)
    missing = [] if page.scaled else ["no viewport"]
    scrolls = "".join(html.split()).replace("{{", "{").find(".wide{overflow-x:auto}") >= 0
    return [*page.found, *missing, *([] if scrolls else ["class wide does not scroll"])]
