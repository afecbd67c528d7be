"""A measuring process of its own: a configuration that kills its CUDA context kills only that.

The parent sends jobs and gets rows back one at a time; if the process dies or hangs, the
configuration in flight becomes a row with the reason, and a fresh process takes the rest.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from costmodel.config import KernelConfig
from costmodel.errors import DeviceError
from costmodel.measure.timing import Protocol, Timing
from costmodel.problem import Gemm
from costmodel.records.schema import Row, make_row

#: longest wait for one configuration: compilation of a large tile takes up to a minute
_HANG_SECONDS = 90.0
_START_SECONDS = 180.0


@dataclass(frozen=True)
class WorkerOptions:
    """What a measuring process needs to know once."""

    device: int = 0
    protocol: Protocol = Protocol()
    cpu: int | None = None
    run: str = "unnamed"


def serve(connection: Connection, options: WorkerOptions) -> None:
    """Main of the child: measure what is asked until the parent closes the pipe."""
    import signal

    import torch

    from costmodel.measure.bench import ProblemBench
    from costmodel.measure.environment import environment
    from costmodel.measure.timing import Stopwatch, pin_cpu

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    if options.cpu is not None:
        pin_cpu(options.cpu)
    torch.cuda.set_device(options.device)
    stopwatch = Stopwatch(options.device, options.protocol)
    stopwatch.warm_up()
    facts = environment(options.device) | {"run": options.run}
    connection.send(("ready", facts, stopwatch.floor()))
    while True:
        try:
            problem, configs, sequence = connection.recv()
        except EOFError:
            return
        try:
            bench = ProblemBench(problem, stopwatch, facts | {"sequence": sequence})
        except torch.cuda.OutOfMemoryError as error:
            connection.send(("refused", str(error).split("\n", 1)[0]))
            continue
        for index, config in enumerate(configs):
            connection.send(("begin", index))
            row = bench.measure_vendor() if config is None else bench.measure(config)
            connection.send(("row", index, row))
            if "CUDA error" in (row["reason"] or ""):
                connection.send(("lost",))
                return  # the context is gone: every later call would fail too
        connection.send(("done",))
        del bench
        torch.cuda.empty_cache()


class MeasuringProcess:
    """Owns one ``serve`` process and hides its deaths. Use as a context manager."""

    facts: dict[str, Any]
    floor: Timing

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self.restarts = -1
        self._sequence = 0
        self._start()

    def __enter__(self) -> MeasuringProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def measure(self, problem: Gemm, configs: Sequence[KernelConfig | None]) -> Iterator[Row]:
        """Rows for the configurations in order; None asks for the vendor's GEMM."""
        position = 0
        while position < len(configs):
            base = position
            self._connection.send((problem, list(configs[base:]), self._sequence))
            while True:
                message = self._receive()
                kind = message[0] if message else "died"
                if kind == "row":
                    self._sequence += 1
                    position = base + message[1] + 1
                    yield message[2]
                elif kind == "done":
                    return
                elif kind != "begin":
                    break
            if kind != "lost":
                yield self.failure(problem, configs[position], *self._why(message))
                position += 1
            if kind != "refused":
                self._start()

    def _why(self, message: Any) -> tuple[str, str]:
        """T4's word and the reason for a configuration that gave no row."""
        if message:
            return "runtime", str(message[1]) or "the problem does not fit the GPU's memory"
        if self._process.is_alive():
            return "timeout", f"no answer in {_HANG_SECONDS:.0f} s"
        return "runtime", "the measuring process died"

    def failure(self, problem: Gemm, config: KernelConfig | None, word: str, why: str) -> Row:
        from costmodel.measure.environment import kernel_hash

        self._sequence += 1
        return make_row(
            problem, config, backend="triton" if config else "origin", invalidity=word, reason=why,
            kernel_hash=kernel_hash(config.template) if config else None,
            protocol=self.options.protocol.name, sequence=self._sequence - 1, **self.facts,
        )  # fmt: skip

    def _receive(self) -> Any:
        try:
            if not self._connection.poll(_HANG_SECONDS):
                return None
            return self._connection.recv()
        except (EOFError, OSError):
            self._process.join(5)
            return None

    def _start(self) -> None:
        if self.restarts >= 0:
            self._stop()
        self.restarts += 1
        context = multiprocessing.get_context("spawn")
        self._connection, child = context.Pipe()
        self._process = context.Process(target=serve, args=(child, self.options), daemon=True)
        self._process.start()
        child.close()
        try:
            if not self._connection.poll(_START_SECONDS):
                raise DeviceError("the measuring process did not come up; is the GPU in use?")
            _, self.facts, self.floor = self._connection.recv()
        except EOFError:
            raise DeviceError(
                "the measuring process ended at its start; its own message is above"
            ) from None

    def _stop(self) -> None:
        self._connection.close()
        self._process.join(2)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
