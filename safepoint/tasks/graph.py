"""A graph of tasks: vertices are calls of plain functions, edges are arguments that are results of other vertices.

A graph is built in the order of its edges: an argument can be a vertex only when that exists, so there are no cycles.
Nothing runs before `run`, and nothing is read or written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from safepoint import words
from safepoint.errors import UsageError
from safepoint.tasks import functions
from safepoint.tasks.jobs import Slot

if TYPE_CHECKING:
    import os

    from safepoint.tasks.running import Found

WEIGHTS = 1e-30, 1e30  # outside of these a sum of them may be infinite


@dataclass(frozen=True, eq=False)
class Edge:
    """An output of a vertex, as an argument of another one. `output` "": its whole result; None: no value comes, the
    other one only comes after it."""

    vertex: Vertex
    output: str | None = ""

    def __reduce__(self) -> NoReturn:
        _hidden(self.vertex.name)

    def __repr__(self) -> str:
        return f"<Edge {self.vertex.name}{self.output and '.'}{self.output}>"


@dataclass(frozen=True, eq=False)
class Vertex:
    """One call of a function. Give it, or one of its outputs `vertex["name"]`, as an argument to another `add`."""

    name: str
    function: Callable[..., Any]
    template: Mapping[str, Any]  # the arguments, with `Slot(n)` where the n-th edge belongs
    edges: tuple[Edge, ...]  # those of which no value comes stand last
    retries: int = 0
    version: str = ""
    weight: float = 1.0
    size: int = 0
    head: Callable[[], Any] | None = None
    keep: bool = True
    seed: int = 0  # of the graph
    source: str = ""  # "sky.py:28"

    def __getitem__(self, output: str) -> Edge:
        if not isinstance(output, str) or not output:
            raise UsageError(f"an output of vertex {self.name} is named by a text, not by {output!r}")
        return Edge(self, output)

    def __iter__(self) -> NoReturn:  # else Python would ask for the outputs 0, 1, …
        raise UsageError(f"vertex {self.name} has no value yet, so it cannot be gone through: give it to a vertex")

    def __reduce__(self) -> NoReturn:
        _hidden(self.name)

    def __repr__(self) -> str:
        return f"<Vertex {self.name}: {functions.path(self.function)}>"


def _hidden(name: str) -> NoReturn:
    raise UsageError(
        f"vertex {name} is inside of an argument: it is found in lists, tuples and dicts (as a value) only"
    )


class Graph:
    """Vertices by name. `seed` goes into `tasks.seed()` of each."""

    def __init__(self, name: str, *, seed: int = 0) -> None:
        check_name(name, "a graph")
        self.name, self.seed = name, seed
        self.code = ""  # the file or module of its functions, where a text told it
        self.vertices: dict[str, Vertex] = {}

    def add(
        self, name: str, function: Callable[..., Any], /, *, retries: int = 0, version: str = "", weight: float = 1.0,
        size: int = 0, head: Callable[[], Any] | None = None, keep: bool = True,
        after: Iterable[Vertex] = (), arguments: Mapping[str, Any] | None = None, **named: Any,
    ) -> Vertex:  # fmt: skip
        """A call of `function` with these arguments, which may be, or hold, vertices added before. Nothing runs yet.

        Arguments arrive in the order of their names, lists in their own. `retries`: how often it is tried again when
        it fails. `version`: any text; another one has it run again. `weight`: how long it takes beside others. `size`:
        bytes of its result, if known. `head`: a function without arguments, called while inputs travel; its value is
        the argument `head`. `keep=False`: only the digest of the result is kept, and it is made again if needed.
        `after`: vertices that must have finished, of which no value comes. `arguments`: those whose names are also
        options.

        `UsageError` names the vertex, and nothing was added; also if the function does not take these arguments.
        """
        check_name(name, "a vertex")
        if name in self.vertices:
            raise UsageError(f"graph {self.name} has a vertex {name} already")
        names = [*(arguments or ()), *named, *(["head"] if head is not None else [])]
        if twice := sorted({each for each in names if names.count(each) > 1}):
            raise UsageError(f"vertex {name}: argument {', '.join(twice)} is given twice")
        _check_options(name, retries, version, weight, size)
        functions.check(name, function)
        if head is not None:
            functions.check(name, head)
            functions.check_call(name, head, ())
        functions.check_call(name, function, names)
        edges: list[Edge] = []
        given = {**(arguments or {}), **named}
        try:
            template = {argument: self._placed(name, given[argument], edges) for argument in sorted(given)}
        except RecursionError as error:
            raise UsageError(f"vertex {name}: an argument holds itself, or is too deep") from error
        edges += self._earlier(name, after)
        vertex = Vertex(
            name, function, template, tuple(edges), retries, version, float(weight), size, head, keep, self.seed,
            functions.where(function),
        )  # fmt: skip
        self.vertices[name] = vertex
        return vertex

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {words.count(len(self.vertices), 'vertex', 'vertices')}>"

    def _placed(self, name: str, value: Any, edges: list[Edge]) -> Any:
        """The value with `Slot(n)` for each edge in it. Lists, tuples and dicts are copied: a program that changes one
        afterwards changes no vertex."""
        kind = type(value)
        if kind is Vertex or kind is Edge:
            edge: Edge = Edge(value) if kind is Vertex else value
            if self.vertices.get(edge.vertex.name) is not edge.vertex:
                raise UsageError(f"vertex {name}: its argument {edge.vertex.name} is a vertex of another graph")
            edges.append(edge)
            return Slot(len(edges) - 1)
        if kind is list or kind is tuple:
            return kind([self._placed(name, each, edges) for each in value])
        if kind is dict:
            return {key: self._placed(name, each, edges) for key, each in value.items()}
        return value

    def _earlier(self, name: str, after: Any) -> list[Edge]:
        """The edges without a value, in the order of names: how a program lists them changes no identity."""
        if not isinstance(after, (list, tuple, set, frozenset)) or any(type(each) is not Vertex for each in after):
            raise UsageError(f"vertex {name}: after is a list of vertices, not of outputs or values")
        names = sorted({each.name for each in after})
        if strange := [each.name for each in after if self.vertices.get(each.name) is not each]:
            raise UsageError(f"vertex {name}: {min(strange)} in its after is a vertex of another graph")
        return [Edge(self.vertices[each], None) for each in names]

    def order(self) -> list[Vertex]:
        """All vertices, each after those that it needs."""
        return list(self.vertices.values())

    def run(self, on: Any = None, *, directory: str | os.PathLike[str] = ".", **options: Any) -> Found:
        """Run what has not finished before; what was found, when all is durable. `on`: an executor, a Dask client, a
        communicator; without it, all processors of this machine. `TaskError` if vertices failed."""
        from safepoint.tasks.running import run

        return run(self, on, directory=directory, **options)

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Graph:
        """A graph from its text. `GraphError` names file, table and key."""
        from safepoint.tasks.text import read

        return read(path)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Its text, for `read`; a file of that name is replaced. `GraphError` names the vertex that has none."""
        from safepoint.tasks.writing import write

        write(self, path)

    def dot(self) -> str:
        """For Graphviz."""
        from safepoint.tasks.drawing import dot

        return dot(self)

    def graphml(self) -> str:
        """For yEd, Gephi and others."""
        from safepoint.tasks.drawing import graphml

        return graphml(self)


def check_name(name: str, what: str) -> None:
    """`UsageError` unless it may name a vertex: in messages, in texts and in paths it must mean one thing."""
    if not isinstance(name, str) or not name or name != name.strip():
        raise UsageError(f"{what} needs a name that is a text, without spaces around it: not {name!r}")
    if "/" in name or name == "." or ".." in name or not name.isprintable():
        raise UsageError(f"{name!r} cannot name {what}: no /, no .., no control characters")


def _check_options(name: str, retries: int, version: str, weight: float, size: int) -> None:
    def refuse(what: str) -> NoReturn:
        raise UsageError(f"vertex {name}: {what}")

    if type(retries) is not int or retries < 0:
        refuse(f"retries is a whole number from 0, not {retries!r}")
    if not isinstance(version, str):
        refuse(f"version is a text, not {version!r}")
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < float("inf"):
        refuse(f"weight is a number above 0, not {weight!r}")
    if not WEIGHTS[0] <= weight <= WEIGHTS[1]:
        refuse(f"weight is a number from {WEIGHTS[0]:g} to {WEIGHTS[1]:g}, not {weight!r}")
    if type(size) is not int or not 0 <= size < 1 << 63:
        refuse(f"size is a number of bytes, not {size!r}")
