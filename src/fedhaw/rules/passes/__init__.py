"""The few passes over a K x P matrix of client models that every rule is built of.

Reading the matrix is the cost of a rule; everything else is arithmetic on K numbers. So each
function here reads it once, a block of columns at a time, does all it needs while the block is in
cache, and returns float64 coefficients. Nothing ever copies the matrix.
"""

from fedhaw.rules.passes.arrays import astype, like, native, to_numpy, to_vector
from fedhaw.rules.passes.average import (
    combine,
    combine_layers,
    combine_updates,
    inner,
    softmax,
    summing_to_one,
)
from fedhaw.rules.passes.directions import Direction, direction
from fedhaw.rules.passes.distances import (
    angular_distances,
    gram,
    spread,
    turns,
    update_products,
    update_squares,
)
from fedhaw.rules.passes.finite import is_finite, non_finite_rows
from fedhaw.rules.passes.grams import Angles, mean_and_angles
from fedhaw.rules.passes.vectors import blend, dot, products, scale_layers, stride, subtract

__all__ = [
    "Angles",
    "Direction",
    "angular_distances",
    "astype",
    "blend",
    "combine",
    "combine_layers",
    "combine_updates",
    "direction",
    "dot",
    "gram",
    "inner",
    "is_finite",
    "like",
    "mean_and_angles",
    "native",
    "non_finite_rows",
    "products",
    "scale_layers",
    "softmax",
    "spread",
    "stride",
    "subtract",
    "summing_to_one",
    "to_numpy",
    "to_vector",
    "turns",
    "update_products",
    "update_squares",
]
