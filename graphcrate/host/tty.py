"""Asking the person at the terminal for a secret, which is shown nowhere."""

import getpass
import sys


def is_interactive() -> bool:
    """Whether somebody sits at the terminal."""
    return sys.stdin.isatty()


def ask_password(prompt: str) -> str | None:
    """What the person types; None where there is no terminal to type at, or the person gives up."""
    if not is_interactive():
        return None
    try:
        return getpass.getpass(prompt)
    except EOFError:
        return None
