"""The Cholesky factor of a distributed array, block by block: A = L L^T, for a symmetric positive definite A.

    python blocks.py --blocks 6 --width 200 --directory run           # graph_example.py tells the rest

Each block of the lower triangle is an array of its own, and each step of the factorization with one block is a vertex,
as in the tiled algorithm of A. Buttari, J. Langou, J. Kurzak and J. Dongarra (2009), A class of parallel tiled linear
algebra algorithms for multicore architectures, Parallel Computing 35(1), 38-53. The result is `cholesky.npy`, L as a
whole. The logarithm of the determinant of A and the error |A - L L^T| / |A| are printed.
"""

import os
from typing import Any

import graph_example
import numpy as np
from graph_example import Add, begun


def block(row: int, column: int, blocks: int, width: int) -> np.ndarray:
    """A block of A: numbers at random below the diagonal, and a diagonal that dominates."""
    begun()
    values = np.random.default_rng([row, column]).uniform(-1, 1, (width, width))
    return values + values.T + 2 * blocks * width * np.eye(width) if row == column else values


def factor(a: np.ndarray) -> dict[str, np.ndarray]:
    """A block of the diagonal: its factor, and the inverse of that, with which the blocks below are made."""
    begun()
    lower = np.linalg.cholesky(a)
    return {"lower": lower, "inverse": np.linalg.inv(lower)}


def below(a: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """A block below the diagonal: L_ik = A_ik L_kk^-T."""
    begun()
    return a @ inverse.T


def less(a: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """What a column that is finished takes from a block to its right."""
    begun()
    return a - left @ right.T


def together(rows: list[list[np.ndarray]]) -> np.ndarray:
    """L as a whole, with zeros above the diagonal."""
    begun()
    width = len(rows[0][0])
    whole = np.zeros((len(rows) * width, len(rows) * width))
    for i, row in enumerate(rows):
        for j, values in enumerate(row):
            whole[i * width : (i + 1) * width, j * width : (j + 1) * width] = values
    return whole


def build(add: Add, blocks: int, width: int) -> Any:
    a = {
        (i, j): add(f"a-{i}-{j}", block, row=i, column=j, blocks=blocks, width=width)
        for i in range(blocks)
        for j in range(i + 1)
    }
    lower = {}
    for k in range(blocks):
        made = add(f"factor-{k}", factor, weight=2, a=a[k, k])
        lower[k, k] = made["lower"]
        for i in range(k + 1, blocks):
            lower[i, k] = add(f"below-{i}-{k}", below, a=a[i, k], inverse=made["inverse"])
        for i in range(k + 1, blocks):
            for j in range(k + 1, i + 1):
                a[i, j] = add(f"less-{i}-{j}-{k}", less, a=a[i, j], left=lower[i, k], right=lower[j, k])
    return add("together", together, rows=[[lower[i, j] for j in range(i + 1)] for i in range(blocks)])


def whole(blocks: int, width: int) -> np.ndarray:
    """A itself, for the error."""
    a = np.zeros((blocks * width, blocks * width))
    for i in range(blocks):
        for j in range(i + 1):
            values = block(i, j, blocks, width)
            a[i * width : (i + 1) * width, j * width : (j + 1) * width] = values
            a[j * width : (j + 1) * width, i * width : (i + 1) * width] = values.T
    return a


def main() -> None:
    parser = graph_example.parser("The Cholesky factor of a distributed array.")
    parser.add_argument("--blocks", type=int, default=6, help="along an edge of the array (default: 6)")
    parser.add_argument("--width", type=int, default=200, help="of a block, along its edge (default: 200)")
    options = parser.parse_args()
    with graph_example.engine(options) as on:
        lower = graph_example.evaluate("blocks", lambda add: build(add, options.blocks, options.width), options, on)
        if graph_example.writes(options, on):
            np.save(graph_example.result(options, "cholesky.npy"), lower)
            print(f"log det A = {2 * np.log(np.diag(lower)).sum():.6f}")
            os.environ.pop("GRAPH_EXAMPLE_NOTES", None)  # what follows is no vertex
            a = whole(options.blocks, options.width)
            print(f"|A - L L^T| / |A| = {np.linalg.norm(a - lower @ lower.T) / np.linalg.norm(a):.1e}")


if __name__ == "__main__":
    main()
