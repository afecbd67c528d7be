"""The compiler as witness: what it allocates, surveyed, compared, and fitted."""
