"""Predicts the fastest Triton GEMM configuration for a shape on a chip, and says why."""
