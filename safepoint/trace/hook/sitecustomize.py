"""Loaded by Python at its start, as `safepoint trace` has put this directory first: begin when mpi4py is loaded.

The program's own `sitecustomize`, if it has one, runs afterwards as it would have.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))


class _After(importlib.abc.Loader):
    """Loads as the real loader does, and then does what is to be done after it."""

    def __init__(self, loader: Any, then: Callable[[ModuleType], None]) -> None:
        self._loader, self._then = loader, then

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Stays first: mpi4py has a finder of its own, which it puts before all others when it is loaded. Who only asks
    whether there is such a module does not disturb it."""

    _asking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if self._asking or name not in ("mpi4py", "mpi4py.MPI"):
            return None
        self._asking = True
        try:
            spec = next((found for finder in sys.meta_path if (found := finder.find_spec(name, path, target))), None)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _After(spec.loader, self._first if name == "mpi4py" else _begin)
        return spec

    def _first(self, module: ModuleType) -> None:
        sys.meta_path.remove(self)
        sys.meta_path.insert(0, self)


def _begin(module: ModuleType) -> None:
    try:
        from safepoint.trace.python import begin
    except ImportError as error:
        print(f"safepoint trace: not traced: {sys.executable} has no safepoint: {error}", file=sys.stderr)
    else:
        begin(module)


def _the_users_own() -> None:
    spec = importlib.machinery.PathFinder.find_spec(
        "sitecustomize", [p for p in sys.path if os.path.abspath(p) != HERE]
    )
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("SAFEPOINT_TRACE"):
    sys.meta_path.insert(0, _Finder())
_the_users_own()
