from graphcrate.host import settings


def test_children_get_only_what_they_need():
    chosen = settings.select_for_child(
        {
            "PATH": "/opt/bin:/usr/bin",
            "HOME": "/home/a",
            "SECRET_TOKEN": "x",
            "LANG": "de_DE.UTF-8",
            "PIP_INDEX_URL": "u",
            "https_proxy": "p",
            "WANTED": "w",
        },
        ("WANTED",),
    )
    assert chosen["HOME"] == "/home/a"
    assert chosen["PIP_INDEX_URL"] == "u"
    assert chosen["https_proxy"] == "p"
    assert chosen["LANG"] == "C.UTF-8"
    assert chosen["WANTED"] == "w"
    assert "SECRET_TOKEN" not in chosen


def test_system_folders_follow_the_users_path():
    path = settings.select_for_child({"PATH": "/opt/bin:/usr/bin"})["PATH"].split(":")
    assert path[:2] == ["/opt/bin", "/usr/bin"]
    assert "/usr/sbin" in path
    assert len(set(path)) == len(path)
