"""Bytes through checksum and zstd: what goes in comes out, and what does not is noticed."""

from __future__ import annotations

import errno
import io
import os
import random
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import xxhash
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from safepoint.disk import Disk
from safepoint.disk.bundle import Bundle, tar_header
from safepoint.disk.codec import (
    CHECKSUM_READ_BYTES,
    LARGE_FILE_BYTES,
    BadFrame,
    checksum,
    copy,
    copy_sparse,
    pack,
    unpack,
)
from safepoint.disk.kernel import write_all

MIB = 1 << 20  # files are read in blocks of this size
BOUNDARIES = sorted({max(0, k * MIB + d) for k in (0, 1, 2) for d in (-1, 0, 1)} | {128 << 10, (128 << 10) + 1})


class Bytes(io.BytesIO):
    """A file in memory; like those of `Disk` it has a name."""

    name = "memory"


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def packed(data: bytes, level: int = 3, announced: int | None = None) -> bytes:
    sink = Bytes()
    pack(Bytes(data), sink, level, len(data) if announced is None else announced)
    return sink.getvalue()


def unpacked(frame: bytes) -> tuple[bytes, tuple[int, str]]:
    sink = Bytes()
    done = unpack(Bytes(frame), MIB << 10, sink)
    return sink.getvalue(), done


def program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"needs the program {name}")
    return path


# Checksums and copies.


@pytest.mark.parametrize("data", [b"x" * 3 * MIB, bytes(MIB) + b"x" * MIB])
def test_only_a_hole_at_the_end_needs_a_truncate(data: bytes) -> None:
    """XFS writes a new file out when it is truncated, even to the size that it has: 0.1 s for 512 MB."""

    class Sink(Bytes):
        def truncate(self, size: int | None = None) -> int:
            raise AssertionError("truncated")

    unpack(Bytes(packed(data)), len(data), Sink())
    copy_sparse(Bytes(data), Sink(), len(data), [(0, len(data))])
    with pytest.raises(AssertionError, match="truncated"):
        unpack(Bytes(packed(data + bytes(MIB))), len(data) + MIB, Sink())
    with pytest.raises(AssertionError, match="truncated"):
        copy_sparse(Bytes(data + bytes(MIB)), Sink(), len(data) + MIB, [(0, len(data))])


@given(st.binary())
def test_the_checksum_is_xxh3_128(data: bytes) -> None:
    """G6: what `docs/format.md` says anybody can compute."""
    digest = xxhash.xxh3_128(data).hexdigest()
    assert (checksum(data), copy(Bytes(data))) == (digest, (len(data), digest))


def test_the_checksum_of_nothing_is_the_published_one() -> None:
    assert checksum(b"") == "99aa06d3014798d86001c324468d497f"


@pytest.mark.parametrize("size", BOUNDARIES)
def test_the_checksum_is_what_xxh128sum_prints(tmp_path: Path, size: int) -> None:
    """G6: a set can be checked by hand."""
    path = tmp_path / "file"
    path.write_bytes(noise(size))
    done = subprocess.run([program("xxh128sum"), str(path)], capture_output=True, text=True, check=True)
    with Disk().open(str(path)) as source:
        assert copy(source) == (size, done.stdout.split()[0])


@pytest.mark.parametrize("size", BOUNDARIES)
def test_a_copy_is_the_same(size: int) -> None:
    data, sink = noise(size), Bytes()
    assert copy(Bytes(data), sink) == (size, checksum(data))
    assert sink.getvalue() == data


@pytest.mark.parametrize("limit", [0, 1, MIB - 1, MIB, MIB + 1, 2 * MIB + 5, 2 * MIB + 6, 1 << 40])
def test_a_copy_with_a_limit_is_of_the_first_bytes(limit: int) -> None:
    """An append file: a set owns so many bytes of it and must not see the rest."""
    data, sink = noise(2 * MIB + 5), Bytes()
    first = data[:limit]
    assert copy(Bytes(data), sink, limit) == (len(first), checksum(first))
    assert sink.getvalue() == first


class Counted(Bytes):
    """Counts how often it is read."""

    reads = 0

    def readinto(self, buffer: Any, /) -> int:
        self.reads += 1
        return super().readinto(buffer)


@pytest.mark.parametrize(
    "size",
    [
        LARGE_FILE_BYTES - 1,
        LARGE_FILE_BYTES,
        LARGE_FILE_BYTES + 1,
        LARGE_FILE_BYTES + CHECKSUM_READ_BYTES,
        LARGE_FILE_BYTES + CHECKSUM_READ_BYTES + 1,
    ],
)
def test_a_large_file_is_read_in_large_pieces_for_its_checksum_alone(size: int) -> None:
    """Each piece waits for the interpreter, 5 ms if the program keeps it busy."""
    data = bytes(range(256)) * (size // 256 + 1)
    source, copied, kept = Counted(data), Counted(data), Bytes()
    assert copy(source, limit=size) == copy(copied, kept, size) == (size, checksum(data[:size]))
    assert kept.getvalue() == data[:size]
    assert source.reads == -(-size // (CHECKSUM_READ_BYTES if size >= LARGE_FILE_BYTES else MIB)) and copied.reads == -(
        -size // MIB
    )


def test_an_error_while_reading_names_the_file() -> None:
    """G7: EIO is an exception here, and not a signal in the solver. The first page of a process cannot be read."""
    path = "/proc/self/mem"
    if not Path(path).exists():
        pytest.skip(f"needs {path}, a file that cannot be read")
    with Disk().open(path) as source, pytest.raises(OSError) as caught:
        copy(source)
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, path)


@pytest.mark.parametrize("size", [1, 5 * MIB])
def test_an_error_while_writing_names_the_file_and_is_not_taken_for_a_bad_frame(size: int) -> None:
    """G7: a full disk is a full disk, also below the compressor."""
    path = "/dev/full"
    if not Path(path).exists():
        pytest.skip(f"needs {path}, a disk that is full")
    with open(path, "wb", buffering=0) as sink:
        with pytest.raises(OSError) as copying:
            copy(Bytes(noise(size)), sink)
        with pytest.raises(OSError) as packing:
            pack(Bytes(noise(size)), sink, 3, size)
    seen = [(caught.value.errno, caught.value.filename) for caught in (copying, packing)]
    assert seen == [(errno.ENOSPC, path)] * 2


# Frames.


@settings(deadline=None)
@given(st.binary(), st.integers(1, 22), st.integers(1, 200))
@example(b"", 3, 1)
def test_what_is_packed_comes_out_again(block: bytes, level: int, times: int) -> None:
    """G6: at every level, with size and checksum of the bytes themselves on both sides."""
    data = block * times
    sink = Bytes()
    expected = (len(data), checksum(data))
    assert pack(Bytes(data), sink, level, len(data)) == expected
    assert unpacked(sink.getvalue()) == (data, expected)


@pytest.mark.parametrize("size", BOUNDARIES)
@pytest.mark.parametrize("of", ["noise", "zeros"])
def test_packing_has_no_trouble_at_the_edges_of_blocks(size: int, of: str) -> None:
    data = noise(size) if of == "noise" else bytes(size)
    assert unpack(Bytes(packed(data)), size) == (size, checksum(data))


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, 3 * MIB])
def test_no_more_is_unpacked_than_one_byte_too_many(size: int) -> None:
    """G6: a frame of some kB may hold terabytes: what tells that it is another is there after one byte more."""
    frame, sink = packed(b"x" * (size + 64 * MIB)), Bytes()
    assert unpack(Bytes(frame), size, sink)[0] == unpack(Bytes(frame), size)[0] == len(sink.getvalue()) == size + 1


def test_a_frame_that_needs_much_memory_is_refused() -> None:
    """docs/format.md: a window of 4 MiB is the largest; the header of a frame may ask for gigabytes."""
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    frame = packer.compress(b"x" * 10) + packer.flush()
    with pytest.raises(BadFrame, match="memory"):
        unpack(Bytes(frame), 10)


@pytest.mark.parametrize("size", [0, 1, 1000, MIB + 1])
def test_a_frame_is_one_that_the_zstd_program_reads_with_size_and_checksum(tmp_path: Path, size: int) -> None:
    """docs/format.md, restoring by hand: a set needs no safepoint for that."""
    data, path = noise(size), tmp_path / "file.zst"
    path.write_bytes(packed(data, level=9))
    zstd = program("zstd")
    assert subprocess.run([zstd, "-dc", str(path)], capture_output=True, check=True).stdout == data
    shown = subprocess.run([zstd, "-lv", str(path)], capture_output=True, text=True, check=True).stdout
    assert "XXH64" in shown and f"({size} B)" in shown, shown


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=2000), st.integers(0, 1 << 20))
@example(b"0123456789", 0)
@example(b"0123456789", 9)
@example(b"0123456789", 11)
@example(noise(MIB), MIB - 1)
@example(noise(MIB), MIB + 1)
@example(noise(MIB + 1), MIB)
def test_a_source_longer_or_shorter_than_announced_is_a_bad_frame(data: bytes, announced: int) -> None:
    """G6: it changes under our hands, so what was packed is nobody's file."""
    if announced == len(data):
        announced += 1
    with pytest.raises(BadFrame):
        packed(data, announced=announced)


@pytest.mark.parametrize("announced", [1, 1000, MIB])
def test_a_source_that_turned_out_empty_is_a_bad_frame(announced: int) -> None:
    """G6: as above; the compressor itself does not notice this one."""
    with pytest.raises(BadFrame):
        packed(b"", announced=announced)


def told(frame: bytes, data: bytes) -> bool:
    """Whether it is noticed that the frame is not that of the data."""
    try:
        out, done = unpacked(frame)
    except BadFrame:
        return True
    assert done == (len(out), checksum(out))
    return done != (len(data), checksum(data))


@pytest.mark.parametrize("size", [0, 1, 1000, 128 << 10, MIB + 1, 3 * MIB])
def test_a_frame_cut_short_never_gives_other_bytes_unnoticed(size: int) -> None:
    """G6: what is lost of the data shows in size and checksum; a record knows the stored size for the rest."""
    data = noise(size)
    frame = packed(data)
    for length in {*range(min(20, len(frame))), len(frame) // 2, *range(max(0, len(frame) - 20), len(frame))}:
        try:
            out, done = unpacked(frame[:length])
        except BadFrame:
            continue
        assert done == (len(out), checksum(out))
        assert out == data or done != (len(data), checksum(data))


@settings(deadline=None)
@given(st.binary(max_size=3000), st.data())
def test_a_flipped_bit_in_a_frame_never_gives_other_bytes_unnoticed(data: bytes, draw: st.DataObject) -> None:
    """G6: either it is a bad frame, or size or checksum differ, or the bit did not matter."""
    frame = bytearray(packed(data))
    frame[draw.draw(st.integers(0, len(frame) - 1), "byte")] ^= 1 << draw.draw(st.integers(0, 7), "bit")
    try:
        out, done = unpacked(bytes(frame))
    except BadFrame:
        return
    assert done == (len(out), checksum(out))
    assert out == data or done != (len(data), checksum(data))


@given(st.binary(max_size=200))
@example(b"")
@example(b"\x28\xb5\x2f\xfd")
@example(b"\x28\xb5\x2f\xfd" + bytes(60))
@example(b"\x50\x2a\x4d\x18\xff\xff\xff\xff")
def test_garbage_is_never_taken_for_a_frame(garbage: bytes) -> None:
    """G6: never another exception than `BadFrame`."""
    assert told(garbage, b"the data")


# The tar of small files.


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 64 << 10])
@pytest.mark.parametrize(
    "path", ["u.dat", "a/b/c.dat", "x" * 100, "x" * 101, "d/" * 60 + "u.dat", "é.dat", "sp ace", "bad-\udcff.dat"]
)
def test_a_tar_header_is_that_of_the_module_tarfile(path: str, size: int) -> None:
    info = tarfile.TarInfo(path)
    info.size, info.mode, info.mtime = size, 0o640, 1_700_000_000
    expected = info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    assert tar_header(path, size, 0o640, 1_700_000_000) == expected


def bundle_of(contents: dict[str, bytes], sink: Any, directory: Path, tick: Any = int) -> dict[str, int]:
    """Make a bundle; where each file begins."""
    offsets = {}
    bundle = Bundle(sink, tick)
    for name, data in contents.items():
        (directory / "one").write_bytes(data)
        assert Disk().read_into(bundle.room(name, len(data)), str(directory / "one"))[0] == len(data)
        offsets[name] = bundle.add(name, len(data), 0o100640, 10**18)
    bundle.close()
    return offsets


def check_bundle(path: Path, contents: dict[str, bytes], offsets: dict[str, int]) -> None:
    """As tarfile reads it, and by offset and size alone."""
    whole = path.read_bytes()
    assert len(whole) % 10240 == 0
    assert {name: whole[at : at + len(contents[name])] for name, at in offsets.items()} == contents
    with tarfile.open(path) as tar:
        assert {m.name: tar.extractfile(m).read() for m in tar} == contents  # type: ignore[union-attr]
        assert {(m.mode, m.mtime) for m in tar} == {(0o640, 10**9)}


# More than one buffer of them, of many sizes.
MANY = {f"run/f{k:04}.dat": random.Random(k).randbytes(k * 97 % (64 << 10)) for k in range(300)}


def test_a_bundle_is_a_tar_that_tarfile_reads_and_each_offset_is_right(tmp_path: Path) -> None:
    with open(tmp_path / "b.tar", "xb", buffering=0) as sink:
        offsets = bundle_of(MANY, sink, tmp_path)
    check_bundle(tmp_path / "b.tar", MANY, offsets)


def test_the_disk_is_told_of_each_piece_of_a_bundle_while_it_is_made(tmp_path: Path) -> None:
    done: list[int] = []
    with open(tmp_path / "b.tar", "xb", buffering=0) as sink:
        bundle_of(MANY, sink, tmp_path, done.append)
    assert len(done) == 5 and max(done) <= MIB
    assert sum(done) <= (tmp_path / "b.tar").stat().st_size <= sum(done) + 2 * 10240


@given(path=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), time=st.integers(-1, 2**36))
@example("bad-\udcff" * 30, 0)
def test_the_room_for_a_header_is_that_which_it_takes(path: str, time: int) -> None:
    sink = Bytes()
    bundle = Bundle(sink, int)
    for name, data in (("first", b"abc"), (path, b"content")):
        bundle.room(name, len(data))[:] = data
        offset = bundle.add(name, len(data), 0o644, time * 10**9)
    bundle.close()
    assert sink.getvalue()[offset:].startswith(b"content\0")


def test_reads_that_stop_half_way_fill_the_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network file system. That a file is longer than it should be is seen by who looks at its size."""
    real = os.readv
    monkeypatch.setattr(os, "readv", lambda descriptor, buffers: real(descriptor, [buffers[0][:100]]))
    (tmp_path / "one").write_bytes(data := bytes(range(250)))
    for room in (0, 99, 100, 101, 250, 251, 1000):
        buffer = memoryview(bytearray(room))
        count, info = Disk().read_into(buffer, str(tmp_path / "one"))
        assert (count, info.st_size, buffer[:count]) == (min(room, 250), 250, data[:room])


def test_an_error_while_a_small_file_is_read_names_it(tmp_path: Path) -> None:
    for path, code in ((tmp_path, errno.EISDIR), (tmp_path / "none", errno.ENOENT)):
        with pytest.raises(OSError) as error:
            Disk().read_into(memoryview(bytearray(10)), str(path))
        assert (error.value.filename, error.value.errno) == (str(path), code)


def test_a_write_that_stops_half_way_is_gone_on_with() -> None:
    class Stopping(Bytes):
        def write(self, data: Any) -> int:
            return super().write(bytes(data)[: max(1, len(data) // 3)])

    file = Stopping()
    write_all(file, b"0123456789" * 9)
    assert file.getvalue() == b"0123456789" * 9


PRIVATE = """
import os
from safepoint.disk import codec
with codec._block_buffers.one() as buffer:
    buffer[:4] = b"ours"
pid = os.fork()
with codec._block_buffers.one() as buffer:
    if not pid:
        buffer[:4] = b"else"
        os._exit(0)
    os.waitpid(pid, 0)
    assert buffer[:4] == b"ours", bytes(buffer[:4])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_buffers_of_its_own() -> None:
    """Both would fold what the other has read into their checksums."""
    subprocess.run([sys.executable, "-c", PRIVATE], check=True)
