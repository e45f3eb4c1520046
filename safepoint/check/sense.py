"""What a template must obey beyond its form: the meaning in `docs/templates.md`, and the arguments that MPI has.

A comparison that can never hold is a fault: it would make a template that finds nothing and says so of every program.
"""

from __future__ import annotations

from safepoint.check import vocabulary
from safepoint.check.draft import Compared, Draft, Reference
from safepoint.check.sentences import listed, shown
from safepoint.check.template import Argument, Condition, Constant, Expression, Item, Process
from safepoint.trace.signatures import HANDLES

MOST_NAMED = 3  # functions in one message


def items(expression: Expression) -> list[Item]:
    return [item for row in expression for item in row]


def absent(expression: Expression) -> bool:
    """It says only what is not called."""
    return all(item.absent for item in items(expression))


def judge(draft: Draft) -> list[Condition]:
    """Tell what is wrong; the conditions of what is right, with arguments as `rows` takes them."""
    _whole(draft)
    _processes(draft)
    found = []
    for one in draft.conditions:
        left = _argument(draft, one.left)
        right = _argument(draft, one.right) if isinstance(one.right, Reference) else one.right
        if left is not None and right is not None:
            _comparison(draft, one)
            found.append(Condition(left, one.sign, right, one.left.at.line or 1))
    return found


def _whole(draft: Draft) -> None:
    """Is everything there?"""
    tell = draft.faults.tell
    if draft.name is None:
        tell(None, "expected Name=… in the first line")
    for block in (1, 2):
        if block not in draft.blocks and block not in draft.missing:
            tell(draft.end, f"found the end of the file, expected {block}block")
    if draft.sized is None and 1 in draft.blocks:
        tell(draft.blocks[1], "expected N=… in the 1block: how many processes take part")
    if draft.broken or not draft.functions:
        if not draft.broken and 2 in draft.blocks:
            tell(draft.blocks[2], "expected a function in the 2block, such as F1=p1:Isend")
    elif all(absent(one) for one in draft.functions.values()):
        first = min(draft.functions)
        tell(
            draft.places[first],
            "all functions are negated, expected one that is called: nothing would begin a situation",
        )


def _processes(draft: Draft) -> None:
    size = draft.size
    if isinstance(size, int):
        for number, at, use in draft.processes:
            if number > size:
                draft.faults.tell(at, f"{use}, but N={size}")


def _argument(draft: Draft, one: Reference) -> Argument | None:
    """None: it is told, or its function is not known."""
    number = one.argument.function
    if number in draft.broken:
        return None
    if number not in draft.functions:
        draft.faults.tell(one.at, f"{one.at} is not defined")
        return None
    members = draft.members(number)
    if isinstance(one.argument.name, str):
        return _by_name(draft, one, one.argument.name, members)
    return _by_number(draft, one, one.argument.name, members)


def _by_name(draft: Draft, one: Reference, name: str, members: list[str]) -> Argument | None:
    lacking = [function for function in members if vocabulary.named(function, name) is None]
    if not lacking:
        return one.argument
    what = f"{_some(lacking)} {'has' if len(lacking) == 1 else 'have'} no argument {shown(one.word)}"
    common = set.intersection(*(set(vocabulary.names(function)) for function in members))
    if len(lacking) < len(members):
        what += f", others of {one.at} have"
    elif near := vocabulary.nearest(name, common, 0.7):
        what += f"; {near}?"
    draft.faults.tell(one.word, what)
    return None


def _by_number(draft: Draft, one: Reference, place: int, members: list[str]) -> Argument | None:
    if place == 0:
        draft.faults.tell(one.word, "arguments are numbered from 1")
        return None
    there = {function: vocabulary.parameter(function, place) for function in members}
    meanings = {parameter and vocabulary.meaning(parameter) for parameter in there.values()}
    if len(meanings) == 1 and None not in meanings:
        return one.argument
    # In 2014 a receive had the arguments of Recv. Mrecv, which is one too, has others.
    older = {at.name for function, at in there.items() if at is not None and function not in vocabulary.BY_MESSAGE}
    if len(older) == 1 and {function for function, at in there.items() if at is None} <= {*vocabulary.BY_MESSAGE}:
        (name,) = older
        if all(vocabulary.named(function, name) for function in members):
            return Argument(one.argument.function, name)
    few = sorted((function for function in members if there[function] is None), key=vocabulary.count)
    if few:
        count = vocabulary.count(few[0])
        what = f"{few[0]} has {count} argument{'' if count == 1 else 's'}, not {place}"
        what += "; write F1(step)".replace("F1", one.at) if few[0] == vocabulary.HIDE else ""
    else:
        differ: dict[str, str] = {}
        for function, at in there.items():
            if at is not None:
                differ.setdefault(at.name, f"{at.name} in {function}")
        what = f"argument {place} is {listed([*differ.values()][:MOST_NAMED])}"
    if len(members) > 1:
        names = (at.name for at in there.values() if at is not None)
        common = next((name for name in names if all(vocabulary.named(each, name) for each in members)), None)
        what += "; write its name" + (f": {one.at}({common})" if common else "")
    draft.faults.tell(one.word, what)
    return None


def _some(functions: list[str]) -> str:
    more = len(functions) - MOST_NAMED
    few = functions[:MOST_NAMED] if more > 0 else functions
    return listed(few).replace(" or ", " and ") if more <= 0 else f"{', '.join(few)} and {more} more"


def _kinds(draft: Draft, one: Reference) -> set[str]:
    """As what it is compared; empty: that is not known."""
    name, found = one.argument.name, set()
    for function in draft.members(one.argument.function):
        if isinstance(name, str):
            found.add(vocabulary.named(function, name) or "")
        else:
            parameter = vocabulary.parameter(function, name)
            found.add(parameter.kind if parameter is not None else "")
    kinds = {vocabulary.compared(kind) for kind in found}
    return set() if "" in kinds else kinds


def _right(draft: Draft, right: Reference | Process | Constant | int | None) -> tuple[str, set[str]]:
    """As it is written, and as what it is compared."""
    if isinstance(right, Reference):
        return str(right), _kinds(draft, right)
    if isinstance(right, Constant):
        kind = vocabulary.compared(vocabulary.constants()[right.name])
        return right.name, {kind} if kind else set()
    return (f"p{right.number}", {"number"}) if isinstance(right, Process) else (str(right), {"number"})


def _comparison(draft: Draft, one: Compared) -> None:
    """Can it hold, and is there anything that it could be asked of?"""
    tell, (text, right), left = draft.faults.tell, _right(draft, one.right), _kinds(draft, one.left)
    for what, kinds, at in ((str(one.left), left, one.left.word), (text, right, one.at)):
        if one.sign in "<>" and kinds & vocabulary.UNORDERED:
            kind = vocabulary.OBJECTS[min(kinds & vocabulary.UNORDERED)]
            tell(at, f"{what} is {kind}, expected a number beside {one.sign}: only = and != compare it")
            return
    null = one.right == 0 and "buffer" in left
    if left and right and not null and not _alike(left, right):
        mine, its = (vocabulary.OBJECTS[min(each)] for each in (left, right))
        tell(one.at, f"{one.left} is {mine}, {text} is {its}: they are never equal")
    if isinstance(one.right, Reference) and one.right.argument.function != one.left.argument.function:
        negated = [each for each in (one.left, one.right) if absent(draft.functions[each.argument.function])]
        if len(negated) == 2:
            tell(one.at, f"{negated[0].at} and {negated[1].at} are both not called: there is nothing to compare")
        elif negated and one.sign != "=":
            tell(negated[0].at, f"{negated[0].at} is not called, so {negated[0]} can only be compared with =")


def _alike(left: set[str], right: set[str]) -> bool:
    handles = {*HANDLES.values()}
    return bool(left & right or ("handle" in left and right & handles) or ("handle" in right and left & handles))
