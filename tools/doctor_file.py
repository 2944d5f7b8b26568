"""Write doctor.py, the doctor in one file to copy to a node. `make doctor.py` calls it; images have the same file."""

from pathlib import Path

from graphcrate.compat.plan.programs import doctor

ROOT = Path(__file__).resolve().parent.parent


if __name__ == "__main__":
    target = ROOT / "doctor.py"
    target.write_text(doctor(ROOT / "doctor"), encoding="utf-8")
    target.chmod(0o755)
