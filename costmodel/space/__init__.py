"""Which configurations there are, and which of them the chip can run."""
