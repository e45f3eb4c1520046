"""What a schedule knows of the processors: their relative speeds, and latency and bandwidth of each pair.

`safepoint bench-net` measures it, one row for each rank of MPI. Rank 0 runs no vertices, so the workers of a schedule
are the other ranks: worker w is rank w + 1, and `workers()` makes a machine of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from safepoint.disk import Disk
from safepoint.errors import FormatError, UsageError
from safepoint.tasks import jsonfile
from safepoint.tasks.jsonfile import number

FORMAT = "net 1"
LATENCY_S, BANDWIDTH = 50e-6, 1e9  # of a link that nobody has measured: seconds, and bytes per second
# What a machine may have. Outside of these sums of times are infinite, and their ratios no numbers.
SPEEDS, LATENCIES, BANDWIDTHS = (1e-30, 1e30), (0.0, 1e30), (1e-30, 1e30)
REMEDY = "measure it: mpiexec -n N safepoint bench-net -o net.json"
Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Machine:
    """Processors and links. All matrices are [from][to], with 0 on the diagonal, which does not count."""

    speed: tuple[float, ...]  # relative, with mean 1: a body takes weight / speed
    latency_s: Matrix
    bandwidth: Matrix  # bytes per second
    hosts: tuple[str, ...] = ()
    measured: Mapping[str, Any] = field(default_factory=dict, compare=False)  # what else the file has

    @property
    def size(self) -> int:
        return len(self.speed)

    @property
    def alike(self) -> bool:
        """All links are the same, whatever the speeds are."""
        pairs = [(p, q) for p in range(self.size) for q in range(self.size) if p != q]
        return len({(self.latency_s[p][q], self.bandwidth[p][q]) for p, q in pairs}) <= 1

    @classmethod
    def equal(cls, processors: int, latency_s: float = LATENCY_S, bandwidth: float = BANDWIDTH) -> Machine:
        """Without a measurement: equal speeds, and one link speed."""
        if processors < 1:
            raise UsageError(f"a machine of {processors} processors runs nothing")
        return cls((1.0,) * processors, _same(processors, latency_s), _same(processors, bandwidth))

    def only(self, ranks: Iterable[int]) -> Machine:
        """The machine of these ranks, in this order; relative speeds have mean 1 again."""
        chosen = list(ranks)
        strange = [rank for rank in chosen if not 0 <= rank < self.size]
        if strange or not chosen:
            raise UsageError(f"no machine of ranks {chosen}: this one has the ranks 0 to {self.size - 1}")

        def part(matrix: Matrix) -> Matrix:
            return tuple(tuple(matrix[p][q] for q in chosen) for p in chosen)

        mean = sum(self.speed[p] for p in chosen) / len(chosen)
        hosts = tuple(self.hosts[p] for p in chosen) if self.hosts else ()
        speed = tuple(self.speed[p] / mean for p in chosen)
        return Machine(speed, part(self.latency_s), part(self.bandwidth), hosts)

    def workers(self, count: int | None = None) -> Machine:
        """All but rank 0, which coordinates; raises `UsageError` if that are not `count`, where a number is given."""
        if self.size < 2 or count not in (None, self.size - 1):
            wanted = f"{count} workers and a coordinator" if count else "a worker and a coordinator"
            raise UsageError(f"the machine was measured with {self.size} ranks, and {wanted} are needed; {REMEDY}")
        return self.only(range(1, self.size))

    def seconds(self, source: int, target: int, nbytes: float) -> float:
        """Until so many bytes are at the other processor."""
        if source == target:
            return 0.0
        return self.latency_s[source][target] + nbytes / self.bandwidth[source][target]

    # Files.

    @classmethod
    def read(cls, path: str) -> Machine:
        """What `bench-net` wrote. Raises `UsageError` if it cannot be read, `FormatError` naming file and key if it is
        of another format or wrong."""
        return cls.parse(jsonfile.read(path, "file of a machine", REMEDY), path)

    @classmethod
    def parse(cls, content: Mapping[str, Any], path: str, remedy: str = REMEDY) -> Machine:
        """The same of what was read; `path` and `remedy` are for errors."""
        try:
            return cls._parsed(content)
        except _Wrong as wrong:
            raise FormatError(f"{path}: {wrong}; {remedy}") from wrong

    @classmethod
    def _parsed(cls, content: Mapping[str, Any]) -> Machine:
        if "safepoint" not in content:
            raise _Wrong("it has no key safepoint, so it is no file of bench-net")
        if content.get("safepoint") != FORMAT:
            raise _Wrong(f'safepoint: this is no "{FORMAT}" but {_shown(content.get("safepoint"))}')
        speed = _row(content.get("speed"))
        size = len(speed)
        latency = _matrix(content.get("latency_s"), "latency_s", size, LATENCIES)
        bandwidth = _matrix(content.get("bandwidth"), "bandwidth", size, BANDWIDTHS)
        hosts = content.get("hosts", [])
        if not isinstance(hosts, list) or len(hosts) not in (0, size) or not all(isinstance(h, str) for h in hosts):
            raise _Wrong(f"hosts: not the names of {size} hosts")
        known = ("safepoint", "speed", "latency_s", "bandwidth", "hosts")
        rest = {name: value for name, value in content.items() if name not in known}
        mean = sum(speed) / size
        return cls(tuple(each / mean for each in speed), latency, bandwidth, tuple(hosts), rest)

    def as_json(self) -> dict[str, Any]:
        return {
            "safepoint": FORMAT,
            **self.measured,
            "hosts": list(self.hosts),
            "speed": list(self.speed),
            "latency_s": list(map(list, self.latency_s)),
            "bandwidth": list(map(list, self.bandwidth)),
        }

    def write(self, path: str, disk: Disk | None = None) -> None:
        jsonfile.write(disk or Disk(), path, self.as_json())


class _Wrong(ValueError):
    """A key of the file, and what is wrong with it."""


def _same(size: int, value: float) -> Matrix:
    return tuple(tuple(0.0 if p == q else value for q in range(size)) for p in range(size))


def _row(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or not value:
        raise _Wrong("speed: not a list of numbers, one for each rank")
    return tuple(_within(each, SPEEDS, f"speed[{n}]") for n, each in enumerate(value))


def _matrix(value: Any, name: str, size: int, bounds: tuple[float, float]) -> Matrix:
    if (
        not isinstance(value, list)
        or len(value) != size
        or not all(isinstance(row, list) and len(row) == size for row in value)
    ):
        raise _Wrong(f"{name}: not {size} rows of {size} numbers, as speed has {size}")
    return tuple(
        tuple(0.0 if p == q else _within(each, bounds, f"{name}[{p}][{q}]") for q, each in enumerate(row))
        for p, row in enumerate(value)
    )


def _within(value: Any, bounds: tuple[float, float], where: str) -> float:
    least, most = bounds
    found = number(value, least)
    if found is not None and found <= most:
        return found
    if number(value, above=least > 0) is not None:
        raise _Wrong(f"{where}: {_shown(value)} is not from {least:g} to {most:g}")
    raise _Wrong(f"{where}: {_shown(value)} is no number {'above 0' if least > 0 else 'of 0 or more'}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
