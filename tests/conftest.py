"""What several test files share: the choice of where kernels run, and skipping what needs a GPU.

Triton reads TRITON_INTERPRET when a kernel is defined, and for its own library when it is first
imported, so one process either interprets every kernel or compiles every kernel. The choice falls
here, before any test file can import triton. Where no GPU is visible, this process (each worker of
pytest-xdist is one) interprets kernels on the CPU; where there is one, the same tests compile and
run them on it. A test that needs the compiler without a GPU starts a process of its own with
TRITON_INTERPRET=0, as test_footprint.py does.
"""

import os

import pytest
from hypothesis import settings

# CI draws the same examples each time; elsewhere they are new, so that faults are found by use
settings.register_profile("ci", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def _gpu_is_visible() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


if not _gpu_is_visible():
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what is marked ``gpu`` where kernels are interpreted."""
    if os.environ.get("TRITON_INTERPRET") == "1" and item.get_closest_marker("gpu"):
        pytest.skip("needs a GPU that Triton supports")
