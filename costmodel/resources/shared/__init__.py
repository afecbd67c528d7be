"""Shared memory by part: operand ring, barriers, descriptor tiles, conversion scratch."""
