"""A perceptron of three layers learns to read digits: layers times batches are vertices of a graph.

    python perceptron.py --steps 20 --directory run                  # graph_example.py tells the rest

The digits are those of scikit-learn: 1797 pictures of 8 x 8 pixels, from E. Alpaydin, C. Kaynak (1998), Optical
Recognition of Handwritten Digits, UCI Machine Learning Repository. In a step each layer takes each batch forward and
back, with the weights of the step before; then each layer adds the gradients of all batches, in their order, and moves
by the rule of D. P. Kingma, J. Ba (2015), Adam: a method for stochastic optimization. So the result depends neither on
the engine nor on how many work. The result is `perceptron.npy`, all weights.
"""

from typing import Any

import graph_example
import numpy as np
from graph_example import Add, begun

SIZES = (64, 48, 32, 10)  # pixels, two hidden layers, digits
RATE, BETA1, BETA2 = 0.03, 0.9, 0.999
TEST = 297  # pictures that are not learned


def digits(batches: int) -> dict[str, np.ndarray]:
    """The pictures to learn in batches, and those to test with; with the digits that they show."""
    begun()
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = images / 16.0
    order = np.random.default_rng(1).permutation(len(images))
    parts = [("test", order[:TEST])]
    parts += [(str(n), part) for n, part in enumerate(np.array_split(order[TEST:], batches))]
    return {f"{what}-{name}": of[part] for name, part in parts for what, of in (("images", images), ("labels", labels))}


def first(layer: int) -> dict[str, np.ndarray]:
    """The weights at the beginning, the last row for the bias; with both moments of Adam."""
    begun()
    shape = SIZES[layer] + 1, SIZES[layer + 1]
    weights = np.random.default_rng([2, layer]).standard_normal(shape) / np.sqrt(SIZES[layer])
    return {"weights": weights, "first": np.zeros(shape), "second": np.zeros(shape)}


def forward(values: np.ndarray, weights: np.ndarray, last: bool) -> np.ndarray:
    """A batch through one layer: tanh; the last layer gives the chance of each digit."""
    begun()
    values = values @ weights[:-1] + weights[-1]
    if not last:
        return np.tanh(values)
    chance = np.exp(values - values.max(axis=1, keepdims=True))
    return chance / chance.sum(axis=1, keepdims=True)


def wrong(chance: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The derivative of the cross entropy by what came into the last layer."""
    begun()
    return chance - np.eye(SIZES[-1])[labels]


def backward(error: np.ndarray, values: np.ndarray, weights: np.ndarray, hidden: bool) -> dict[str, np.ndarray]:
    """A batch back through one layer: the gradient of its weights, and the error of the layer before."""
    begun()
    gradient = np.vstack([values.T @ error, error.sum(axis=0)])
    return {"gradient": gradient, "error": error @ weights[:-1].T * (1 - values**2) if hidden else np.zeros(0)}


def learned(
    weights: np.ndarray, first: np.ndarray, second: np.ndarray, gradients: list[np.ndarray], pictures: int, step: int
) -> dict[str, np.ndarray]:
    """The weights after a step of Adam with the gradients of all batches."""
    begun()
    gradient = np.zeros_like(weights)
    for part in gradients:  # in the order of the batches, whichever came first
        gradient += part / pictures
    first = BETA1 * first + (1 - BETA1) * gradient
    second = BETA2 * second + (1 - BETA2) * gradient**2
    move = first / (1 - BETA1 ** (step + 1)) / (np.sqrt(second / (1 - BETA2 ** (step + 1))) + 1e-8)
    return {"weights": weights - RATE * move, "first": first, "second": second}


def judged(layers: list[np.ndarray], images: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """All weights in one array, and how many digits of the test are read rightly."""
    begun()
    values = images
    for n, weights in enumerate(layers):
        values = values @ weights[:-1] + weights[-1]
        values = np.tanh(values) if n < len(layers) - 1 else values
    right = int((values.argmax(axis=1) == labels).sum())
    return {"weights": np.concatenate([weights.ravel() for weights in layers]), "right": right, "of": len(labels)}


def build(add: Add, steps: int, batches: int) -> Any:
    data = add("digits", digits, batches=batches)
    layers = [add(f"first-{layer}", first, layer=layer) for layer in range(len(SIZES) - 1)]
    top = len(layers) - 1
    for step in range(steps):
        gradients: list[list[Any]] = [[] for _ in layers]
        for batch in range(batches):
            at, values = f"{step}-{batch}", [data[f"images-{batch}"]]
            for n, layer in enumerate(layers):
                values.append(
                    add(f"forward-{at}-{n}", forward, values=values[n], weights=layer["weights"], last=n == top)
                )
            error = add(f"wrong-{at}", wrong, chance=values[-1], labels=data[f"labels-{batch}"])
            for n in range(top, -1, -1):
                weights = layers[n]["weights"]
                back = add(f"backward-{at}-{n}", backward, error=error, values=values[n], weights=weights, hidden=n > 0)
                gradients[n].append(back["gradient"])
                error = back["error"]
        layers = [
            add(
                f"learned-{step}-{n}", learned, gradients=gradients[n], pictures=1797 - TEST, step=step,
                **{name: layer[name] for name in ("weights", "first", "second")},
            )
            for n, layer in enumerate(layers)
        ]  # fmt: skip
    weights = [layer["weights"] for layer in layers]
    return add("judged", judged, layers=weights, images=data["images-test"], labels=data["labels-test"])


def main() -> None:
    parser = graph_example.parser("A perceptron learns to read digits.")
    parser.add_argument("--steps", type=int, default=20, help="through all pictures (default: 20)")
    parser.add_argument("--batches", type=int, default=4, help="into which the pictures are divided (default: 4)")
    options = parser.parse_args()
    with graph_example.engine(options) as on:
        build_it = lambda add: build(add, options.steps, options.batches)  # noqa: E731
        found = graph_example.evaluate("perceptron", build_it, options, on)
        if graph_example.writes(options, on):
            np.save(graph_example.result(options, "perceptron.npy"), found["weights"])
            print(f"{found['right']} of {found['of']} digits are read rightly after {options.steps} steps")


if __name__ == "__main__":
    main()
