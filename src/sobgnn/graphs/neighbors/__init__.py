"""The search for nearest neighbors: exact in blocks on CPU and CUDA, or approximate by cells."""
