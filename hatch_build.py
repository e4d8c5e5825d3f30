"""Build the compiled modules: each C file of ``src/native`` becomes ``cvxmdp._<name>``."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
FLAGS = {
    "linux": (["-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-fopenmp"], ["-fopenmp"]),
    "win32": (["/O2", "/openmp"], []),
}
"""Compiler and linker flags; elsewhere loops run on one thread, since the compiler may know no OpenMP."""


class Native(BuildHookInterface):
    """Compile beside the Python files, which serves wheels and editable installations alike."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext

        compiling, linking = FLAGS.get(sys.platform, (["-O3"], []))
        extensions = [
            Extension(
                f"cvxmdp._{source.stem}",
                [str(source.relative_to(ROOT))],
                depends=[str(header) for header in source.parent.glob("*.h")],
                extra_compile_args=compiling,
                extra_link_args=linking,
            )
            for source in sorted((ROOT / "src" / "native").glob("*.c"))
        ]
        package = Distribution({"name": "cvxmdp", "ext_modules": extensions, "package_dir": {"": "src"}})
        command = build_ext(package)
        command.inplace = True
        command.ensure_finalized()
        command.run()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
