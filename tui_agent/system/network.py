"""The network: the host of a URL, and the certificates that encrypted connections are checked with."""

import os
import ssl
from functools import cache
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


def tls() -> ssl.SSLContext:
    """What every HTTP client of this process checks servers with: certifi's authorities, or those that
    ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` name. The first call takes some 20 ms: not for the event loop.
    """
    return _context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _context(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()
