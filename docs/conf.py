"""How `make docs` builds these pages."""

import re

from sphinx.application import Sphinx

project = "tui-agent"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "tui-agent"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
myst_heading_anchors = 3
nitpicky = True


def _add_toctree(app: Sphinx, page: str, source: list[str]) -> None:
    """The order of the pages is that of the links of the index, so that it is written once."""
    if page == app.config.root_doc:
        pages = re.findall(r"\]\((\w+)\.md\)", source[0])
        source[0] += "\n".join(["\n```{toctree}", ":hidden:", "", *pages, "```\n"])


def setup(app: Sphinx) -> None:
    """Sphinx calls this as it starts."""
    app.connect("source-read", _add_toctree)
