"""Pictures, read as what they are made of."""

from xml.etree import ElementTree


def elements(picture: str, name: str) -> list[ElementTree.Element]:
    """All elements of an SVG with this name, in their order."""
    # The picture is the one that was just drawn.
    root = ElementTree.fromstring(picture)  # noqa: S314
    return list(root.iter(f"{{http://www.w3.org/2000/svg}}{name}"))
