"""The environment and the clock, read here and nowhere else."""

import datetime
import os
import time
from collections.abc import Mapping
from pathlib import Path

#: what a child process may inherit: where programs and folders are, how to reach the network, how pip and uv are set
#: up; LD_LIBRARY_PATH because the Python of a site's environment modules does not start without it
INHERITED = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LD_LIBRARY_PATH"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NETRC"),
        *("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    )
)
INHERITED_PREFIXES = ("PIP_", "UV_")
#: a plain user's PATH often lacks these, and programs that we start are there
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin")

#: registries that are spoken to without TLS, by commas: HOST or HOST:PORT, or ANY
PLAIN_HTTP, ANY = "REGISTRY_PLAIN_HTTP", "*"


def environment() -> Mapping[str, str]:
    """A copy of this process's environment."""
    return dict(os.environ)


def home(environment: Mapping[str, str]) -> Path | None:
    """The user's home folder; None where neither HOME nor the list of users has one, as for the user of a batch job."""
    if given := environment.get("HOME"):
        return Path(given)
    try:
        return Path.home()
    except RuntimeError:
        return None


def child_environment(*extra: str) -> dict[str, str]:
    """`select_for_child` of this process's environment."""
    return select_for_child(os.environ, extra)


def select_for_child(environment: Mapping[str, str], extra: tuple[str, ...] = ()) -> dict[str, str]:
    """Select the variables of child processes: those above and in `extra`, an English UTF-8 locale, UTC."""
    chosen = {
        name: value
        for name, value in environment.items()
        if name in INHERITED or name in extra or name.startswith(INHERITED_PREFIXES)
    }
    path = [folder for folder in chosen.get("PATH", "").split(":") if folder]
    chosen["PATH"] = ":".join(path + [folder for folder in SYSTEM_FOLDERS if folder not in path])
    return chosen | {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def now() -> float:
    """Unix time in seconds."""
    return time.time()


def today() -> datetime.date:
    """The day, in UTC."""
    return datetime.datetime.fromtimestamp(now(), datetime.UTC).date()


def day_began() -> int:
    """Return when the day began, in UTC, in Unix seconds: the same for all who lock on that day."""
    return int(now()) // 86_400 * 86_400


def wait(seconds: float) -> None:
    """Let this much time pass."""
    time.sleep(seconds)


def now_utc(ago: float = 0) -> str:
    """The date and time in UTC, to the second, as ISO 8601 has it ("2026-11-22T04:53:06Z"); so many seconds ago."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now() - ago))
