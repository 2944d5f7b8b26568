"""The environment of a child process."""

from graphcrate.host import settings


def test_child_environment_has_only_selected_variables():
    user = {"HOME": "/home/a", "SECRET_TOKEN": "x", "LANG": "de_DE.UTF-8", "PIP_INDEX_URL": "u", "https_proxy": "p"}
    chosen = settings.select_for_child({**user, "PATH": "/opt/bin:/usr/bin", "WANTED": "w"}, ("WANTED",))
    wanted = {"HOME": "/home/a", "PIP_INDEX_URL": "u", "https_proxy": "p", "LANG": "C.UTF-8", "WANTED": "w"}
    assert wanted.items() <= chosen.items()
    assert "SECRET_TOKEN" not in chosen
    path = chosen["PATH"].split(":")  # the system's folders follow the user's
    assert (path[:2], "/usr/sbin" in path, len(set(path))) == (["/opt/bin", "/usr/bin"], True, len(path))
