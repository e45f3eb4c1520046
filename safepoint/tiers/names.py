"""The names at a place: made here, and taken apart here. Each thing has one; all others are none of ours."""

from __future__ import annotations

import re
from typing import NamedTuple

from safepoint.record import Record
from safepoint.sealed import LIVES

CLAIM = re.compile(r"claim-([0-9]{5,8})-([0-9a-f]{16})")
SET = re.compile(r"set-([0-9]{5,8})-([0-9a-f]{16})-([0-9]{5,7})-([0-9]{8,12})-([0-3][0-9a-f]{15})")
INDEX = re.compile(r"rank-([0-9]{5}|[1-9][0-9]{5,6})\.json")  # each rank has one name
IDENTITY = re.compile(r"[0-9]{5,8}-[0-9]{8,12}-[0-9a-f]{16}")  # of a set
OF_RANK = re.compile(r"rank-([0-9]{5,7})\.")
MOST_CLAIMS = 10**8 - 1
UNKNOWN = "0" * 16  # the history of a set of format 1


class Claim(NamedTuple):
    """Who puts sets here. They are ordered: the last one counts."""

    number: int
    id: str

    @property
    def name(self) -> str:
        return f"claim-{self.number:05d}-{self.id}"


class Name(NamedTuple):
    """What a set is known by here; in the order in which sets are chosen."""

    claim: int
    id: str
    life: int
    number: int
    history: str

    @property
    def text(self) -> str:
        return f"set-{self.claim:05d}-{self.id}-{self.life:05d}-{self.number:08d}-{self.history}"

    @property
    def identity(self) -> str:
        """Of the set itself, wherever it lies."""
        return identity(self.life, self.number, self.history)


def identity(life: int, number: int, history: str) -> str:
    return f"{life:05d}-{number:08d}-{history or UNKNOWN}"


def named(claim: Claim, record: Record) -> Name:
    return Name(claim.number, claim.id, record.life, record.number, record.history or UNKNOWN)


def name_of(text: str) -> Name | None:
    match = SET.fullmatch(text)
    if not match or int(match[3]) >= LIVES:
        return None
    name = Name(int(match[1]), match[2], int(match[3]), int(match[4]), match[5])
    return name if name.text == text else None


def claim_of(text: str) -> Claim | None:
    match = CLAIM.fullmatch(text)
    claim = Claim(int(match[1]), match[2]) if match else None
    return claim if claim and claim.name == text else None


def piece_name(rank: int, at: int, sum_: str) -> str:
    return f"rank-{rank:05d}.{at:06d}-{sum_[:16]}"
