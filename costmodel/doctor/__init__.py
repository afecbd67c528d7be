"""Names a fault from what a user has: a configuration, a log, compiler output, an error's text."""

from __future__ import annotations

from costmodel.doctor.diagnose import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose"]
