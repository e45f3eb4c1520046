"""Write the module of Fortran: `python -m safepoint.threads.interface > safepoint/threads/c/sp_trace.f90`.

Its generic names have a procedure for each kind of argument; where C can be called with the value itself, there is none
between. The lines between `!if X` and `!end X` are left out for a compiler that has no such kind.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

TARGET = Path(__file__).resolve().parent / "c" / "sp_trace.f90"
OPTIONS = ("x87", "quad")  # kinds that not all compilers have
SITE = "integer(c_int32_t), value :: site"
LONG = "integer(c_int64_t), value :: "
DIRECT = {  # names of C: type of Fortran
    **{f"i{size}": f"integer(c_int{8 * size}_t)" for size in (1, 2, 4, 8)},
    "r4": "real(c_float)",
    "r8": "real(c_double)",
}
TEXT = "character(kind=c_char), intent(in)"
LOOP = ("lower", "upper", "step")
KINDS = (
    "call", "return", "single", "single_end", "master", "master_end", "critical", "critical_end", "ordered",
    "ordered_end", "barrier", "atomic", "atomic_end", "sections", "sections_end", "private_unset",
)  # from 11 on  # fmt: skip


def _lines() -> Iterator[str]:
    yield "! Made by `python -m safepoint.threads.interface`: change that. The calls are described in sp_trace.h."
    yield "module sp_trace"
    yield "  use, intrinsic :: iso_c_binding"
    yield "  implicit none"
    yield "  private"
    yield "  public :: sp_region, sp_region_end, sp_enter, sp_leave, sp_loop, sp_loop2, sp_loop3, sp_iter, sp_loop_end"
    yield "  public :: sp_on, sp_event, sp_write, sp_read, sp_digest, sp_site"
    for number, kind in enumerate(KINDS, 11):
        yield f"  integer(c_int32_t), parameter, public :: sp_kind_{kind} = {number}"
    yield ""
    yield "  interface"
    yield from _plain()
    for what in ("write", "read"):
        yield from _values_of_c(what)
    yield "  end interface"
    yield ""
    yield from _generics()
    yield ""
    yield "contains"
    yield from _loops()
    yield from _iterations()
    for what in ("write", "read"):
        yield from _wrapped(what)
    yield from _rest()
    yield "end module sp_trace"


def _plain() -> Iterator[str]:
    visit = LONG + "visit"
    yield from _declared("function", "sp_region", "", SITE, "integer(c_int64_t) :: sp_region")
    for name in ("sp_region_end", "sp_enter", "sp_leave"):
        yield from _declared("subroutine", name, "visit", SITE, visit)
    yield from _declared("subroutine", "sp_loop_end", "", SITE)
    for count in (1, 2, 3):
        names = [f"{name}{number}" for number in range(1, count + 1) for name in LOOP]
        where = "sp_loop" if count == 1 else f"sp_loop{count}"
        yield from _declared("subroutine", f"{where}_c", names, SITE, LONG + ", ".join(names),
                             c=where)  # fmt: skip
    for size in (4, 8):
        name = f"sp_iter_i{size}"
        yield from _declared(
            "function", name, "i", SITE, f"{DIRECT[f'i{size}']}, value :: i", f"logical(c_bool) :: {name}"
        )
    for count in (2, 3):
        names = ["i", "j", "k"][:count]
        yield from _declared("function", f"sp_iter{count}_c", names, SITE, LONG + ", ".join(names),
                             f"integer(c_int) :: sp_iter{count}_c", c=f"sp_iter{count}")  # fmt: skip
    yield from _declared("function", "sp_on", "", SITE, "logical(c_bool) :: sp_on", c="sp_on_b")
    yield from _declared("subroutine", "sp_event_8", ["kind", "number"], SITE, "integer(c_int32_t), value :: kind",
                         LONG + "number", c="sp_event")  # fmt: skip
    yield from _declared(
        "subroutine", "sp_digest", "x", SITE, "type(*), dimension(..), intent(in) :: x", c="sp_digest_d"
    )
    texts = ["type", "name", "file"]
    yield from _declared(
        "function", "sp_site_c", [*texts, "line", "line2"],
        f"{TEXT} :: {', '.join(f'{text}(*)' for text in texts)}",
        "integer(c_int32_t), value :: line, line2", "integer(c_int32_t) :: sp_site_c", c="sp_site", site=False,
    )  # fmt: skip


def _values_of_c(what: str) -> Iterator[str]:
    for letters, type in DIRECT.items():
        yield from _declared("subroutine", f"sp_{what}_{letters}", "x", SITE, f"{type}, value :: x")
    for size, letters in ((4, "r4"), (8, "r8")):
        yield from _declared(
            "subroutine", f"sp_{what}_parts{size}", ["re", "im"], SITE, f"{DIRECT[letters]}, value :: re, im"
        )
    yield from _declared("subroutine", f"sp_{what}_r16c", ["low", "high"], SITE, LONG + "low, high",
                         c=f"sp_{what}_r16")  # fmt: skip
    yield from _declared("subroutine", f"sp_{what}_c16c", ["a", "b", "c", "d"], SITE,
                         LONG + "a, b, c, d", c=f"sp_{what}_c16")  # fmt: skip
    for size in (1, 2, 4, 8):
        yield from _declared("subroutine", f"sp_{what}_l{size}c", "x", SITE, f"{DIRECT[f'i{size}']}, value :: x",
                             c=f"sp_{what}_l{size}")  # fmt: skip
    yield from _declared("subroutine", f"sp_{what}_sc", ["x", "length"], SITE, f"{TEXT} :: x(*)",
                         "integer(c_size_t), value :: length", c=f"sp_{what}_s")  # fmt: skip


def _declared(
    form: str, name: str, arguments: str | list[str], *lines: str, c: str = "", site: bool = True
) -> Iterator[str]:
    """An interface of a function of C."""
    more = [arguments] if isinstance(arguments, str) and arguments else list(arguments)
    names = ["site", *more] if site else more
    yield f'    {form} {name}({", ".join(names)}) bind(c, name="{c or name}")'
    yield "      import"
    yield from (f"      {line}" for line in lines)
    yield f"    end {form} {name}"


def _generics() -> Iterator[str]:
    yield from _generic("sp_loop", _loop_names(1))
    for count in (2, 3):
        yield from _generic(f"sp_loop{count}", _loop_names(count))
    yield from _generic("sp_event", ["sp_event_4", "sp_event_8"])
    yield from _generic("sp_iter", ["sp_iter_i1", "sp_iter_i2", "sp_iter_i4", "sp_iter_i8", *_iteration_names()])
    for what in ("write", "read"):
        names = [f"sp_{what}_{letters}" for letters in (*DIRECT, "c4", "c8", "l1", "l2", "l4", "l8", "s")]
        yield from _generic(f"sp_{what}", names)
        for option, size in zip(OPTIONS, (10, 16), strict=True):
            yield f"  !if {option}"
            yield from _generic(f"sp_{what}", [f"sp_{what}_real{size}", f"sp_{what}_complex{size}"])
            yield f"  !end {option}"


def _generic(name: str, names: list[str]) -> Iterator[str]:
    yield f"  interface {name}"
    yield from (f"    procedure {each}" for each in names)
    yield "  end interface"


def _loop_names(count: int) -> list[str]:
    return [f"sp_loop{count}_{sizes}" for sizes in _loop_sizes(count)]


def _loop_sizes(count: int) -> list[str]:
    """Of one loop all mixtures; of nested ones all of 4 bytes or all of 8: a mixture is given as `int(x, 8)`."""
    return ["".join(sizes) for sizes in itertools.product("48", repeat=3)] if count == 1 else ["4", "8"]


def _loops() -> Iterator[str]:
    for count in (1, 2, 3):
        names = [f"{name}{number}" for number in range(1, count + 1) for name in LOOP]
        for sizes in _loop_sizes(count):
            yield f"  subroutine sp_loop{count}_{sizes}(site, {', '.join(names)})"
            yield "    integer(c_int32_t), intent(in) :: site"
            for name, size in zip(names, itertools.cycle(sizes)):
                yield f"    {DIRECT[f'i{size}']}, intent(in) :: {name}"
            yield f"    call sp_loop{'' if count == 1 else count}_c(site, &"
            yield ", &\n".join(f"      int({name}, c_int64_t)" for name in names) + ")"
            yield f"  end subroutine sp_loop{count}_{sizes}"


def _iteration_names() -> list[str]:
    return [f"sp_iter_{''.join(sizes)}" for count in (2, 3) for sizes in itertools.product("48", repeat=count)]


def _iterations() -> Iterator[str]:
    for size in (1, 2):
        name = f"sp_iter_i{size}"
        yield f"  function {name}(site, i) result(on)"
        yield "    integer(c_int32_t), intent(in) :: site"
        yield f"    {DIRECT[f'i{size}']}, intent(in) :: i"
        yield "    logical(c_bool) :: on"
        yield "    on = sp_iter_i4(site, int(i, c_int32_t))"
        yield f"  end function {name}"
    for name in _iteration_names():
        sizes = name.rpartition("_")[2]
        names = ["i", "j", "k"][: len(sizes)]
        yield f"  function {name}(site, {', '.join(names)}) result(on)"
        yield "    integer(c_int32_t), intent(in) :: site"
        yield from (f"    {DIRECT[f'i{size}']}, intent(in) :: {each}" for each, size in zip(names, sizes, strict=True))
        yield "    logical(c_bool) :: on"
        given = ", ".join(f"int({each}, c_int64_t)" for each in names)
        yield f"    on = sp_iter{len(sizes)}_c(site, {given}) /= 0"
        yield f"  end function {name}"


def _wrapped(what: str) -> Iterator[str]:
    for size, kind in ((4, "c_float"), (8, "c_double")):
        call = f"call sp_{what}_parts{size}(site, real(x, {kind}), real(aimag(x), {kind}))"
        yield from _wrapper(f"sp_{what}_c{size}", f"complex({kind})", call)
    for size in (1, 2, 4, 8):
        kind = f"c_int{8 * size}_t"
        call = f"call sp_{what}_l{size}c(site, merge(1_{kind}, 0_{kind}, x))"
        yield from _wrapper(f"sp_{what}_l{size}", f"logical({size})", call)
    yield from _wrapper(f"sp_{what}_s", "character(*)", f"call sp_{what}_sc(site, x, int(len(x), c_size_t))")
    for option, size in zip(OPTIONS, (10, 16), strict=True):
        cut = (
            "iand({}, 65535_c_int64_t)" if option == "x87" else "{}"
        )  # the last 6 of 16 bytes are no part of the value
        real = f"    h = transfer(x, h)\n    call sp_{what}_r16c(site, h(1), {cut.format('h(2)')})"
        halves = f"h(1), {cut.format('h(2)')}, h(3), {cut.format('h(4)')}"
        yield f"  !if {option}"
        yield from _wrapper(f"sp_{what}_real{size}", f"real({size})", real.strip(), "integer(c_int64_t) :: h(2)")
        call = f"h = transfer(x, h)\n    call sp_{what}_c16c(site, {halves})"
        yield from _wrapper(f"sp_{what}_complex{size}", f"complex({size})", call, "integer(c_int64_t) :: h(4)")
        yield f"  !end {option}"


def _wrapper(name: str, type: str, call: str, *more: str) -> Iterator[str]:
    yield f"  subroutine {name}(site, x)"
    yield "    integer(c_int32_t), intent(in) :: site"
    yield f"    {type}, intent(in) :: x"
    yield from (f"    {line}" for line in more)
    yield from f"    {call}".split("\n")
    yield f"  end subroutine {name}"


def _rest() -> Iterator[str]:
    yield "  subroutine sp_event_4(site, kind, number)"
    yield "    integer(c_int32_t), intent(in) :: site, kind, number"
    yield "    call sp_event_8(site, kind, int(number, c_int64_t))"
    yield "  end subroutine sp_event_4"
    yield "  function sp_site(type, name, file, line, line2) result(number)"
    yield "    character(*), intent(in) :: type, name, file"
    yield "    integer(c_int32_t), intent(in) :: line, line2"
    yield "    integer(c_int32_t) :: number"
    ended = ", ".join(f"trim({text}) // c_null_char" for text in ("type", "name", "file"))
    yield f"    number = sp_site_c({ended}, line, line2)"
    yield "  end function sp_site"


def text() -> str:
    """All of `sp_trace.f90`."""
    return "\n".join(_lines()) + "\n"


def without(options: tuple[str, ...], whole: str) -> str:
    """The module without the kinds of these options."""
    kept, inside = [], ""
    for line in whole.splitlines():
        word, _, option = line.strip().partition(" ")
        inside = option if word == "!if" and option in options else inside
        if not inside:
            kept.append(line)
        inside = "" if word == "!end" else inside
    return "\n".join(kept) + "\n"


if __name__ == "__main__":
    print(text(), end="")
