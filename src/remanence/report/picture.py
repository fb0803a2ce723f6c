"""One chart as a file: SVG or PNG on white paper, or a page that opens offline and follows the reader's scheme."""

import importlib.util
import re
from functools import cache
from pathlib import Path
from textwrap import wrap
from typing import Any

from remanence.errors import UserError
from remanence.report import markup
from remanence.report.markup import Figure
from remanence.report.page import bundle
from remanence.report.style import STYLE

FORMATS = (".svg", ".png", ".html")
WIDTH, LETTERS = 760, 120  # pixels, and letters of text that they hold
_TITLE = {"color": "var(--ink)", "subtitleColor": "var(--soft)", "subtitleFontSize": 12, "offset": 12}


def picture_path(text: str) -> Path:
    """A path whose ending says how the picture is written; the extra that draws is there."""
    path = Path(text)
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"--picture: '{text}' is not allowed: must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    if path.is_dir():
        raise UserError(f"--picture: {path} is a folder")
    for package in ("altair", "vl_convert"):
        if importlib.util.find_spec(package) is None:
            raise UserError(f"--picture: {package} is not installed: pip install 'remanence[report]'")
    return path


def write_picture(shown: Figure, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_content(shown, path.suffix.lower()))
    except OSError as error:
        raise UserError(f"--picture: {path} cannot be written ({error.strerror})") from None


def _content(shown: Figure, ending: str) -> bytes:
    if ending == ".html":
        return _page(shown).encode()
    import vl_convert

    if ending == ".png":
        return vl_convert.vegalite_to_png(_on_paper(shown), scale=2)
    return vl_convert.vegalite_to_svg(_on_paper(shown)).encode()


def _page(shown: Figure) -> str:
    from remanence.report.charts import CONFIG

    data = {"config": CONFIG, "specs": {shown.name: shown.spec}}
    body = f"<header><h1>{markup.escape(shown.title)}</h1></header>\n<main>{markup.figure(shown)}</main>"
    return markup.document(shown.title, STYLE, body, data, bundle())


def _on_paper(shown: Figure) -> dict[str, Any]:
    """The specification with a width, and with colours where the page has variables."""
    from remanence.report.charts import CONFIG

    title = {"text": shown.title, "subtitle": wrap(shown.about, LETTERS), "anchor": "start", **_TITLE}
    spec = shown.spec | {"width": WIDTH, "config": CONFIG | {"background": "var(--paper)"}, "title": title}
    found: dict[str, Any] = _coloured(spec)
    return found


def _coloured(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _coloured(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_coloured(inner) for inner in value]
    return _light().get(value, value) if isinstance(value, str) else value


@cache
def _light() -> dict[str, str]:
    """`var(--paper)` -> its colour in the light scheme, which comes first in the style sheet."""
    found: dict[str, str] = {}
    for name, colour in re.findall(r"(--[a-z0-9-]+): (#[0-9a-f]{6})", STYLE):
        found.setdefault(f"var({name})", colour)
    return found
