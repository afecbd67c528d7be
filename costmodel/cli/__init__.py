"""The ``costmodel`` command: a thin layer over the library."""

from costmodel.cli.app import main

__all__ = ["main"]
