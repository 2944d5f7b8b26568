"""What the text of an address says."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a host's name (in lower case, no port) means this very machine; `127.example.com` is another's name."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
