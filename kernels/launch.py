"""One launcher: torch tensors and a ``KernelConfig`` in, a ready launch of the template out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from costmodel.config import KernelConfig
from costmodel.errors import ConfigError
from costmodel.kernels.epilogue import Epilogue
from costmodel.kernels.matrix import Matrix, descriptor_facts, operand_names
from costmodel.kernels.matvec import matvec_kernel
from costmodel.kernels.persistent_tma import persistent_tma_kernel
from costmodel.kernels.split_k import split_k_kernel
from costmodel.kernels.tile import tile_kernel
from costmodel.resources.legality import MATVEC_COLUMNS, SUMS_IN_FP16

_GRID_Y_LIMIT = 65535  # CUDA's limit on gridDim.y, which carries the batch
_STORE_BYTES = 16  # widest store
#: what "matvec" sums in fp32 without loss
_MATVEC_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
#: programs of a persistent grid where no device says how many it has (interpreter, meta tensors)
_UNITS_WITHOUT_DEVICE = 4


@dataclass(frozen=True)
class Launch:
    """A kernel with all its arguments: ``run()`` launches it, ``compile()`` only compiles it."""

    kernel: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    constants: dict[str, Any]
    out: torch.Tensor
    #: a second kernel that finishes what this one leaves
    then: Launch | None = None
    #: places in ``args`` of tensors that must hold zeros when the kernel starts
    zeroed: tuple[int, ...] = ()

    def steps(self) -> Iterator[Launch]:
        """This kernel and all that follow it, in order."""
        yield self
        if self.then is not None:
            yield from self.then.steps()

    def run(self) -> torch.Tensor:
        self.kernel[self.grid](*self.args, **self.constants)
        if self.then is not None:
            self.then.run()
        return self.out

    @property
    def variant(self) -> tuple[object, ...]:
        """What decides the compiled code: launches of equal variants share one kernel."""
        types = tuple(
            arg.dtype if isinstance(arg, torch.Tensor) else
            (arg.base.dtype, tuple(arg.block_shape)) if hasattr(arg, "block_shape") else
            isinstance(arg, int) and not -(2**31) <= arg < 2**31
            for arg in self.args
        )  # fmt: skip
        own = (self.kernel.__name__, types, tuple(map(str, self.constants.values())))
        return own if self.then is None else own + self.then.variant

    def compile(self) -> Any:
        """Compile for the active driver's target; no launch. Of several kernels, returns the one
        that takes the most shared memory: the product.
        """
        mine = self.kernel.warmup(*self.args, grid=self.grid, **self.constants)
        if self.then is None:
            return mine
        return max(mine, self.then.compile(), key=lambda kernel: kernel.metadata.shared)


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    config: KernelConfig,
    *,
    out: torch.Tensor | None = None,
    **options: Any,
) -> torch.Tensor:
    """C = alpha * A B + beta * C with this configuration. See ``prepare`` for the arguments."""
    return prepare(a, b, config, out=out, **options).run()


def prepare(
    a: torch.Tensor,
    b: torch.Tensor,
    config: KernelConfig,
    *,
    out: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float | None = None,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    residual: torch.Tensor | None = None,
    precision: str | None = None,
    accumulate: str | None = None,
    units: int | None = None,
    sized_for: tuple[int, int] | None = None,
) -> Launch:
    """Bind tensors to a configuration.

    ``a`` is [M, K] or [batch, M, K], ``b`` [K, N] or [batch, K, N], each contiguous along one of
    its last two axes: a transposed view is a transposed layout, with no copy. ``out`` is [M, N]
    or [batch, M, N], row-major; made if absent (required where ``beta`` is not 0). C becomes
    activation(alpha * A B + bias) + beta * C, with ``bias`` [N] and ``activation`` "relu", "gelu"
    or "silu"; ``residual``, which lies as C does, is added in C's place. ``units`` is the size of
    a persistent grid, the device's multiprocessor count by default. ``sized_for`` are the rows
    and columns of C that a second kernel's compile-time constants follow, C's own by default:
    launches of many M that name one size share its code. ``accumulate`` "fp16" sums products of
    fp16 in fp16: less exact, and faster on chips whose matrix unit halves its rate for fp32.
    Raises ``ConfigError`` where the template cannot take these tensors.
    """
    if a.ndim not in (2, 3) or b.ndim != a.ndim:
        raise ConfigError(
            f"a and b must both be 2-D or both 3-D, got {tuple(a.shape)} and {tuple(b.shape)}"
        )
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise ConfigError(f"shapes do not multiply: {tuple(a.shape)} and {tuple(b.shape)}")
    if a.dtype != b.dtype:
        raise ConfigError(f"a is {a.dtype} and b is {b.dtype}: they must be of one type")
    if out is None:
        if beta and residual is None:
            raise ConfigError("beta is not 0, so out must hold the C that is added")
        shape = (*a.shape[:-1], b.shape[-1])
        out = torch.empty(shape, device=a.device, dtype=_default_out(a.dtype))
    expected = (*a.shape[:-1], b.shape[-1])
    if tuple(out.shape) != expected or out.stride(-1) != 1 or _overlaps(out):
        raise ConfigError(
            f"out must be row-major {expected} with its rows apart, got {tuple(out.shape)} with "
            f"strides {out.stride()}; leave it out to have it made"
        )
    if units is not None and units < 1:
        raise ConfigError(f"units must be 1 or more, got {units}; leave it out for the device's")
    x, y, z, config = _kernel_space(a, b, out, config)
    shared = {
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_K": config.block_k,
        "PRECISION": (precision or "tf32") if a.dtype == torch.float32 else "ieee",
        "ACCUMULATOR": _accumulator(a.dtype, accumulate, config.template),
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
    }
    epilogue = Epilogue.of(out, alpha, beta, bias, activation, residual)
    shared |= epilogue.constants()
    bind = _BINDERS[config.template]
    rows, columns = sized_for or expected[-2:]
    extent = (columns, rows) if config.swap else (rows, columns)
    return bind(x, y, z, out, config, epilogue, units, extent, shared)


def _accumulator(dtype: torch.dtype, accumulate: str | None, template: str) -> Any:
    """Triton's type of the running sum."""
    if accumulate != "fp16":
        return tl.int32 if dtype == torch.int8 else tl.float32
    if dtype != torch.float16 or template not in SUMS_IN_FP16:
        raise ConfigError(
            f"template {template!r} does not sum {dtype} in fp16: "
            f"only {', '.join(SUMS_IN_FP16)} do, for operands of fp16"
        )
    return tl.float16


def _overlaps(out: torch.Tensor) -> bool:
    """Whether rows of C, or its batch entries, lie over each other."""
    steps = zip(out.shape[:-1], out.stride()[:-1], strict=True)
    return any(size > 1 and step < out.shape[-1] for size, step in steps)


def _kernel_space(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, config: KernelConfig
) -> tuple[Matrix, Matrix, Matrix, KernelConfig]:
    """The operands and blocks as the kernel sees them: swapped, C' = B' A' where asked for."""
    x, y, z = Matrix.of(a, "a"), Matrix.of(b, "b"), Matrix(out, False)
    if not config.swap:
        return x, y, z, config
    fields = config.as_dict() | {"block_m": config.block_n, "block_n": config.block_m}
    return y.flipped(), x.flipped(), z.flipped(), KernelConfig(**fields)


def _align(number: int, limit: int) -> int:
    """The largest power of two that divides ``number``, up to ``limit``."""
    return min(number & -number, limit) if number else limit


def _pointer_arguments(
    x: Matrix, y: Matrix, z: Matrix, config: KernelConfig
) -> tuple[list[int], dict[str, Any]]:
    """Sizes and strides in units of their alignment, with the alignments as constants."""
    m, n, k = x.rows(), y.cols(), x.cols()
    widest = max(1, (config.load_bits or 128) // (8 * x.stored.element_size()))
    widest_c = _STORE_BYTES // z.stored.element_size()
    even_k = k % config.block_k == 0
    align = {
        # a size matters to the compiler only where its axis is contiguous somewhere
        "ALIGN_M": _align(m, widest) if x.transposed or z.transposed else 1,
        "ALIGN_N": _align(n, widest) if not (y.transposed and z.transposed) else 1,
        "ALIGN_K": 1 if even_k else _align(k, widest),
        "ALIGN_A": min(_align(x.leading, widest), _align(x.batch_stride, widest)),
        "ALIGN_B": min(_align(y.leading, widest), _align(y.batch_stride, widest)),
        "ALIGN_C": min(_align(z.leading, widest_c), _align(z.batch_stride, widest_c)),
    }
    operand_units = list(align.values())[3:]
    sizes = (m, n, k, x.leading, y.leading, z.leading)
    scalars = [size // unit for size, unit in zip(sizes, align.values(), strict=True)]
    batch_strides = (x.batch_stride, y.batch_stride, z.batch_stride)
    scalars += [step // unit for step, unit in zip(batch_strides, operand_units, strict=True)]
    constants = align | {
        "A_TRANSPOSED": x.transposed,
        "B_TRANSPOSED": y.transposed,
        "C_TRANSPOSED": z.transposed,
        "EVEN_K": even_k,
    }
    return scalars, constants


def _grid(x: Matrix, y: Matrix, config: KernelConfig) -> tuple[int, int]:
    tiles = triton.cdiv(x.rows(), config.block_m) * triton.cdiv(y.cols(), config.block_n)
    batch = x.stored.shape[0] if x.stored.ndim == 3 else 1
    if batch > _GRID_Y_LIMIT and config.template != "persistent_tma":
        raise ConfigError(
            f"batch {batch} exceeds the grid's limit of {_GRID_Y_LIMIT} for {config.template}; "
            "split the batch or use persistent_tma"
        )
    return tiles, batch


def _tensors(x: Matrix, y: Matrix, z: Matrix, epilogue: Epilogue) -> tuple[torch.Tensor, ...]:
    return (x.stored, y.stored, z.stored, *epilogue.tensors(z.stored))


def _factors(epilogue: Epilogue) -> tuple[float, float]:
    return (epilogue.alpha, epilogue.beta)


def _lying_as(z: Matrix, epilogue: Epilogue) -> Matrix:
    """What is added, seen as C is."""
    added, _ = epilogue.tensors(z.stored)
    return Matrix(added, z.transposed)


def _bind_tile(
    x: Matrix, y: Matrix, z: Matrix, out: torch.Tensor, config: KernelConfig,
    epilogue: Epilogue, units: int | None, extent: tuple[int, int], shared: dict[str, Any],
) -> Launch:  # fmt: skip
    scalars, constants = _pointer_arguments(x, y, z, config)
    args = (*_tensors(x, y, z, epilogue), *_factors(epilogue), config.group_m or 1, *scalars)
    return Launch(tile_kernel, _grid(x, y, config), args, shared | constants, out)


def _bind_split_k(
    x: Matrix, y: Matrix, z: Matrix, out: torch.Tensor, config: KernelConfig,
    epilogue: Epilogue, units: int | None, extent: tuple[int, int], shared: dict[str, Any],
) -> Launch:  # fmt: skip
    scalars, constants = _pointer_arguments(x, y, z, config)
    tiles, batch = _grid(x, y, config)
    part = config.block_m * config.block_n
    kind = torch.int32 if x.stored.dtype == torch.int8 else torch.float32
    parts = torch.empty(tiles * batch * config.split_k * part, device=out.device, dtype=kind)
    arrivals = torch.zeros(tiles * batch, device=out.device, dtype=torch.int32)
    varying = (*_factors(epilogue), config.group_m or 1, config.split_k, *scalars)
    args = (*_tensors(x, y, z, epilogue), parts, arrivals, *varying)
    grid = (tiles * config.split_k, batch)
    # the seventh argument: arrivals
    return Launch(split_k_kernel, grid, args, shared | constants, out, zeroed=(6,))


def _bind_persistent_tma(
    x: Matrix, y: Matrix, z: Matrix, out: torch.Tensor, config: KernelConfig,
    epilogue: Epilogue, units: int | None, extent: tuple[int, int], shared: dict[str, Any],
) -> Launch:  # fmt: skip
    m, n, k = x.rows(), y.cols(), x.cols()
    tiles, batch = _grid(x, y, config)
    part_n = config.block_n // config.epilogue_parts
    first, second = operand_names(config)
    descriptors = (
        TensorDescriptor(m.stored, *descriptor_facts(name, config.template, m, rows, cols))
        for name, m, rows, cols in (
            (first, x, config.block_m, config.block_k),
            (second, y, config.block_k, config.block_n),
            ("c", z, config.block_m, part_n),
            ("the addend", _lying_as(z, epilogue), config.block_m, part_n),
        )
    )
    units = _units(out) if units is None else units
    constants = {
        "A_TRANSPOSED": x.transposed,
        "B_TRANSPOSED": y.transposed,
        "C_TRANSPOSED": z.transposed,
        "BATCHED": x.stored.ndim == 3,
        "EPILOGUE_PARTS": config.epilogue_parts,
        "SHIFT": epilogue.may_store_twice,
    }
    _, bias = epilogue.tensors(z.stored)
    args = (*descriptors, bias, *_factors(epilogue), config.group_m or 1, m, n, k, batch)
    grid = (min(units, tiles * batch),)
    return Launch(persistent_tma_kernel, grid, args, shared | constants, out)


def _bind_matvec(
    x: Matrix, y: Matrix, z: Matrix, out: torch.Tensor, config: KernelConfig,
    epilogue: Epilogue, units: int | None, extent: tuple[int, int], shared: dict[str, Any],
) -> Launch:  # fmt: skip
    if config.block_n != triton.next_power_of_2(y.cols()) or config.block_n > MATVEC_COLUMNS:
        axis = "rows" if config.swap else "columns"
        raise ConfigError(
            f"{config} does not take {y.cols()} {axis} of C: matvec's block is the next power of "
            f"two, up to {MATVEC_COLUMNS}; use another template"
        )
    if x.stored.dtype not in _MATVEC_DTYPES:
        raise ConfigError(f"matvec does not take {x.stored.dtype}; use template 'tile'")
    scalars, constants = _pointer_arguments(x, y, z, config)
    dropped = ("BLOCK_N", "PRECISION", "ACCUMULATOR")
    shared = {name: value for name, value in shared.items() if name not in dropped}
    constants |= {"COLUMNS": config.block_n}
    args = (*_tensors(x, y, z, epilogue), *_factors(epilogue), *scalars)
    return Launch(matvec_kernel, _grid(x, y, config), args, shared | constants, out)


def _bind_warp_specialized(
    x: Matrix, y: Matrix, z: Matrix, out: torch.Tensor, config: KernelConfig,
    epilogue: Epilogue, units: int | None, extent: tuple[int, int], shared: dict[str, Any],
) -> Launch:  # fmt: skip
    from costmodel.kernels.warp_groups import bind

    if x.stored.dtype == torch.float32 and shared["PRECISION"] != "tf32":
        raise ConfigError(
            f"{config.template} multiplies fp32 in tf32, not {shared['PRECISION']}; "
            "use template 'tile'"
        )
    if x.stored.ndim == 3 and len(x.stored) == 1:
        x, y, z = (Matrix(matrix.stored[0], matrix.transposed) for matrix in (x, y, z))
    units = _units(out) if units is None else units
    launch = None
    bound = bind(x, y, z, config, epilogue, units, extent)
    for kernel, grid, args, constants in reversed(bound):
        launch = Launch(kernel, grid, args, constants, out, launch)
    assert launch is not None
    return launch


def _units(out: torch.Tensor) -> int:
    if out.device.type != "cuda":
        return _UNITS_WITHOUT_DEVICE
    return int(torch.cuda.get_device_properties(out.device).multi_processor_count)


def _default_out(dtype: torch.dtype) -> torch.dtype:
    if dtype == torch.int8:
        return torch.int32
    return torch.bfloat16 if dtype.itemsize == 1 else dtype


def kernels() -> tuple[Any, ...]:
    """Every kernel that a launch may name, as far as this Triton can make them."""
    known: tuple[Any, ...] = (tile_kernel, split_k_kernel, persistent_tma_kernel, matvec_kernel)
    try:
        from costmodel.kernels.pack import pack_kernel
        from costmodel.kernels.reduce_parts import reduce_parts_kernel
        from costmodel.kernels.warp_specialized import warp_specialized_kernel
    except ImportError:  # a Triton without Gluon
        return known
    return (*known, pack_kernel, reduce_parts_kernel, warp_specialized_kernel)


_BINDERS: dict[str, Callable[..., Launch]] = {
    "tile": _bind_tile,
    "split_k": _bind_split_k,
    "persistent_tma": _bind_persistent_tma,
    "warp_specialized": _bind_warp_specialized,
    "packed": _bind_warp_specialized,
    "matvec": _bind_matvec,
}
