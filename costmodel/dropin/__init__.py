"""``matmul``, ``addmm`` and ``linear`` on torch tensors, by the kernel that was chosen for them."""
