"""Write doctor.py, the doctor in one file to copy to a node. `make doctor.py` calls it; images have the same file."""

from pathlib import Path

from graphcrate.compat.doctor_file import one_file

ROOT = Path(__file__).resolve().parent.parent


def text() -> str:
    """Return the file."""
    return one_file({path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "doctor").glob("*.py")})


if __name__ == "__main__":
    target = ROOT / "doctor.py"
    target.write_text(text(), encoding="utf-8")
    target.chmod(0o755)
