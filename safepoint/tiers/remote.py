"""What lies at a place, under which names, and what makes a part or a set of it. Knows no ranks, and no session.

    FORMAT                                          "safepoint remote 1"
    claim-00002-ID                                  a directory whose sets are put here from now on
    set-00002-ID-00007-00000041-HISTORY/            claim, life, number: names sort as sets are chosen
        rank-00017.000000-CHECKSUM                  piece 0 of the part
        rank-00017.json                             its index, put last: the record, and each piece's size and checksum

(1) A part is there if its index is, and all pieces of that. Pieces are named by their bytes. So an upload that was
    killed goes on with the missing ones, and what is half put has no name.
(2) A set is there if all parts are that its record asks for.
(3) Whoever puts sets has *claimed* the place before, and looks at the claims again after: a set that was whole before a
    later claim is seen by who made that, as they claim first and look then; one that became whole after it is not told
    to be safe. Sets of a later claim are newer than all others. So a run that was taken for dead, and goes on, is
    neither mixed in nor preferred.
(4) What is old goes with the index first, so that no part without its bytes counts.
(5) What uploads left that ended early goes when a set became whole, and if one cannot be put: a place that was full
    would stay full.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, NamedTuple

from safepoint.disk.codec import checksum
from safepoint.errors import FormatError, UsageError
from safepoint.record import Record
from safepoint.restoring.read import Damaged
from safepoint.sealed import Unsealed, checked, seal, unseal
from safepoint.tiers.names import INDEX, OF_RANK, UNKNOWN, Claim, Name, claim_of, name_of, named, piece_name
from safepoint.tiers.part import PIECE, Part, length, parsed
from safepoint.tiers.place import NEW, Denied, Gone, Place, Unreachable, Vanished

FORMAT, LINE = "FORMAT", b"safepoint remote 1\n"
LARGEST_INDEX, LARGEST_CLAIM, LONGEST_MANIFEST = 64 << 20, 64 << 10, 1 << 20  # bytes
SETUID = 0o6000  # and setgid
NAMED = 20  # reasons that are told by rank


class Content(NamedTuple):
    """What an index says, as it is written."""

    record: str
    bundle: int
    sizes: tuple[int, ...]
    checksums: tuple[str, ...]
    manifest: str = ""  # of the directory, for who brings the set into an empty one


class Index(NamedTuple):
    """A part that is there."""

    record: Record
    content: bytes  # of its record.json
    bundle: int
    pieces: tuple[tuple[str, int, str], ...]  # name, size, checksum
    manifest: str = ""

    @property
    def size(self) -> int:
        return sum(size for _, size, _ in self.pieces)


class Listing(NamedTuple):
    """All names at a place, by what they are. `sets`: of each the names in its directory, with their sizes."""

    claims: tuple[Claim, ...]  # ascending
    sets: dict[Name, dict[str, int]]  # newest first
    others: tuple[str, ...]  # what is none of ours
    unfinished: tuple[str, ...] = ()  # what was being put

    def ranks(self, name: Name) -> list[int]:
        """Those whose index is there."""
        return sorted(int(match[1]) for match in map(INDEX.fullmatch, self.sets.get(name, ())) if match)


class Remote:
    """Sets at one place. Everything raises `Unreachable` if that does not answer."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._ours = False  # its FORMAT was read: no further look asks for it

    def look(self) -> Listing:
        """What is there now. Raises `FormatError` if it was written by a newer library, or is another's."""
        names = self.place.names()
        if FORMAT not in names and self._has_format():
            names = self.place.names()  # somebody may have put it between the two
            if FORMAT not in names:
                raise Unreachable(
                    f"{self.place.url.text}: cannot list it: {FORMAT} is there, and what was listed does not show it"
                )
        if FORMAT in names and not self._ours and not self._is_ours(names[FORMAT]):
            where = self.place.url.text
            raise FormatError(f"{where} is in another format than this safepoint knows; nothing was changed")
        claims, sets, others, unfinished = [], dict[Name, dict[str, int]](), set(), []
        for text, size in names.items():
            top, slash, inner = text.partition("/")
            if slash and not inner:  # there is something of it, and nobody can say what: so it is no whole one
                if name := name_of(top):
                    sets.setdefault(name, {})
            elif inner.endswith(NEW) and name_of(top):
                unfinished.append(text)
            elif slash and (name := name_of(top)) and OF_RANK.match(inner):
                sets.setdefault(name, {})[inner] = size
            elif not slash and (claim := claim_of(top)):
                claims.append(claim)
            elif text != FORMAT:
                others.add(top)
        ordered = {name: sets[name] for name in sorted(sets, reverse=True)}
        return Listing(tuple(sorted(claims)), ordered, tuple(sorted(others)), tuple(unfinished))

    def _has_format(self) -> bool:
        """Asked for by its name: that all is empty is believed only if the place says that this is not there."""
        try:
            self.place.get(FORMAT, len(LINE))
        except (Gone, Denied):  # who may list need not learn what there is not
            return False
        except Vanished:
            pass
        return True

    def _is_ours(self, size: int) -> bool:
        try:
            self._ours = size == len(LINE) and self.place.get(FORMAT, size) == LINE
            return self._ours
        except Vanished:  # it is put anew
            return True

    def claim(self, mine: Claim, who: dict[str, Any]) -> None:
        """On return others see it. `who`: told to them."""
        self.place.put(FORMAT, LINE)
        self.place.put(mine.name, seal(who))

    def claimed_by(self, claim: Claim) -> dict[str, Any]:
        """What they have told of themselves; nothing if that cannot be read."""
        try:
            size = self.place.names().get(claim.name, 0)
            return unseal(self.place.get(claim.name, size)) if 0 < size < LARGEST_CLAIM else {}
        except (Vanished, Unsealed, FormatError):
            return {}

    def index(self, listing: Listing, name: Name, rank: int) -> Index:
        """The part of a rank. Raises `Damaged` if what is there is none, `Vanished` if it is gone meanwhile."""
        there = listing.sets[name]
        size = there[file := f"rank-{rank:05d}.json"]
        if size > LARGEST_INDEX:
            raise Damaged(f"{file} has {size} bytes")
        try:
            content: Content = checked(Content, unseal(self.place.get(f"{name.text}/{file}", size)))
            sums = list(map(str, content.checksums))
            if len(sums) != len(content.sizes) or not all(type(n) is int and 0 <= n <= PIECE for n in content.sizes):
                raise Unsealed("its pieces are none")
        except Unsealed as error:
            raise Damaged(f"{file}: {error}") from error
        if len(content.manifest) > LONGEST_MANIFEST:
            raise Damaged(f"{file}: its manifest has {len(content.manifest)} characters")
        record = parsed(data := content.record.encode("utf-8", "surrogateescape"))
        if (record.life, record.number, record.history or UNKNOWN, record.rank) != (*name[2:], rank):
            raise Damaged(f"{file} is that of {record.label} of rank {record.rank}, in another life perhaps")
        if odd := next((f.path for f in record.files if f.kind in ("file", "append") and f.mode & SETUID), None):
            raise Damaged(f"{file}: {odd} is setuid or setgid")
        pieces = tuple(
            (piece_name(rank, at, sums[at]), bytes_, sums[at]) for at, bytes_ in enumerate(content.sizes)
        )  # fmt: skip
        found = Index(record, data, content.bundle, pieces, content.manifest)
        if found.size != length(record, content.bundle, data):
            raise Damaged(f"{file}: its pieces are not as long as its record needs")
        for piece, bytes_, _ in pieces:
            if there.get(piece) != bytes_:
                raise Damaged(f"{piece} is {'missing' if piece not in there else 'cut short'}")
        return found

    def lacks(self, listing: Listing, name: Name) -> tuple[dict[int, Index], dict[int, str]]:
        """The parts that are there of a set, and by rank why one is not that is needed: if nothing lacks, rule (2)."""
        parts, why = dict[int, Index](), dict[int, str]()
        for rank in listing.ranks(name):
            try:
                parts[rank] = self.index(listing, name, rank)
            except (Damaged, Vanished) as error:  # or removed meanwhile, by a drain at work
                why[rank] = str(error)
        one = next(iter(parts.values()), None)
        if one and (lacking := len(all_ := needed(one.record)) - len([rank for rank in parts if rank in all_])):
            for rank in islice((rank for rank in all_ if rank not in parts), NAMED):
                why.setdefault(rank, "is not there")
            if lacking > NAMED:
                why[min(why)] += f" (and of {lacking} ranks nothing is there)"
        if not parts and not why:
            why[0] = "is not there"
        said = {r: p.record for r, p in parts.items() if p.record.per_rank or p.record.saver == r}
        steps = {record.step for record in said.values()}
        if len(steps) > 1:
            why.update(dict.fromkeys(said, "is of another step than that of another rank"))
        asks = {(p.record.ranks, p.record.saver, p.record.per_rank) for p in parts.values()}
        if len(asks) > 1:
            why.update(dict.fromkeys(parts, "is of another number of ranks than that of another rank"))
        return parts, why

    def put(
        self, listing: Listing, claim: Claim, part: Part, manifest: str, sent: Callable[[int], None],
        may_go: Callable[[int], None], *, anew: bool = False,
    ) -> tuple[Name, int]:  # fmt: skip
        """Rule (1). `sent`: told of bytes that are there; `may_go`: called before so many go, and may wait. The name
        of the set, and how many bytes went. Raises `Damaged` and `Changed`, as the part does; then there is no
        index."""
        rank, name = part.record.rank, named(claim, part.record)
        there, sizes, sums, went = listing.sets.get(name, {}), list[int](), list[str](), 0

        def lane(piece: str, data: bytearray) -> int:
            self.place.put(f"{name.text}/{piece}", data)
            return len(data)

        text = part.content.decode("utf-8", "surrogateescape")
        if len(seal(Content(text, 0, (), (), manifest)._asdict())) + part.length // 500_000 > LARGEST_INDEX:
            raise UsageError(
                f"rank {rank} has more files than an index of {LARGEST_INDEX >> 20} MiB can name; nothing was put"
            )
        with _Lanes(self.place.lanes, sent) as lanes:
            for data in part.pieces():
                sums.append(checksum(data))
                sizes.append(len(data))
                piece = piece_name(rank, len(sums) - 1, sums[-1])
                if not anew and there.get(piece) == len(data):
                    sent(len(data))
                    continue
                may_go(len(data))
                went += len(data)
                lanes.run(lane, piece, data)
        content = Content(text, part.bundle, tuple(sizes), tuple(sums), manifest)._asdict()
        self.place.put(f"{name.text}/rank-{rank:05d}.json", seal(content))
        return name, went

    def pieces(self, name: Name, part: Index, got: Callable[[int], None]) -> Iterator[bytes]:
        """The stream of a part, some pieces ahead. Raises `Vanished`, and `Damaged` for a piece that is another one."""

        def lane(piece: tuple[str, int, str]) -> bytes:
            data = self.place.get(f"{name.text}/{piece[0]}", piece[1])
            if checksum(data) != piece[2]:
                raise Damaged(f"the checksum of {piece[0]} differs")
            return data

        if self.place.lanes == 1:
            for each in part.pieces:
                data = lane(each)
                got(len(data))
                yield data
            return
        with ThreadPoolExecutor(self.place.lanes, "safepoint-fetch") as pool:
            ahead: list[Future[bytes]] = []
            left = iter(part.pieces)
            try:
                while True:
                    while len(ahead) < self.place.lanes and (piece := next(left, None)):
                        ahead.append(pool.submit(lane, piece))
                    if not ahead:
                        return
                    data = ahead.pop(0).result()
                    got(len(data))
                    yield data
            finally:
                for future in ahead:
                    future.cancel()

    def clear_dead(self, listing: Listing, name: Name) -> bool:
        """Remove what uploads left that ended early, but those of this set; whether there was anything. Nobody else may
        be putting here. Of a set that was ever whole nothing goes: if its index cannot be read, that is no proof."""
        dead = [
            each for each, inner in listing.sets.items() if each != name and inner and self._never_was(listing, each)
        ]
        left = [*listing.unfinished]
        for each in dead:
            left += [f"{each.text}/{one}" for one in sorted(listing.sets[each], key=lambda it: not INDEX.fullmatch(it))]
        self.place.remove(left)
        return bool(left)

    def _never_was(self, listing: Listing, name: Name) -> bool:
        """By the names of the parts alone."""
        if not (ranks := listing.ranks(name)):
            return True
        with contextlib.suppress(Damaged, Vanished):
            return not {*needed(self.index(listing, name, ranks[0]).record)} <= {*ranks}
        return False

    def prune(self, listing: Listing, keep: Iterable[Name]) -> list[Name]:
        """Rule (4): remove all sets but these, and what a dead upload of an older one left. Those that were removed."""
        wanted = set(keep)
        newest = max(wanted, default=None)
        self.place.remove(
            text
            for text in listing.unfinished
            if newest and (name := name_of(text.partition("/")[0])) and name <= newest
        )
        old = [name for name, inner in listing.sets.items() if inner and name not in wanted]
        for name in reversed(old):  # the oldest first, and of each the index
            inner = sorted(listing.sets[name], key=lambda each: not INDEX.fullmatch(each))
            heads = [each for each in inner if INDEX.fullmatch(each)]
            self.place.remove(f"{name.text}/{each}" for each in heads)
            self.place.remove(f"{name.text}/{each}" for each in inner[len(heads) :])
        return old


def needed(record: Record) -> Sequence[int]:
    """The ranks without whose parts a set is none. Of a rank that is alone in its directory, that one."""
    if record.saver is None:
        return (record.rank,)
    return range(record.ranks) if record.per_rank else (record.saver,)


class _Lanes:
    """Several pieces on their way. The memory that they take is that of so many pieces, and of one that is read."""

    def __init__(self, count: int, sent: Callable[[int], None]) -> None:
        self._count, self._sent = count, sent
        self._pool = ThreadPoolExecutor(count, "safepoint-drain")  # no thread before the first call
        self._under_way: list[Future[int]] = []

    def run(self, call: Callable[[str, bytearray], int], piece: str, data: bytearray) -> None:
        if self._count == 1:
            self._sent(call(piece, data))
            return
        while len(self._under_way) >= self._count:
            self._sent(self._under_way.pop(0).result())
        self._under_way.append(self._pool.submit(call, piece, data))

    def __enter__(self) -> _Lanes:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            for future in self._under_way if kind is None else ():
                self._sent(future.result())
        finally:
            self._pool.shutdown(cancel_futures=True)
