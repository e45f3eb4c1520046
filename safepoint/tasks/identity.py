"""The identity of a vertex: what must be equal for a result of an earlier run to be its result.

(1) It holds the digest of each input's bytes, in the order of the arguments: a vertex whose input comes out different
    is another one, so no result is combined with inputs that it was not made of (T4).
    Where no value comes (`after`), the other vertex's identity counts too: files that it wrote may be read here.
(2) It is equal in all processes and versions of Python: else a finished vertex would run again. So sets are taken in
    an order of their own, since Python's changes with each start, and texts count by what they say, not by whether
    they are one object.
(3) It does not hold what the function calls, nor versions of packages: those are in the record, to be shown.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from types import FunctionType
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_128_hexdigest

from safepoint.errors import UsageError
from safepoint.tasks import functions
from safepoint.tasks.jobs import Slot

if TYPE_CHECKING:
    from safepoint.tasks.graph import Vertex

PLAIN = (int, str, float, bool, type(None), bytes)


def parts(vertex: Vertex) -> dict[str, str]:
    """What the vertex itself says: function, version, parameters, seed of its graph; each by digest or as it is.

    `UsageError` names a parameter that cannot be pickled.
    """
    found = {
        "function": functions.digest(vertex.function),
        "version": vertex.version,
        "parameters": xxh3_128_hexdigest(_parameters(vertex)),
        "seed": str(vertex.seed),
    }
    if vertex.head is not None:
        found["head"] = functions.digest(vertex.head)
    return found


def key(vertex_parts: Mapping[str, str], name: str, digests: Sequence[str]) -> str:
    """The identity, 32 hexadecimal digits. `digests`: of the outputs of `vertex.edges`, in their order."""
    texts = [name]
    for part in sorted(vertex_parts):
        texts += part, vertex_parts[part]
    texts += digests
    return xxh3_128_hexdigest("".join([f"{len(text)} {text}\n" for text in texts]).encode("utf-8", "surrogatepass"))


def noted(vertex_parts: Mapping[str, str], vertex: Vertex, digests: Sequence[str]) -> dict[str, str]:
    """What a record keeps of an identity, so that `differs` can say what has changed: parts and inputs."""
    return noted_of(vertex_parts, [(edge.vertex.name, edge.output) for edge in vertex.edges], digests)


def noted_of(
    vertex_parts: Mapping[str, str], edges: Sequence[tuple[str, str | None]], digests: Sequence[str]
) -> dict[str, str]:
    """As `noted`, of the names of the inputs, and which output of each."""
    found = dict(vertex_parts)
    for number, ((name, output), digest) in enumerate(zip(edges, digests, strict=True)):
        if output is None:
            found[f"input after {name}"] = digest
        else:
            found[f"input {number} {name}{output and '.'}{output}"] = digest
    return found


def differs(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """What is not the same in two such notes, in words: "its function changed", "input read-17 has other bytes"."""
    said = []
    for part in ("function", "head", "version", "parameters", "seed"):
        if old.get(part, "") != new.get(part, ""):
            said.append("the seed of the graph changed" if part == "seed" else f"its {part} changed")
    inputs = [{name: each for name, each in note.items() if name.startswith("input ")} for note in (old, new)]
    if list(inputs[0]) != list(inputs[1]):
        said.append("its inputs are others, or in another order")
    else:
        said += [_other(name) for name in inputs[1] if inputs[0][name] != inputs[1][name]]
    return said


def _other(note: str) -> str:
    _, number, name = note.split(" ", 2)
    return f"{name}, which it comes after, is another one" if number == "after" else f"input {name} has other bytes"


class _Pickler(pickle.Pickler):
    """By content alone, see (2). What it writes is never read."""

    def persistent_id(self, value: Any) -> Any:
        kind = type(value)
        if kind in PLAIN or kind is list or kind is dict or kind is tuple:
            return None
        if kind is Slot:
            return f"edge {value.number}"
        if kind is set or kind is frozenset:
            return [kind.__name__, *_sorted(value)]
        if kind is FunctionType:
            if why := functions.why_not(value):
                raise TypeError(f"a function {why}")
            return f"function {functions.digest(value)}"
        if isinstance(value, PurePath):  # another module has its class in some versions of Python
            return f"{kind.__name__} {value}"
        return None

    def reducer_override(self, value: Any) -> Any:
        """Of a class made of `set`, what pickle knows of it, but for the order."""
        if not isinstance(value, (set, frozenset)):
            return NotImplemented
        reduced = value.__reduce_ex__(5)
        if isinstance(reduced, str):
            return reduced
        how, arguments, *rest = reduced
        return how, tuple(_sorted(each) if _holds(each, value) else each for each in arguments), *rest


def _sorted(values: Iterable[Any]) -> list[str]:
    return sorted(xxh3_128_hexdigest(content(each)) for each in values)


def _holds(argument: object, values: Collection[Any]) -> bool:
    return type(argument) is list and len(argument) == len(values) and all(each in values for each in argument)


def content(value: Any) -> bytes:
    """Bytes that are equal for equal content."""
    file = io.BytesIO()
    pickler = _Pickler(file, 5)
    pickler.fast = True  # else it would tell whether two equal texts are one object
    try:
        pickler.dump(value)
    except (ValueError, RecursionError):  # it goes round in itself, so it needs what tells that
        file = io.BytesIO()
        _Pickler(file, 5).dump(value)
    return file.getvalue()


def _parameters(vertex: Vertex) -> bytes:
    try:
        return content(vertex.template)
    except UsageError:
        raise
    except Exception:
        for name, value in vertex.template.items():
            try:
                content(value)
            except Exception as error:
                text = f"vertex {vertex.name}: its argument {name}, {type(value).__name__}, cannot be pickled: {error}"
                raise UsageError(text) from error
        raise
