"""What an address tells: whether it is this machine's, so that no proxy is asked and nothing has to be paid."""

from ipaddress import ip_address
from urllib.parse import urlsplit


def host_of(url: str) -> str:
    """The host of an address; empty where it is none."""
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
