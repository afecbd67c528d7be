"""A slice: some of a GPU's multiprocessors, which act as a chip of their own.

CUDA's driver gives out multiprocessors by green contexts. What is launched into a stream of one
runs on its multiprocessors alone; L2 and memory are the whole chip's. A process enters a slice
once: the slice's stream becomes torch's current stream, which torch, Triton's launcher, events and
captured graphs follow, while modules and memory stay in the primary context. It lasts as long as
the process, since torch may hold graphs, events and memory of that stream until then.
"""

from __future__ import annotations

import ctypes
from typing import Any

from costmodel.errors import DeviceError

_LIBRARY = "libcuda.so.1"
# cuda.h 12.8 and 13.0, "Green contexts"
_RESOURCE_IS_SM = 1
_NEEDS_DEFAULT_STREAM = 1
_STREAM_NON_BLOCKING = 1
#: programs for each of the device's units, fewer than one holds, and how long each stays: the last
#: ones start while the first are still there, so every unit gets some
_PROGRAMS_A_UNIT = 8
_STAY_NANOSECONDS = 50_000


class _Multiprocessors(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_uint),
        ("least", ctypes.c_uint),
        ("alignment", ctypes.c_uint),
    ]


class _Kinds(ctypes.Union):
    _fields_ = [("sm", _Multiprocessors), ("oversize", ctypes.c_ubyte * 48)]


class Resource(ctypes.Structure):
    """``CUdevResource``: 144 bytes."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("padding", ctypes.c_ubyte * 92),
        ("of", _Kinds),
    ]


class Driver:
    """NVIDIA's driver library: calls by name, their failures as ``DeviceError``."""

    def __init__(self, library: str = _LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise DeviceError(
                f"a slice needs NVIDIA's driver, and {library} does not load ({error}); leave "
                "the number of units out to measure the whole chip"
            ) from None

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns ``CUresult``."""
        try:
            function = self._library[name]
        except AttributeError:
            raise DeviceError(
                f"this NVIDIA driver has no {name}: a slice needs one of CUDA 12.4 or newer"
            ) from None
        status = function(*arguments)
        if status:
            told = ctypes.c_char_p()
            self._library.cuGetErrorName(status, ctypes.byref(told))
            why = told.value.decode() if told.value else f"CUDA error {status}"
            raise DeviceError(f"{name} failed: {why}")


def granted_units(units: int, device: int = 0, driver: Driver | None = None) -> int:
    """How many multiprocessors a slice of ``units`` gets: the driver rounds up, to 8 on sm_90.

    Opens no context. Raises ``DeviceError`` for a number that the device has not, and where the
    driver gives no slices.
    """
    driver = driver or Driver()
    driver.call("cuInit", 0)
    ordinal = ctypes.c_int()
    driver.call("cuDeviceGet", ctypes.byref(ordinal), device)
    whole = _of_device(driver, ordinal)
    if units == whole.of.sm.count:
        return units
    return int(_group(driver, whole, units).of.sm.count)


def enter(units: int, device: int = 0) -> int:
    """Make a slice's stream torch's current one on ``device`` until the process ends.

    Returns the multiprocessors that it really has; all of the device's are no slice, and nothing
    changes. Raises ``DeviceError`` as ``granted_units`` does, and where a kernel is seen to run
    on more of them.
    """
    import torch

    driver = Driver()
    torch.empty(1, device=torch.device("cuda", device))  # the primary context, before the slice's
    granted = granted_units(units, device, driver)
    if granted == torch.cuda.get_device_properties(device).multi_processor_count:
        return granted
    granted, stream = green_stream(driver, units, device)
    torch.cuda.set_stream(torch.cuda.ExternalStream(stream, device=torch.device("cuda", device)))
    seen = units_at_work(device)
    if seen > granted:
        raise DeviceError(
            f"a slice of {granted} multiprocessors was asked for, but kernels ran on {seen}: "
            "this driver, torch and Triton do not launch into green contexts together"
        )
    return granted


def green_stream(driver: Driver, units: int, device: int) -> tuple[int, int]:
    """Multiprocessors of a new green context, read back from it, and the address of its stream."""
    ordinal = ctypes.c_int()
    driver.call("cuDeviceGet", ctypes.byref(ordinal), device)
    group = _group(driver, _of_device(driver, ordinal), units)
    description, context, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    driver.call("cuDevResourceGenerateDesc", ctypes.byref(description), ctypes.byref(group), 1)
    driver.call(
        "cuGreenCtxCreate", ctypes.byref(context), description, ordinal, _NEEDS_DEFAULT_STREAM
    )
    has = Resource()
    driver.call("cuGreenCtxGetDevResource", context, ctypes.byref(has), _RESOURCE_IS_SM)
    driver.call("cuGreenCtxStreamCreate", ctypes.byref(stream), context, _STREAM_NON_BLOCKING, 0)
    return int(has.of.sm.count), int(stream.value or 0)


def units_at_work(device: int = 0) -> int:
    """On how many multiprocessors a kernel of torch's current stream is seen to run."""
    import torch

    from costmodel.kernels.probes import MOST_UNITS, units_at_work_kernel

    place = torch.device("cuda", device)
    seen = torch.zeros(MOST_UNITS, dtype=torch.int32, device=place)
    whole = torch.cuda.get_device_properties(device).multi_processor_count
    units_at_work_kernel[(whole * _PROGRAMS_A_UNIT,)](seen, _STAY_NANOSECONDS, num_warps=1)
    return int(seen.sum())


def _of_device(driver: Driver, ordinal: ctypes.c_int) -> Resource:
    whole = Resource()
    driver.call("cuDeviceGetDevResource", ordinal, ctypes.byref(whole), _RESOURCE_IS_SM)
    return whole


def _group(driver: Driver, whole: Resource, units: int) -> Resource:
    """The part of a device's multiprocessors that holds ``units`` of them."""
    most = int(whole.of.sm.count)
    if not 0 < units <= most:
        raise DeviceError(f"the device has {most} multiprocessors: there is no slice of {units}")
    group, rest, count = Resource(), Resource(), ctypes.c_uint(1)
    driver.call(
        "cuDevSmResourceSplitByCount", ctypes.byref(group), ctypes.byref(count),
        ctypes.byref(whole), ctypes.byref(rest), 0, units,
    )  # fmt: skip
    if count.value != 1:
        raise DeviceError(f"the driver makes no slice of {units} of its {most} multiprocessors")
    return group
