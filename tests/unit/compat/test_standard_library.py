"""Modules of Python that Debian packages apart: named with their package, and in the bases whose packages need one."""

import pytest

from graphcrate.compat.facts import standard_library, suites
from graphcrate.compat.failures import importing


@pytest.mark.parametrize(
    ("module", "python", "package"),
    [
        ("distutils.cmd", "3.9", "python3-distutils"),
        ("distutils", "", "python3-distutils"),
        ("distutils", "3.12", ""),  # which has none
        ("lib2to3.pgen2", "3.12", "python3-lib2to3"),
        ("ensurepip", "3.13", "python3-venv"),
        ("numpy", "3.9", ""),
    ],
)
def test_module_that_debian_packages_apart_has_its_package(module, python, package):
    assert standard_library.package_of(module, python) == package
    told = (module, package) if package else None
    assert importing.apart(f"ModuleNotFoundError: No module named '{module}'", python) == told
    assert importing.apart(f"NameError: name '{module}' is not defined", python) is None


def test_importers_name_modules_of_the_table():
    for row in standard_library.importers():
        assert all(
            standard_library.package_of(row.module, base.python)
            for base in suites.bases().values()
            if standard_library.lacked(row.package, base.python, ())
        )
