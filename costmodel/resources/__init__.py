"""What a configuration takes on a chip: shared memory, registers, occupancy, legality."""
