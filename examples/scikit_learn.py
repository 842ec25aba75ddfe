"""scikit-learn's linear model in a federation, with NumPy only: no torch, no simulator.

A rule needs nothing but vectors. Each client's model, coefficients and intercepts, becomes one flat
vector; the rule makes the next one out of K of them. Here the loop is written out, so that you see
all there is: send, train, aggregate.
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

import fedhaw

CLASSES, FEATURES, CLIENTS, ROUNDS = 10, 64, 5, 20


def to_vector(model: SGDClassifier) -> NDArray[np.float64]:
    """(650,) the model's numbers, coefficients first."""
    return np.concatenate([model.coef_.ravel(), model.intercept_])


def into_model(model: SGDClassifier, vector: NDArray[np.float64]) -> None:
    """The other way round."""
    model.coef_ = vector[: CLASSES * FEATURES].reshape(CLASSES, FEATURES).copy()
    model.intercept_ = vector[CLASSES * FEATURES :].copy()


def main() -> None:
    bunch = load_digits()
    x, y = bunch.data / 16.0, bunch.target
    test = np.arange(len(y)) % 5 == 0
    parts = [np.flatnonzero(~test & (y // 2 == k)) for k in range(CLIENTS)]  # two digits each

    model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.01, random_state=0)
    model.partial_fit(x[:CLASSES], y[:CLASSES], classes=np.arange(CLASSES))  # only to have shapes
    w = np.zeros_like(to_vector(model))

    rule = fedhaw.FedHAW(eta=0.01, eta_gamma=1e-4, eta_lambda=1e-3)
    state = rule.init()
    for _ in range(ROUNDS):
        W = np.empty((CLIENTS, len(w)))
        for k, part in enumerate(parts):
            into_model(model, w)
            model.partial_fit(x[part], y[part])
            W[k] = to_vector(model)
        w, state = rule.aggregate(state, fedhaw.Round(w, W, [len(part) for part in parts]))
    into_model(model, w)
    print(f"gamma {state.gamma:.4f}, weights {np.round(state.weights, 3)}")
    print(f"accuracy {model.score(x[test], y[test]):.3f}")


if __name__ == "__main__":
    main()
