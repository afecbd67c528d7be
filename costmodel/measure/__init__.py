"""Runs configurations on hardware: timing, correctness checks, the vendor's GEMM."""
