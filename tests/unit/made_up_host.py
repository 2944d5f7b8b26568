"""Machines made of files below a folder, and programs with what they would say, for the doctor to look at."""

from doctor.host import Done, Host, Room

GIB = 1 << 30
LARGE = Room(500 * GIB, 400 * GIB)


class MadeUp(Host):
    """`programs`: name → what it prints, or a Done; `python`: what it says to a program with that text.

    `closed`: names that may not be opened, or name → why not.
    `files`: name → text; None: it is not there. A name that ends in a slash is a folder, a text "-> PATH" a link.
    """

    def __init__(
        self, root, files=(), programs=None, python=None, rooms=None, environment=(), uid=1000, closed=(), setuid=()
    ):
        super().__init__(str(root), {"HOME": "/home/alice", "PATH": "/usr/bin", **dict(environment)})
        self.uid, self.closed, self.setuid = uid, closed, setuid
        self.programs, self.answers, self.rooms = programs or {}, python or {}, rooms or {}
        usual = dict.fromkeys(("/home/alice/", "/tmp/", "/dev/shm/", "/proc/self/ns/user"), "")
        usual["/proc/sys/kernel/osrelease"] = "5.15.0-100-generic\n"
        for name, text in {**usual, **dict(files)}.items():
            path = self.path(name)
            if text is not None:
                (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
                if not name.endswith("/"):
                    path.write_text(text)

    def user(self):
        return "alice"

    def find(self, program):
        return f"/usr/bin/{program}" if program in self.programs else None

    def real(self, name):
        text = self.read(name) or ""
        return text[3:] if text.startswith("-> ") else name

    def run(self, argv, limit=2.0, stdin=""):
        if argv[0] == self.python:
            for sign, answer in self.answers.items():
                if sign in argv[-1] or any(sign in word for word in argv):
                    return answer if isinstance(answer, Done) or answer is None else Done(0, answer, "")
            return Done(1, "", "nothing made up")
        said = self.programs[argv[0].rsplit("/", 1)[-1]]
        if isinstance(said, dict):
            said = next((text for word, text in said.items() if word in argv), "")
        return said if isinstance(said, Done) or said is None else Done(0, said, "")

    def room(self, name):
        fitting = [folder for folder in self.rooms if name == folder or name.startswith(folder.rstrip("/") + "/")]
        return self.rooms[max(fitting, key=len)] if fitting else LARGE

    def may_write(self, name):
        return name not in self.closed

    def open_error(self, name):
        reasons = self.closed if isinstance(self.closed, dict) else dict.fromkeys(self.closed, "Permission denied")
        return reasons.get(name, "")

    def is_setuid_root(self, name):
        return name in self.setuid

    def name(self):
        return "node1"

    def working_folder(self):
        return "/home/alice"


def by_id(findings):
    """Findings by their id; of several with one the worst."""
    order = ("ok", "note", "warn", "fail")
    found = {}
    for each in findings:
        assert each.status in order
        assert each.seen
        if each.status in ("warn", "fail"):
            assert each.why, f"{each.id} does not say why"
            assert each.fix, f"{each.id} does not say what to do"
        if each.id not in found or order.index(each.status) > order.index(found[each.id].status):
            found[each.id] = each
    return found
