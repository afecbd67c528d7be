"""The package's public names: what they are, also after their modules were imported."""

import importlib
import pkgutil
import subprocess
import sys

import costmodel as cm


def test_every_public_name_can_be_had_and_is_no_module():
    for info in pkgutil.walk_packages(cm.__path__, "costmodel."):
        # command modules register themselves; nothing else happens on import
        if not info.name.startswith(("costmodel.kernels", "costmodel.data", "costmodel.demo")):
            importlib.import_module(info.name)
    for name in cm.__all__:
        assert type(getattr(cm, name)).__name__ != "module", name


def test_an_unknown_attribute_is_named():
    try:
        cm.predict_worst  # noqa: B018
    except AttributeError as error:
        assert "predict_worst" in str(error)
    else:
        raise AssertionError("no AttributeError")


def test_importing_the_package_loads_no_heavy_library():
    code = (
        "import sys, costmodel; "
        "print([m for m in ('numpy', 'pandas', 'sklearn', 'scipy', 'torch') if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"
