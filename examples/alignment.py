"""A multiple sequence alignment of eight globins: all pairs, a guide tree, and along the tree to one alignment.

    python alignment.py --directory run                              # writes alignment.fasta

Each pair is aligned for its distance; the pairs give a guide tree (UPGMA); along the tree two alignments at a time are
made one, as in D.-F. Feng, R. F. Doolittle (1987), Progressive sequence alignment as a prerequisite to correct
phylogenetic trees, J. Mol. Evol. 25, 351-360. Gaps are affine, by O. Gotoh (1982), An improved algorithm for matching
biological sequences, J. Mol. Biol. 162, 705-708. The tree is a result, and the second half of the graph hangs on it: so
the graph is run, grows, and is run again; what had finished is not run again.
"""

from itertools import combinations
from typing import Any

import graph_example
import numpy as np
from graph_example import Add, begun

# From UniProtKB, with the accession numbers.
FASTA = """\
>HBA_HUMAN P69905
MVLSPADKTNVKAAWGKVGAHAGEYGAEALERMFLSFPTTKTYFPHFDLSHGSAQVKGHGKKVADALTNAVAHVDDMPNALSALSDLHAHKLRVDPVNFKLLSHCLLVTL
AAHLPAEFTPAVHASLDKFLASVSTVLTSKYR
>HBA_HORSE P01958
MVLSAADKTNVKAAWSKVGGHAGEYGAEALERMFLGFPTTKTYFPHFDLSHGSAQVKAHGKKVGDALTLAVGHLDDLPGALSNLSDLHAHKLRVDPVNFKLLSHCLLSTL
AVHLPNDFTPAVHASLDKFLSSVSTVLTSKYR
>HBB_HUMAN P68871
MVHLTPEEKSAVTALWGKVNVDEVGGEALGRLLVVYPWTQRFFESFGDLSTPDAVMGNPKVKAHGKKVLGAFSDGLAHLDNLKGTFATLSELHCDKLHVDPENFRLLGNV
LVCVLAHHFGKEFTPPVQAAYQKVVAGVANALAHKYH
>HBB_HORSE P02062
VQLSGEEKAAVLALWDKVNEEEVGGEALGRLLVVYPWTQRFFDSFGDLSNPGAVMGNPKVKAHGKKVLHSFGEGVHHLDNLKGTFAALSELHCDKLHVDPENFRLLGNVL
VVVLARHFGKDFTPELQASYQKVVAGVANALAHKYH
>MYG_PHYMC P02185
MVLSEGEWQLVLHVWAKVEADVAGHGQDILIRLFKSHPETLEKFDRFKHLKTEAEMKASEDLKKHGVTVLTALGAILKKKGHHEAELKPLAQSHATKHKIPIKYLEFISE
AIIHVLHSRHPGDFGADAQGAMNKALELFRKDIAAKYKELGYQG
>GLB5_PETMA P02208
MPIVDTGSVAPLSAAEKTKIRSAWAPVYSTYETSGVDILVKFFTSTPAAQEFFPKFKGLTTADQLKKSADVRWHAERIINAVNDAVASMDDTEKMSMKLRDLSGKHAKSF
QVDPQYFKVLAAVIADTVAAGDAGFEKLMSMICILLRSAY
>LGB2_LUPLU P02240
MGALTESQAALVKSSWEEFNANIPKHTHRFFILVLEIAPAAKDLFSFLKGTSEVPQNNPELQAHAGKVFKLVYEAAIQLQVTGVVVTDATLKNLGSVHVSKGVADAHFPV
VKEAILKTIKEVVGAKWSEELNSAWTIAYDELAIVIKKEMNDAA
>LGBA_SOYBN P02238
MVAFTEKQDALVSSSFEAFKANIPQYSVVFYTSILEKAPAAKDLFSFLANGVDPTNPKLTGHAEKLFALVRDSAGQLKASGTVVADAALGSVHAQKAVTDPQFVVVKEAL
LKTIKAAVGDKWSDELSRAWEVAYDELAAAIKKA
"""
GLOBINS = {name: "".join(lines) for name, *lines in (part.split("\n") for part in FASTA.split(">")[1:])}

LETTERS = "ARNDCQEGHILKMFPSTWYV"
# BLOSUM62, below its diagonal: S. Henikoff, J. G. Henikoff (1992), Proc. Natl. Acad. Sci. USA 89, 10915-10919.
BLOSUM62 = """\
4
-1 5
-2 0 6
-2 -2 1 6
0 -3 -3 -3 9
-1 1 0 0 -3 5
-1 0 0 2 -4 2 5
0 -2 0 -1 -3 -2 -2 6
-2 0 1 -1 -3 0 0 -2 8
-1 -3 -3 -3 -1 -3 -3 -4 -3 4
-1 -2 -3 -4 -1 -2 -3 -4 -3 2 4
-1 2 0 -1 -3 1 1 -2 -1 -3 -2 5
-1 -1 -2 -3 -1 0 -2 -3 -2 1 2 -1 5
-2 -3 -3 -3 -2 -3 -3 -3 -1 0 0 -3 0 6
-1 -2 -2 -1 -3 -1 -1 -2 -2 -3 -3 -1 -2 -4 7
1 -1 1 0 -1 0 0 0 -1 -2 -2 0 -1 -2 -1 4
0 -1 0 -1 -1 -1 -1 -2 -2 -1 -1 -1 -1 -2 -1 1 5
-3 -3 -4 -4 -2 -2 -3 -2 -2 -3 -2 -3 -1 1 -4 -3 -2 11
-2 -2 -2 -3 -2 -1 -2 -3 2 -1 -1 -2 -1 3 -3 -2 -2 2 7
0 -3 -3 -3 -1 -2 -2 -3 -3 3 1 -2 1 -1 -2 -2 0 -3 -1 4
"""
OPEN, EXTEND = 11.0, 1.0  # what a gap costs: its first letter, and each further one


def scores() -> np.ndarray:
    """BLOSUM62 as a symmetric matrix, in the order of LETTERS."""
    matrix = np.zeros((20, 20))
    for i, row in enumerate(BLOSUM62.splitlines()):
        matrix[i, : i + 1] = matrix[: i + 1, i] = np.array(row.split(), float)
    return matrix


def profile(rows: list[str]) -> np.ndarray:
    """How much of each letter each column of an alignment has; gaps have none."""
    codes = np.array([[LETTERS.find(letter) for letter in row] for row in rows])
    return np.stack([(codes == n).mean(axis=0) for n in range(20)], axis=1)


def path(left: list[str], right: list[str]) -> tuple[float, list[int]]:
    """The best score of two alignments, and by which moves: 0 a column of both, 1 of the left alone, 2 of the right."""
    match = profile(left) @ scores() @ profile(right).T
    rows, columns = match.shape
    best = np.full((3, rows + 1, columns + 1), -np.inf)
    best[0, 0, 0] = 0
    best[1, 1:, 0] = -OPEN - EXTEND * np.arange(rows)
    best[2, 0, 1:] = -OPEN - EXTEND * np.arange(columns)
    for i in range(1, rows + 1):
        best[1, i] = np.maximum(best[1, i], np.maximum(best[0, i - 1] - OPEN, best[1, i - 1] - EXTEND))
        best[0, i, 1:] = match[i - 1] + best[:, i - 1, :-1].max(axis=0)
        for j in range(1, columns + 1):
            best[2, i, j] = max(best[0, i, j - 1] - OPEN, best[1, i, j - 1] - OPEN, best[2, i, j - 1] - EXTEND)
    i, j, moves = rows, columns, []
    state = int(best[:, i, j].argmax())
    score = float(best[state, i, j])
    while i or j:
        moves.append(state)
        i, j = i - (state != 2), j - (state != 1)
        if state == 0:
            state = int(best[:, i, j].argmax())
        else:
            costs = [EXTEND if state == other else OPEN for other in range(3)]
            if state == 1:
                costs[2] = np.inf
            state = int((best[:, i, j] - costs).argmax())
    return score, moves[::-1]


def spread(rows: list[str], moves: list[int], other: int) -> list[str]:
    """An alignment with gaps where the moves take a column of the other alone."""
    found = []
    for row in rows:
        letters = iter(row)
        found.append("".join("-" if move == other else next(letters) for move in moves))
    return found


def merged(left: list[str], right: list[str]) -> list[str]:
    """Two alignments as one."""
    begun()
    moves = path(left, right)[1]
    return spread(left, moves, 2) + spread(right, moves, 1)


def distance(left: str, right: str) -> float:
    """The part of the letters in which two sequences differ where both have one."""
    begun()
    moves = path([left], [right])[1]
    pairs = list(zip(spread([left], moves, 2)[0], spread([right], moves, 1)[0], strict=True))
    both = [a == b for a, b in pairs if "-" not in (a, b)]
    return 1 - sum(both) / len(both)


def tree(distances: list[float], count: int) -> list[tuple[int, int]]:
    """Which two clusters become one, in turn: the nearest, by the mean of all their pairs. New ones count on."""
    begun()
    far = dict(zip(combinations(range(count), 2), distances, strict=True))
    members = {n: [n] for n in range(count)}
    joins = []
    while len(members) > 1:
        mean = {
            (a, b): sum(far[min(i, j), max(i, j)] for i in members[a] for j in members[b])
            / (len(members[a]) * len(members[b]))
            for a, b in combinations(sorted(members), 2)
        }
        a, b = min(mean, key=lambda pair: (mean[pair], pair))
        joins.append((a, b))
        members[count + len(joins) - 1] = members.pop(a) + members.pop(b)
    return joins


def order(joins: list[tuple[int, int]], count: int) -> list[int]:
    """In which order the sequences come out of the merges."""
    members = {n: [n] for n in range(count)}
    for n, (a, b) in enumerate(joins):
        members[count + n] = members.pop(a) + members.pop(b)
    return members[count + len(joins) - 1]


def pairs(add: Add, sequences: list[str]) -> Any:
    distances = [
        add(f"distance-{i}-{j}", distance, left=sequences[i], right=sequences[j])
        for i, j in combinations(range(len(sequences)), 2)
    ]
    return add("tree", tree, distances=distances, count=len(sequences))


def along(add: Add, sequences: list[str], joins: list[tuple[int, int]]) -> Any:
    clusters: list[Any] = [[sequence] for sequence in sequences]
    for n, (a, b) in enumerate(joins):
        clusters.append(add(f"merged-{n}", merged, weight=2, left=clusters[a], right=clusters[b]))
    return clusters[-1]


def main() -> None:
    parser = graph_example.parser("A multiple sequence alignment of globins.")
    parser.add_argument("--sequences", type=int, default=len(GLOBINS), help=f"how many of the {len(GLOBINS)}")
    options = parser.parse_args()
    names = list(GLOBINS)[: options.sequences]
    sequences = [GLOBINS[name] for name in names]
    with graph_example.engine(options) as on:
        joins = graph_example.evaluate("alignment", lambda add: pairs(add, sequences), options, on)
        rows = graph_example.evaluate("alignment", lambda add: along(add, sequences, joins), options, on)
        if graph_example.writes(options, on):
            text = "".join(f">{names[n]}\n{row}\n" for n, row in zip(order(joins, len(names)), rows, strict=True))
            graph_example.result(options, "alignment.fasta").write_text(text)
            print(text, end="")


if __name__ == "__main__":
    main()
