"""Run every notebook and keep its outputs: ``python notebooks/run.py [NAME]...``.

``--check`` runs them and writes nothing. Needs the extra ``notebook``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
#: a notebook takes seconds; a machine under load takes longer
LONGEST_S = 300
#: beside HTML or a picture, the plain text is there for what cannot show them
MOST_PLAIN = 400


def executed(path: Path) -> Any:
    """The notebook with new outputs, run in an empty folder and with an empty user folder."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("COSTMODEL_HOME")
        os.environ["COSTMODEL_HOME"] = folder  # no answers and no model of whoever runs this
        try:
            resources = {"metadata": {"path": folder}}
            NotebookClient(notebook, timeout=LONGEST_S, resources=resources).execute()
        finally:
            if before is None:
                del os.environ["COSTMODEL_HOME"]
            else:
                os.environ["COSTMODEL_HOME"] = before
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if len(data) > 1 and len(data.get("text/plain", "")) > MOST_PLAIN:
                data["text/plain"] = data["text/plain"][:MOST_PLAIN] + " ..."
    notebook.metadata.pop("language_info", None)  # which Python this was
    return notebook


def main() -> None:
    """Run those that are named, or all."""
    names = [name for name in sys.argv[1:] if name != "--check"]
    for path in sorted(HERE.glob("*.ipynb")):
        if names and path.stem not in names:
            continue
        notebook = executed(path)
        if "--check" not in sys.argv:
            nbformat.write(notebook, path)
        print(path.name)


if __name__ == "__main__":
    main()
