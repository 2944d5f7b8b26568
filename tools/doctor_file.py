"""Write doctor.py, the doctor in one file to copy to a node. `make doctor.py` calls it; images have the same file."""

from pathlib import Path

from graphcrate.compat.doctor_file import one_file

ROOT = Path(__file__).resolve().parent.parent


def text() -> str:
    """Return the file."""
    folder = ROOT / "doctor"
    modules = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    return one_file(modules, (folder / "errors.ini").read_text(encoding="utf-8"))


if __name__ == "__main__":
    target = ROOT / "doctor.py"
    target.write_text(text(), encoding="utf-8")
    target.chmod(0o755)
