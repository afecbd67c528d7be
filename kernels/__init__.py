"""Triton GEMM kernels and their launchers, one file a template."""
