"""A tune with a hum and a hiss, and the same tune after a filter: FFT blocks that overlap and are added.

    python filter.py --directory run                                 # writes before.wav and after.wav

The program makes the sound itself: the theme of the last movement of Beethoven's ninth symphony (1824) on strings that
are plucked, left and right, with the hum of the mains at 50 Hz and its harmonics, and noise. The filter is one of
2 TAPS + 1 coefficients, a windowed sinc that passes 200 Hz to 2400 Hz. Each note is a vertex, and so is each block of
each side. How blocks are added: A. V. Oppenheim, R. W. Schafer, Discrete-Time Signal Processing, section 8.7.3.
"""

import wave
from pathlib import Path
from typing import Any

import graph_example
import numpy as np
from graph_example import Add, begun

THEME = "E4 E4 F4 G4 G4 F4 E4 D4 C4 C4 D4 E4 E4. D4, D4- E4 E4 F4 G4 G4 F4 E4 D4 C4 C4 D4 E4 D4. C4, C4-"
TUNE = THEME.split()
LENGTHS = {".": 1.5, ",": 0.5, "-": 2.0}  # in beats; one without a mark is a beat long
BEAT = 0.4  # seconds
HERTZ = {"C4": 261.63, "D4": 293.66, "E4": 329.63, "F4": 349.23, "G4": 392.00}
LOW, HIGH, TAPS = 200.0, 2400.0, 500
SIDES = ("left", "right")


def pluck(note: str, rate: int) -> dict[str, np.ndarray]:
    """A string that rings for two beats longer than its note, heard on both sides: the higher, the further right."""
    begun()
    seconds = BEAT * (LENGTHS.get(note[2:], 1.0) + 2)
    time = np.arange(int(seconds * rate)) / rate
    sound = np.zeros_like(time)
    for harmonic in range(1, 9):
        decay = np.exp(-time * (1.5 + 0.8 * harmonic))
        sound += decay * np.sin(2 * np.pi * HERTZ[note[:2]] * harmonic * time) / harmonic**1.5
    right = (HERTZ[note[:2]] - 230) / 180
    return {"left": sound * (1 - right), "right": sound * right}


def mix(notes: list[np.ndarray], rate: int, block: int, side: str) -> dict[str, np.ndarray]:
    """All notes of one side in their time, with a hum and a hiss, cut into blocks of this length."""
    begun()
    begin, places = 0.0, []
    for note in TUNE:
        places.append(int(begin * rate))
        begin += BEAT * LENGTHS.get(note[2:], 1.0)
    length = -(-max(place + len(note) for place, note in zip(places, notes, strict=True)) // block) * block
    time = np.arange(length) / rate
    sound = 0.02 * np.random.default_rng(SIDES.index(side)).standard_normal(length)
    for harmonic in (1, 2, 3):
        sound += 0.15 / harmonic * np.sin(2 * np.pi * 50 * harmonic * time)
    for place, note in zip(places, notes, strict=True):
        sound[place : place + len(note)] += 0.4 * note
    return {f"block-{n}": part for n, part in enumerate(sound.reshape(-1, block))}


def coefficients(rate: int) -> np.ndarray:
    """Of the filter: what passes below HIGH less what passes below LOW."""
    n = np.arange(-TAPS, TAPS + 1)
    passes = [2 * edge / rate * np.sinc(2 * edge / rate * n) for edge in (LOW, HIGH)]
    return (passes[1] - passes[0]) * np.hamming(len(n))


def filtered(sound: np.ndarray, rate: int) -> np.ndarray:
    """A block after the filter, longer than before by the length of the filter less one."""
    begun()
    kernel = coefficients(rate)
    length = len(sound) + len(kernel) - 1
    size = 1 << (length - 1).bit_length()
    return np.fft.irfft(np.fft.rfft(sound, size) * np.fft.rfft(kernel, size), size)[:length]


def overlap(blocks: list[np.ndarray], block: int) -> np.ndarray:
    """The blocks of one side, added where they overlap; the delay of the filter is taken out."""
    begun()
    sound = np.zeros(block * len(blocks) + 2 * TAPS)
    for n, part in enumerate(blocks):
        sound[n * block : n * block + len(part)] += part
    return sound[TAPS:-TAPS]


def both(left: list[np.ndarray], right: list[np.ndarray]) -> np.ndarray:
    """Left and right in turn, as a wav has them: 16 bits."""
    begun()
    sound = np.stack([np.concatenate(left), np.concatenate(right)], axis=1)
    return np.round(sound / np.abs(sound).max() * 32000).astype("<i2")


def blocks_of(rate: int, block: int) -> int:
    """How many blocks `mix` makes."""
    begin, end = 0.0, 0
    for note in TUNE:
        beats = LENGTHS.get(note[2:], 1.0)
        end = max(end, int(begin * rate) + int(BEAT * (beats + 2) * rate))
        begin += BEAT * beats
    return -(-end // block)


def build(add: Add, rate: int, block: int, before: bool) -> Any:
    """The sound before or after the filter. The first is a part of the second, and is not made again."""
    notes = [add(f"note-{n}", pluck, note=note, rate=rate) for n, note in enumerate(TUNE)]
    count, sides = blocks_of(rate, block), []
    for side in SIDES:
        sound = add(f"mix-{side}", mix, notes=[n[side] for n in notes], rate=rate, block=block, side=side)
        parts = [sound[f"block-{n}"] for n in range(count)]
        if not before:
            parts = [add(f"filtered-{side}-{n}", filtered, sound=p, rate=rate) for n, p in enumerate(parts)]
            parts = [add(f"overlap-{side}", overlap, blocks=parts, block=block)]
        sides.append(parts)
    return add("before" if before else "after", both, left=sides[0], right=sides[1])


def write(path: Path, sound: np.ndarray, rate: int) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(sound.tobytes())


def heard(sound: np.ndarray, rate: int, low: float, high: float) -> float:
    """The part of the power that lies between two frequencies."""
    power = np.abs(np.fft.rfft(sound[:, 0].astype(float))) ** 2
    hertz = np.fft.rfftfreq(len(sound), 1 / rate)
    return float(power[(hertz > low) & (hertz < high)].sum() / power.sum())


def main() -> None:
    parser = graph_example.parser("A tune with a hum and a hiss, and the same after a filter.")
    parser.add_argument("--rate", type=int, default=16000, help="samples a second (default: 16000)")
    parser.add_argument("--block", type=int, default=8192, help="samples in a block (default: 8192)")
    options = parser.parse_args()
    with graph_example.engine(options) as on:
        for before in (True, False):
            build_it = lambda add, before=before: build(add, options.rate, options.block, before)  # noqa: E731
            sound = graph_example.evaluate("filter", build_it, options, on)
            if graph_example.writes(options, on):
                name = "before.wav" if before else "after.wav"
                write(graph_example.result(options, name), sound, options.rate)
                hum = heard(sound, options.rate, 0, 160)
                print(f"{name}: {len(sound) / options.rate:.1f} s, {hum:.2%} of the power is the hum")


if __name__ == "__main__":
    main()
