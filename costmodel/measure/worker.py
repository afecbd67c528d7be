"""Owns a measuring process: a configuration that kills its GPU context kills only that process.

The process is a plain child that speaks JSON lines, so that it starts from any script, notebook or
prompt, and nothing of the caller's is imported again. If it dies or hangs, the configuration in
flight becomes a row with the reason, and a fresh process takes the rest.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
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
    """What a measuring process needs to know once.

    ``units`` has it measure in a slice of so many multiprocessors, as the driver rounds them.
    """

    device: int = 0
    protocol: Protocol = Protocol()
    cpu: int | None = None
    run: str = "unnamed"
    units: int | None = None


class MeasuringProcess:
    """One measuring process and its successors. Use as a context manager."""

    #: columns of the environment that every row shares, and the protocol's floor
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
            self._send(
                problem=asdict(problem),
                configs=[config and config.as_dict() for config in configs[base:]],
                sequence=self._sequence,
            )
            while True:
                message = self._receive(_HANG_SECONDS)
                kind = message["kind"] if message else "died"
                if message and kind == "row":
                    self._sequence += 1
                    position = base + message["index"] + 1
                    yield message["row"]
                elif kind == "done":
                    return
                elif kind != "begin":
                    break
            if kind != "lost" and position < len(configs):
                yield self.failure(problem, configs[position], *self._why(message))
                position += 1
            if kind != "refused":
                self._start()

    def failure(self, problem: Gemm, config: KernelConfig | None, word: str, why: str) -> Row:
        """The row of a measurement that could not be made."""
        from costmodel.records.source_hash import kernel_hash

        self._sequence += 1
        return make_row(
            problem, config, backend="triton" if config else "origin", invalidity=word, reason=why,
            kernel_hash=kernel_hash(config.template) if config else None,
            protocol=self.options.protocol.name, sequence=self._sequence - 1, **self.facts,
        )  # fmt: skip

    def _why(self, message: dict[str, Any] | None) -> tuple[str, str]:
        """T4's word and the reason for a configuration that gave no row."""
        if message:
            return "runtime", message.get("why") or "the problem does not fit the GPU's memory"
        if self._process.poll() is None:
            return "timeout", f"no answer in {_HANG_SECONDS:.0f} s"
        return "runtime", "the measuring process died"

    def _send(self, **content: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(content) + "\n")
            self._process.stdin.flush()
        except OSError:  # the death shows when its answer is read
            return

    def _receive(self, seconds: float) -> dict[str, Any] | None:
        """The next message; None where the process ended or gave none in time."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            return None
        if not line:
            self._process.wait()
            return None
        message: dict[str, Any] = json.loads(line)
        return message

    def _start(self) -> None:
        if self.restarts >= 0:
            self._stop()
        self.restarts += 1
        self._process = subprocess.Popen(
            [sys.executable, "-m", "costmodel.measure.serve"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
        )  # fmt: skip
        # a thread and a queue: a pipe cannot be read with a time limit on every system
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._pump, args=(self._process, self._lines), daemon=True).start()
        options = asdict(self.options)
        self._send(**options)
        ready = self._receive(_START_SECONDS)
        if ready is None:
            self._stop()
            raise DeviceError("the measuring process did not start; its own message is above")
        self.facts = ready["facts"]
        self.floor = Timing(**ready["floor"])

    @staticmethod
    def _pump(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    def _stop(self) -> None:
        try:
            if self._process.stdin is not None:
                self._process.stdin.close()
        except OSError:
            pass
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
