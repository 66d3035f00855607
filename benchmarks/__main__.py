"""Run every benchmark that fits this machine in under ten minutes, and print one table of the claims.

Run: python -m benchmarks [NAME ...]
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import sys
import time

import torch

# Each with the arguments that make it fit.
CPU = {
    "propagation": [],
    "neighbors": ["12000x64", "100000x16"],
}
CUDA = {"propagation_cuda": []}
VERDICT = re.compile(r"\b(holds|misses|DOES NOT HOLD)\b")


class Echo(io.StringIO):
    """Keeps what is printed, and prints it."""

    def write(self, text: str) -> int:
        sys.__stdout__.write(text)
        sys.__stdout__.flush()
        return super().write(text)


def main() -> None:
    every = CUDA if torch.cuda.is_available() else CPU
    asked = sys.argv[1:]
    names = asked or list(every)
    table = []
    for name in names:
        module = importlib.import_module(f"benchmarks.{name}")
        print(f"\n== {name}\n{(module.__doc__ or '').strip()}\n", flush=True)
        start = time.perf_counter()
        sys.argv = [name, *(CPU | CUDA).get(name, [])]
        with contextlib.redirect_stdout(Echo()) as output:
            module.main()
        print(f"({time.perf_counter() - start:.0f} s)", flush=True)
        table += [f"{name:<20} {row}" for row in output.getvalue().splitlines() if VERDICT.search(row)]
    print("\n== claims")
    print("\n".join(table))


if __name__ == "__main__":
    main()
