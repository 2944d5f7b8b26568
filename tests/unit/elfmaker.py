"""The maker of small ELF files and fat binaries, which the tests of treeaudit have."""

import sys

from tests import ROOT

sys.path.append(str(ROOT / "packages/treeaudit/tests"))

from elfmaker import PTX, SASS, SHT, WHOLE, WHOLE_CODE, assemble, entry, fat_binary, make_elf

__all__ = ["PTX", "SASS", "SHT", "WHOLE", "WHOLE_CODE", "assemble", "entry", "fat_binary", "make_elf"]
