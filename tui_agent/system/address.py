"""The host of a URL, and whether it is this machine, which needs no proxy and costs nothing."""

from ipaddress import ip_address
from urllib.parse import urlsplit


def host_of(url: str) -> str:
    """The host of a URL; empty if the URL is invalid."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def is_local(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
