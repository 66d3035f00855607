"""Run every benchmark that fits this machine in under ten minutes, and print one table of the claims.

Run: python -m benchmarks [NAME ...]
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import time

import torch

CPU = ("propagation_mkl", "propagation_orders", "propagation_pyg", "propagation_ordering")
CUDA = ("propagation_cuda",)


class Echo(io.StringIO):
    """Keeps what is printed, and prints it."""

    def write(self, text: str) -> int:
        sys.__stdout__.write(text)
        sys.__stdout__.flush()
        return super().write(text)


def main() -> None:
    names = sys.argv[1:] or (CUDA if torch.cuda.is_available() else CPU)
    table = []
    for name in names:
        module = importlib.import_module(f"benchmarks.{name}")
        print(f"\n== {name}\n{(module.__doc__ or '').strip()}\n", flush=True)
        start = time.perf_counter()
        with contextlib.redirect_stdout(Echo()) as output:
            module.main()
        print(f"({time.perf_counter() - start:.0f} s)", flush=True)
        table += [row for row in output.getvalue().splitlines() if row.endswith(("holds", "misses"))]
    print("\n== claims")
    print("\n".join(table))


if __name__ == "__main__":
    main()
