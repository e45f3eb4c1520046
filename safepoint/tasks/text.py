"""A graph from its text, which is TOML: a table for each vertex. Every error names file, table and key.

    graph = "filter"
    code = "audio.py"

    [read]
    run = "read_wav"
    with = { path = "in.wav" }

    [low]
    run = "low_pass"
    in = { x = "read.left" }

The tables may stand in any order.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, NoReturn

from safepoint.errors import GraphError, UsageError
from safepoint.tasks import functions
from safepoint.tasks.graph import Edge, Graph, Vertex

TOP = ("graph", "code", "seed")  # keys beside the tables, so no vertex can have these names in a text
KEYS: dict[str, Any] = {
    "run": str, "with": dict, "in": dict, "head": str, "weight": (int, float), "retries": int, "version": str,
    "size": int, "keep": bool, "after": list,
}  # fmt: skip
OPTIONS = ("weight", "retries", "version", "size", "keep")
SAID: dict[Any, str] = {
    str: "a text",
    dict: "a table",
    list: "a list",
    (int, float): "a number",
    int: "a whole number",
    bool: "true or false",
}


def read(path: str | os.PathLike[str]) -> Graph:
    """See `Graph.read`. The functions are imported, so what stands at the top of their module is run."""
    text = _Text(os.fspath(path))
    try:
        graph = Graph(text.name, seed=text.seed)
    except UsageError as error:
        text.refuse("", "graph", str(error))
    graph.code = text.code
    vertices = graph.vertices
    for name in text.order():
        try:
            function, arguments = text.function(name, "run"), text.arguments(name, vertices)
            options, earlier = text.options(name), [vertices[each] for each in text.after(name)]
            text.check_call(name, function, arguments)
            graph.add(name, function, arguments=arguments, after=earlier, **options)
        except UsageError as error:
            text.refuse(name, "", str(error))
    return graph


class _Text:
    """What a file holds, looked at as far as that goes without its functions."""

    def __init__(self, path: str) -> None:
        self.path = path
        content = self._load()
        self.name = self._top(content, "graph", str)
        self.code = self._top(content, "code", str, "")
        self.seed = self._top(content, "seed", int, 0)
        self.tables: dict[str, Mapping[str, Any]] = {}
        for name, table in content.items():
            if name not in TOP:
                self._check(name, table)
                self.tables[name] = table
        self.inputs = {name: dict.fromkeys(self._inputs(name)) for name in self.tables}
        self.parents = {name: {**inputs, **dict.fromkeys(self.after(name))} for name, inputs in self.inputs.items()}
        self._modules: dict[str, ModuleType] = {}
        self._functions: dict[str, Callable[..., Any]] = {}

    def refuse(self, table: str, key: str, what: str) -> NoReturn:
        where = f"[{table}]" if table else ""
        raise GraphError(f"{self.path}: {' '.join(filter(None, (where, key)))}: {what}; nothing was run")

    def _load(self) -> dict[str, Any]:
        try:
            if sys.version_info >= (3, 11):
                import tomllib as toml
            else:
                import tomli as toml
        except ImportError as error:
            raise UsageError("Python before 3.11 reads no TOML by itself: pip install tomli") from error
        try:
            with open(self.path, "rb") as file:
                return toml.load(file)
        except OSError as error:
            raise GraphError(f"{self.path}: cannot be read: {error.strerror}; nothing was run", error.errno) from error
        except (ValueError, RecursionError) as error:  # no UTF-8 too; a name that stands there twice
            raise GraphError(f"{self.path}: no TOML: {error}; nothing was run") from error

    def _top(self, content: Mapping[str, Any], key: str, kind: type, default: Any = None) -> Any:
        value = content.get(key, default)
        if value is None:
            raise GraphError(f'{self.path}: {key}: is missing, as in {key} = "filter"; nothing was run')
        if type(value) is not kind:
            what = "names a table: no vertex can have this name" if type(value) is dict else f"is not {SAID[kind]}"
            raise GraphError(f"{self.path}: {key}: {what}; nothing was run")
        return value

    def _check(self, name: str, table: Any) -> None:
        if type(table) is not dict:
            self.refuse(
                "", name, f"is not known here: a vertex is a table [{name}], and other keys are {', '.join(TOP)}"
            )
        for key, value in table.items():
            if key not in KEYS:
                self.refuse(name, key, f"is not known: there are {', '.join(KEYS)}")
            kind = KEYS[key]
            if not isinstance(value, kind) or (type(value) is bool and kind is not bool):
                self.refuse(name, key, f"is not {SAID[kind]}")
        if "run" not in table:
            self.refuse(name, "run", "is missing: which function?")
        for argument in table.get("in", {}):
            if argument in table.get("with", {}):
                self.refuse(name, f"in.{argument}", "is given by `with` as well")
            if argument == "head" and "head" in table:
                self.refuse(name, "in.head", "is given by `head` as well")

    # Edges.

    def _inputs(self, name: str) -> Iterator[str]:
        for argument, value in self.tables[name].get("in", {}).items():
            yield from self._named(name, f"in.{argument}", value)

    def _named(self, name: str, key: str, value: Any) -> Iterator[str]:
        if type(value) is str:
            yield self.edge(name, key, value)[0]
        elif type(value) is list:
            for number, each in enumerate(value):
                yield from self._named(name, f"{key}[{number}]", each)
        elif type(value) is dict:
            for inner, each in value.items():
                yield from self._named(name, f"{key}.{inner}", each)
        else:
            self.refuse(name, key, f'{value!r} is no edge: it is written as "vertex" or "vertex.output"')

    def after(self, name: str) -> Iterator[str]:
        """The vertices that it comes after, though no value comes from them."""
        for number, text in enumerate(self.tables[name].get("after", [])):
            key = f"after[{number}]"
            if type(text) is not str:
                self.refuse(name, key, f'{text!r} is no vertex: it is written as "vertex"')
            vertex, output = self.edge(name, key, text)
            if output:
                self.refuse(name, key, f"{text!r} is an output, and no value comes this way: name the vertex {vertex}")
            yield vertex

    def edge(self, name: str, key: str, text: str) -> tuple[str, str]:
        """Vertex and output that a text names. A vertex whose name has dots goes before an output."""
        if text in self.tables:
            return text, ""
        parts = text.split(".")
        for end in range(len(parts) - 1, 0, -1):
            vertex, output = ".".join(parts[:end]), ".".join(parts[end:])
            if vertex in self.tables and output:
                return vertex, output
        self.refuse(name, key, f"there is no vertex {text!r}")

    def order(self) -> list[str]:
        """All vertices, each after those that it needs; else in the order of the text."""
        done: dict[str, None] = {}
        for first in self.tables:
            way: dict[str, Iterator[str]] = {}  # from `first` to its parents, and on
            if first not in done:
                way[first] = iter(self.parents[first])
            while way:
                name = next(reversed(way))
                parent = next(way[name], None)
                if parent is None:
                    del way[name]
                    done[name] = None
                elif parent in way:
                    ring = list(way)[list(way).index(parent) :]
                    key = "in" if [*ring, parent][1] in self.inputs[parent] else "after"
                    self.refuse(
                        parent, key, f"the vertices need each other in a circle: {' <- '.join([*ring, parent])}"
                    )
                elif parent not in done:
                    way[parent] = iter(self.parents[parent])
        return list(done)

    # What a vertex is made of.

    def arguments(self, name: str, vertices: Mapping[str, Vertex]) -> dict[str, Any]:
        table = self.tables[name]
        edges = {key: self._placed(name, key, value, vertices) for key, value in table.get("in", {}).items()}
        return {**table.get("with", {}), **edges}

    def check_call(self, name: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        table = self.tables[name]
        argument, why = functions.misfit(function, [*arguments, *(["head"] if "head" in table else [])])
        key = next((f"{key}.{argument}" for key in ("in", "with") if argument in table.get(key, {})), "run")
        if why:
            self.refuse(name, "head" if argument == "head" and "head" in table else key, why)

    def _placed(self, name: str, key: str, value: Any, vertices: Mapping[str, Vertex]) -> Any:
        if type(value) is str:
            vertex, output = self.edge(name, key, value)
            return Edge(vertices[vertex], output)
        if type(value) is list:
            return [self._placed(name, key, each, vertices) for each in value]
        return {inner: self._placed(name, key, each, vertices) for inner, each in value.items()}

    def options(self, name: str) -> dict[str, Any]:
        table = self.tables[name]
        found = {option: table[option] for option in OPTIONS if option in table}
        return {**found, "head": self.function(name, "head")} if "head" in table else found

    def function(self, name: str, key: str) -> Callable[..., Any]:
        said = self.tables[name][key]
        if said not in self._functions:
            module, _, way = said.rpartition(":")
            if not module and not self.code:
                self.refuse(
                    name, key, f'in which module is {said}? Say code = "….py" at the top, or "module:{said}" here'
                )
            found: Any = self._module(module or self.code, name, key)
            where = found.__name__
            for part in way.split("."):
                found = getattr(found, part, None)
            if not callable(found):
                self.refuse(name, key, f"{where} has no function {way!r}")
            self._functions[said] = found
        return self._functions[said]

    def _module(self, code: str, name: str, key: str) -> ModuleType:
        if code not in self._modules:
            try:
                self._modules[code] = _file(self.path, code) if code.endswith(".py") else importlib.import_module(code)
            except Exception as error:  # whatever the module does when it is imported
                what = f"{code} cannot be imported: {type(error).__name__}: {error}"
                raise GraphError(f"{self.path}: [{name}] {key}: {what}; nothing was run") from error
        return self._modules[code]


def _file(text: str, code: str) -> ModuleType:
    """The module of a file that is named in a text. Under its own name, so that workers can import it as well."""
    path = os.path.join(os.path.dirname(os.path.abspath(text)), code)
    directory, name = os.path.split(os.path.realpath(path))
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no file {path}")
    main = sys.modules.get("__main__")
    if os.path.realpath(getattr(main, "__file__", None) or "") == os.path.join(directory, name):
        return main  # type: ignore[return-value]  # the program itself reads its graph
    if directory not in sys.path:
        sys.path.insert(0, directory)
    module = importlib.import_module(name[: -len(".py")])
    if os.path.realpath(module.__file__ or "") != os.path.join(directory, name):
        raise ImportError(f"{module.__file__ or module.__name__} has the same name, and is loaded already")
    return module
