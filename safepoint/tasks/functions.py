"""Functions of vertices: which may be one, where it is, and the digest of what it says.

The digest is that of the syntax tree of the function's source: comments, spacing and docstrings do not count, and it is
the same in each version of Python. A function without source counts by its import path and, if it is none of C, by its
compiled code, which differs from version to version.
It does not see what the function calls, nor globals that it reads.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
import time
import tokenize
from collections.abc import Callable, Collection, Iterator
from types import CodeType
from typing import Any

from xxhash import xxh3_128_hexdigest

from safepoint.errors import UsageError

LOADED = time.time()
OPTIONS = ("retries", "version", "weight", "size", "head", "keep", "after", "arguments")  # of `Graph.add`
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def check(vertex: str, function: Any) -> None:
    """`UsageError`, which names the vertex, unless other processes can import this function by its name."""
    why = why_not(function)
    if why:
        raise UsageError(f"vertex {vertex}: its function {why}; only a function at the top of a module will do")


def why_not(function: Any) -> str:
    """Why other processes cannot import this function by its name; "" if they can."""
    name = getattr(function, "__qualname__", "")
    if not callable(function):
        return f"is {function!r}, which cannot be called"
    if isinstance(function, functools.partial):
        return "is a functools.partial: give its function, and its arguments to add"
    if "<lambda>" in name:
        return "is a lambda, which no other process can import"
    if "<locals>" in name:
        return f"{name} is defined inside of another one, so no other process can import it"
    if not name:
        return f"is an object, {type(function).__name__}: what it holds would not be seen when it changes"
    found: Any = sys.modules.get(getattr(function, "__module__", None) or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is function or (isinstance(getattr(function, "__self__", None), type) and found == function):
        return ""
    return f"{name} is not what {function.__module__} has under this name, so no other process can import it"


def check_call(vertex: str, function: Any, arguments: Collection[str]) -> None:
    """`UsageError` names vertex, function and argument, unless the function takes exactly these, by name. One that does
    not tell what it takes, as some of C, is not looked at."""
    if why := misfit(function, arguments)[1]:
        raise UsageError(f"vertex {vertex}: {why}")


def misfit(function: Any, arguments: Collection[str]) -> tuple[str, str]:
    """The argument that a function does not take, if there is one, and what is wrong; "", "": it can be called so."""
    needed, taken, any_name = _takes(function)
    name = getattr(function, "__qualname__", "") or repr(function)
    if (none := [each for each in arguments if each not in taken]) and not any_name:
        takes = f"it takes {', '.join(taken)}" if taken else "it takes none by name"
        return none[0], f"its function {name} takes no argument {none[0]}: {takes}"
    missing = [each for each in needed if each not in arguments]
    if missing:
        many = "arguments" if len(missing) > 1 else "argument"
        return "", f"its function {name} needs {many} {', '.join(missing)}, not given here{_hint(missing)}"
    return "", ""


def _hint(missing: Collection[str]) -> str:
    options = [each for each in missing if each in OPTIONS]
    return f" ({options[0]} is an option of add, too: give it in arguments=)" if options else ""


@functools.lru_cache(4096)
def _takes(function: Any) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """The arguments that it needs, and that it takes, by name, and whether it takes any. One that can only be given by
    its place is needed under a name that it does not take."""
    import inspect  # here, as it takes long to import

    try:
        # Of a decorator, not of what it wraps: it may give arguments by itself.
        parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
    except (ValueError, TypeError):
        return (), (), True
    named = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    places = [each.name for each in parameters if each.kind is each.POSITIONAL_ONLY and each.default is each.empty]
    needed = [*places, *(each.name for each in named if each.default is each.empty)]
    return tuple(needed), tuple(each.name for each in named), any(each.kind is each.VAR_KEYWORD for each in parameters)


def where(function: Callable[..., Any]) -> str:
    """As "sky.py:28"; "" where there is no source."""
    code = _code(function)
    return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}" if code else ""


def _code(function: Any) -> CodeType | None:
    """Of the function itself: not of one that a decorator has put round it, if that keeps it as `__wrapped__`."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def path(function: Any) -> str:
    """As "sky:read". A program that is run by its name and one that is imported are the same module."""
    module = getattr(function, "__module__", None) or ""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None) or ""
        module = spec.name if spec else os.path.splitext(os.path.basename(file))[0]
    return f"{module}:{getattr(function, '__qualname__', type(function).__qualname__)}"


def digest(function: Callable[..., Any]) -> str:
    """Of what the function says; once for each function of a process, as long as that has the same code: a notebook
    that reloads modules by itself puts other code into it."""
    return _digest(function, _code(function))


@functools.lru_cache(4096)
def _digest(function: Callable[..., Any], code: CodeType | None) -> str:
    tree = _tree(function)
    text = "".join(said(tree) if tree is not None else _compiled(function))
    return xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))


def _tree(function: Any) -> ast.AST | None:
    """Its syntax tree, if the source is there and still the one that this process has loaded."""
    import inspect  # here, as they take long to import
    import textwrap

    code = _code(function)
    if code is None and not isinstance(function, type):
        return None
    changed = code is not None and _is_changed(code)
    try:
        lines, _ = inspect.getsourcelines(code or function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError, ValueError):
        if not changed:
            return None
        tree = ast.Module([], [])
    found = tree.body[0] if len(tree.body) == 1 else tree
    if code is not None and (changed or code.co_name != getattr(found, "name", code.co_name)):
        raise UsageError(
            f"{code.co_filename} was changed since it was loaded, and {code.co_name} is not what is in line "
            f"{code.co_firstlineno} now; start the program again"
        )
    return found


def _is_changed(code: CodeType) -> bool:
    """Whether its file says something else by now: a result of the older code would be kept as one of the newer."""
    try:
        if os.stat(code.co_filename).st_mtime < LOADED:
            return False
        with tokenize.open(code.co_filename) as file:
            ahead = [compile(file.read(), code.co_filename, "exec", dont_inherit=True)]
    except OSError:
        return False  # typed at a prompt, or removed
    except (SyntaxError, ValueError):
        return True
    while ahead:
        each = ahead.pop()
        if each == code:
            return False
        ahead += [inner for inner in each.co_consts if isinstance(inner, CodeType)]
    return True


def said(node: object) -> Iterator[str]:
    """The tree as text, without what is empty: `ast.dump` says that differently in each version of Python."""
    if isinstance(node, ast.AST):
        yield f"{type(node).__name__}("
        for name in node._fields:
            value = getattr(node, name, None)
            if name == "body" and isinstance(node, DOCUMENTED) and isinstance(value, list):
                value = value[1:] if _is_text(value[:1]) else value
            if value is not None and value != [] and name != "kind":
                yield f"{name}="
                yield from said(value)
                yield ","
        yield ")"
    elif isinstance(node, list):
        yield "["
        for each in node:
            yield from said(each)
            yield ","
        yield "]"
    else:
        yield repr(node)


def _compiled(function: Any) -> Iterator[str]:
    """What counts where there is no source: the import path, and the code of a function that was typed at a prompt."""
    yield f"import {path(function)}"
    ahead = [_code(function)]
    while ahead:
        if (code := ahead.pop()) is not None:
            yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames}"
            ahead += [each for each in code.co_consts if isinstance(each, CodeType)]
            others = [each for each in code.co_consts if not isinstance(each, CodeType)]
            yield repr([sorted(map(repr, each)) if isinstance(each, frozenset) else each for each in others])


def _is_text(first: list[Any]) -> bool:
    return bool(first) and isinstance(first[0], ast.Expr) and isinstance(getattr(first[0].value, "value", None), str)
