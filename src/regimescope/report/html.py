"""The self-contained page: one file, offline, no request to anybody. Layer: report.

The template engine escapes every string. Beside that, a content security policy forbids the page
to load anything, and to run any script but the three it was written with, named by their hashes.
Vega interprets its expressions instead of compiling them, so that ``eval`` stays forbidden too.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import tempfile
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from regimescope.errors import MissingDependencyError
from regimescope.records import Run
from regimescope.report import charts
from regimescope.report.escaping import script_json
from regimescope.report.page import figures, page_content
from regimescope.report.themes import THEME_NAMES, vega_config
from regimescope.results import Conclusion


def write_report(run: Run, conclusion: Conclusion, path: Path) -> None:
    """Write the page of a run; a reader finds the old page or the new one, never half of one.

    Args:
        run: The measurements.
        conclusion: The verdict on them.
        path: The file to write, in an existing folder.

    Raises:
        MissingDependencyError: Altair or vl-convert is not installed.
        OSError: The file cannot be written.
    """
    content = render_page(run, conclusion).encode("utf-8")
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        # A temporary file is readable by its owner only; a report is as public as its folder.
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _umask() -> int:
    """Return the mask of permissions that new files get; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def render_page(run: Run, conclusion: Conclusion) -> str:
    """Return the page as HTML.

    Raises:
        MissingDependencyError: Altair or vl-convert is not installed.
    """
    template = _template()
    content = page_content(run, conclusion)
    drawn = figures(content)
    scripts = [_asset("page.js")]
    if drawn:
        scripts.insert(0, _vega_bundle())
    definitions = {
        "charts": [{"name": figure.name, "definition": figure.definition} for figure in drawn],
        "themes": {theme: vega_config(theme) for theme in THEME_NAMES},
    }
    page: str = template.render(
        content,
        style=_asset("page.css"),
        scripts=scripts,
        policy=_policy(scripts),
        definitions=script_json(definitions),
    )
    return page


def _policy(scripts: list[str]) -> str:
    """Return the content security policy: nothing is loaded, only these scripts run."""
    hashes = (hashlib.sha256(script.encode("utf-8")).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(value).decode()}'" for value in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _template() -> Any:
    """Return the page template of an environment that escapes everything.

    Raises:
        MissingDependencyError: The template engine, which comes with Altair, is not installed.
    """
    try:
        import jinja2
    except ImportError as error:
        raise _missing("jinja2") from error
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_asset("page.html.jinja"))


@lru_cache(maxsize=1)
def _vega_bundle() -> str:
    """Return the libraries that draw the charts, as one script.

    Raises:
        MissingDependencyError: vl-convert is not installed.
    """
    try:
        import vl_convert
    except ImportError as error:
        raise _missing("vl-convert-python") from error
    # The definitions are written for this version of Vega-Lite, "v6.4.1" to be read as "6.4".
    version = ".".join(charts.load_altair().SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    known = version in vl_convert.get_vegalite_versions()
    bundle: str = vl_convert.javascript_bundle(
        "window.vegaEmbed = vegaEmbed;", vl_version=version if known else None
    )
    # In a script element only these two would be read as markup; inside JavaScript strings, where
    # alone they can occur, the escaped forms mean the same.
    return bundle.replace("</script", r"<\/script").replace("<!--", r"<\!--")


def _missing(library: str) -> MissingDependencyError:
    """Return the error for a library of the report extra."""
    return MissingDependencyError(
        f"The report needs {library}, which is not installed.",
        remedy="Install it: pip install 'regimescope[report]'",
    )


def _asset(name: str) -> str:
    """Return the text of a file that ships beside this module."""
    folder = resources.files("regimescope.report").joinpath("assets")
    return folder.joinpath(name).read_text(encoding="utf-8")
