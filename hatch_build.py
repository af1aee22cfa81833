"""Compiles what fedvi has of C, if there is a compiler, when fedvi is installed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from setuptools import Distribution, Extension

SOURCE = "src/fedvi/tables/_plain_rows.c"
MODULE = "fedvi.data._plain_rows"


class Compilation(BuildHookInterface):
    """Puts the compiled module into the wheel, or beside its source if the installation is editable."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, before the wheel is made."""
        self.box = tempfile.TemporaryDirectory()
        extension = Extension(MODULE, [str(Path(self.root, SOURCE))], optional=True)
        command: Any = Distribution({"name": "fedvi", "ext_modules": [extension]}).get_command_obj("build_ext")
        command.build_temp = self.box.name
        command.build_lib = str(Path(self.root, "src")) if version == "editable" else self.box.name
        command.ensure_finalized()
        compiled = Path(command.get_ext_fullpath(MODULE))
        compiled.unlink(missing_ok=True)  # what is older than its source, if that cannot be compiled any more
        command.run()
        if compiled.exists() and version != "editable":
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"][str(compiled)] = f"fedvi/tables/{compiled.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Clean up."""
        self.box.cleanup()
