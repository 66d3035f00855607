"""Builds the compiled kernels with OpenMP where the compiler has it, and without it elsewhere.

Everything else about the package is in pyproject.toml. The kernels are optional: where no C++ compiler is found, or one
that cannot compile them, the package installs without them and the portable backend serves.
"""

import tempfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

OPENMP = "-fopenmp"


class BuildKernels(build_ext):
    """Compiles the kernels; on one thread where the compiler has no OpenMP (Apple's, for one)."""

    def build_extension(self, ext):
        """Drop the OpenMP options if a program of one line does not build with them."""
        if OPENMP in ext.extra_compile_args and not self._builds_with_openmp():
            print("No OpenMP: the compiled kernels will use one thread.")
            ext.extra_compile_args = [option for option in ext.extra_compile_args if option != OPENMP]
            ext.extra_link_args = [option for option in ext.extra_link_args if option != OPENMP]
        super().build_extension(ext)

    def _builds_with_openmp(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "probe.cpp")
            source.write_text("#include <omp.h>\nint threads() { return omp_get_max_threads(); }\n")
            try:
                objects = self.compiler.compile([str(source)], output_dir=folder, extra_postargs=[OPENMP])
                self.compiler.link_shared_object(objects, str(Path(folder, "probe.so")), extra_postargs=[OPENMP])
            except (CompileError, LinkError):
                return False
        return True


setup(cmdclass={"build_ext": BuildKernels})
