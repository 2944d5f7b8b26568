"""Tests of graphcrate. `ROOT` is the project's folder."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
