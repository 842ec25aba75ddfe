"""The passes over the client matrix, against float64 arithmetic written out in full."""

import multiprocessing
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite import BACKENDS

from fedhaw.rules import blocks, passes, threads
from fedhaw.rules.passes import grams, unlocked


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks even for small models, so that their seams are tested."""
    monkeypatch.setattr(blocks, "_READ_BLOCK", 3000)
    monkeypatch.setattr(blocks, "_WRITTEN_BLOCK", 2000)
    monkeypatch.setattr(blocks, "_VECTOR_BLOCK", 1500)
    monkeypatch.setattr(blocks, "_ONE_CORE", 0)


def models(K: int, P: int, move: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    w = random.standard_normal(P)
    return w, w + move * random.standard_normal((K, P)), w + move * random.standard_normal((K, P))


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=25, deadline=None)
@given(
    K=st.integers(1, 12),
    P=st.integers(1, 3000),
    move=st.sampled_from([1.0, 1e-2, 1e-5]),
    seed=st.integers(0, 99),
)
def test_products_are_exact_however_small_the_update(
    backend: str, K: int, P: int, move: float, seed: int
) -> None:
    to_backend = BACKENDS[backend]
    w, W, U = (a.astype(np.float32) for a in models(K, P, move, seed))
    s = np.random.default_rng(seed).dirichlet(np.ones(K))
    w64, W64, U64 = (a.astype(np.float64) for a in (w, W, U))
    d = w64 - s @ W64
    direction = passes.direction(to_backend(w), to_backend(W), s, to_backend(U), tolerance=0.0)
    # Relative to what Cauchy-Schwarz allows; the products themselves may be near 0.
    size = np.linalg.norm(d) * np.linalg.norm(w64)
    assert abs(direction.dot_w - d @ w64) <= 3e-6 * size
    within = 3e-6 * np.linalg.norm(d) * np.linalg.norm(U64)
    assert np.all(np.abs(direction.dot_u - U64 @ d) <= within)
    assert direction.w_length == pytest.approx(np.linalg.norm(w64), rel=1e-6)
    assert direction.average_length == pytest.approx(np.linalg.norm(s @ W64), rel=1e-5, abs=1e-6)

    g = W64 - w64
    mean, length = s @ g, np.linalg.norm(g, axis=1)
    scales = np.linspace(0, 1, K)
    along, beside = passes.update_products(to_backend(w), to_backend(W), s, scales)
    assert np.all(np.abs(along - g @ mean) <= 1e-5 * length * length.max())
    expected = np.linalg.norm(g - scales[:, np.newaxis] * mean, axis=1) ** 2
    assert np.all(np.abs(beside - expected) <= 1e-5 * length.max() ** 2)

    layers = [slice(0, P // 2), slice(P // 2, P)] if P > 1 else [slice(0, 1)]
    squares, mean_squares, distances, average = passes.spread(
        to_backend(w), to_backend(W), s, layers
    )
    np.testing.assert_allclose(np.asarray(average), s @ W64, rtol=1e-5, atol=1e-6)
    for index, layer in enumerate(layers):
        np.testing.assert_allclose(squares[index], np.sum(w64[layer] ** 2), rtol=1e-5)
        part = g[:, layer]
        # A difference of models is as exact as the models, which is as exact as the result can be.
        rounding = 2e-7 * np.linalg.norm(W64[:, layer], axis=1).max()
        expected = np.linalg.norm(s @ part)
        assert abs(np.sqrt(mean_squares[index]) - expected) <= 1e-5 * expected + rounding
        expected = np.linalg.norm(part - part.mean(axis=0), axis=1)
        assert np.all(abs(np.sqrt(distances[index]) - expected) <= 1e-5 * expected + rounding)


@pytest.mark.parametrize("backend", BACKENDS)
def test_distances_are_exact_where_clients_all_but_agree(backend: str) -> None:
    """As differences of squares they would be mostly rounding."""
    to_backend = BACKENDS[backend]
    w, common, noise = models(5, 4000, 1.0, 3)
    W = w + common[:1] + 1e-3 * noise
    w, W = w.astype(np.float32), W.astype(np.float32)
    *_, distances, _ = passes.spread(
        to_backend(w), to_backend(W), np.full(5, 0.2), [slice(0, 4000)]
    )
    g = W.astype(np.float64) - w
    np.testing.assert_allclose(distances[0], np.sum((g - g.mean(axis=0)) ** 2, axis=1), rtol=1e-3)


def test_the_thread_count_does_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    w, W, _ = (a.astype(np.float32) for a in models(7, 5000, 0.1, 0))
    results: list[Any] = []
    for cores in (1, 2, 5):
        monkeypatch.setattr("fedhaw.rules.blocks.available_cores", lambda cores=cores: cores)
        parts = passes.spread(w, W, np.full(7, 1 / 7), [slice(0, 5000)])
        results.append(b"".join(part.tobytes() for part in parts))
    assert len(set(results)) == 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("P", [1, 1000, 131_073])
def test_vectors_are_measured_subtracted_and_blended(backend: str, P: int) -> None:
    to_backend = BACKENDS[backend]
    random = np.random.default_rng(P)
    x, y = (random.standard_normal(P).astype(np.float32) for _ in range(2))
    x64, y64 = x.astype(np.float64), y.astype(np.float64)
    a, b = to_backend(x.copy()), to_backend(y)
    expected = np.array([[x64 @ x64, x64 @ y64], [x64 @ y64, y64 @ y64]])
    within = 1e-6 * P
    np.testing.assert_allclose(passes.products(a, b), expected, atol=within)
    twice = expected[np.ix_([1, 0, 1], [1, 0, 1])]
    np.testing.assert_allclose(passes.products(b, a, b), twice, atol=within)
    mixed = np.asarray(passes.blend(0.3, a, -2.0, b))
    np.testing.assert_allclose(mixed, 0.3 * x64 - 2 * y64, rtol=1e-5, atol=1e-6)
    passes.subtract(a, b)
    np.testing.assert_array_equal(np.asarray(a), x - y)
    np.testing.assert_array_equal(np.asarray(b), y)


def test_softmax_takes_logits_of_any_size() -> None:
    np.testing.assert_array_equal(passes.softmax(np.array([1e300, 1e300])), [0.5, 0.5])
    np.testing.assert_array_equal(passes.softmax(np.array([-1e300, 0.0])), [0, 1])
    np.testing.assert_array_equal(passes.softmax(np.array([-np.inf, 3.0])), [0, 1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_finite(backend: str) -> None:
    to_backend = BACKENDS[backend]
    assert passes.is_finite(to_backend(np.full(5, 3e38, np.float32))), "huge but finite"
    for poison in (np.nan, np.inf, -np.inf):
        assert not passes.is_finite(to_backend(np.array([1, poison], np.float32)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_rounding_stays_within_the_tolerance_asked_for(backend: str) -> None:
    """Whichever way d is formed; a loose tolerance takes the short way, a tight one the other."""
    to_backend = BACKENDS[backend]
    for seed in range(10):
        w, W, U = (a.astype(np.float32) for a in models(9, 20_000, 1e-3, seed))
        s = np.random.default_rng(seed).dirichlet(np.ones(9))
        d = w.astype(np.float64) - s @ W.astype(np.float64)
        for tolerance in (1e-4, 1e-6):
            ours = passes.direction(to_backend(w), to_backend(W), s, to_backend(U), tolerance)
            allowed = 4 * tolerance + 1e-6 * np.linalg.norm(d) * np.linalg.norm(w)
            assert abs(ours.dot_w - d @ w) < allowed
            assert np.all(np.abs(ours.dot_u - U.astype(np.float64) @ d) < allowed)


def test_a_forked_child_has_threads_of_its_own() -> None:
    w, W, _ = (a.astype(np.float32) for a in models(4, 5000, 0.1, 0))
    passes.update_products(w, W, np.full(4, 0.25))
    context = multiprocessing.get_context("fork")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks
        child = context.Process(target=passes.update_products, args=(w, W, np.full(4, 0.25)))
        child.start()
    child.join(timeout=30)
    alive = child.is_alive()
    child.kill()
    assert not alive
    assert child.exitcode == 0


def test_a_weight_of_0_stays_0_when_weights_are_rounded() -> None:
    """What rounding leaves over must not reach a client that has no say."""
    s = np.array([1 / 3, 2 / 3, 0.0])
    rounded = passes.summing_to_one(s, np.zeros((3, 4), np.float32))
    assert rounded[2] == 0
    assert rounded.astype(np.float64).sum() == 1


def test_a_matrix_that_fits_in_cache_is_worked_on_by_one_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Threads that wait for each other are slow where others want the cores too."""
    asked: list[int] = []

    def share_out(work: Callable[[], None], threads: int) -> None:
        asked.append(threads)
        work()

    monkeypatch.setattr(blocks, "available_cores", lambda: 8)
    monkeypatch.setattr(blocks, "share_out", share_out)
    w, W, _ = (a.astype(np.float32) for a in models(7, 5000, 0.1, 0))
    for small in (0, W.nbytes):
        monkeypatch.setattr(blocks, "_ONE_CORE", small)
        passes.spread(w, W, np.full(7, 1 / 7), [slice(0, 5000)])
    assert asked == [8]


def test_blas_has_one_thread_while_a_pass_works_and_its_own_afterwards() -> None:
    """Its threads wait for each other at the end of every call, and spin after it."""
    (library, *_) = threads._blas()
    before = library.get_num_threads()
    seen = blocks.in_order(np.zeros(1), lambda: lambda _: library.get_num_threads(), range(3))
    assert (seen, library.get_num_threads()) == ([1, 1, 1], before)
    with threads.one_blas_thread, threads.one_blas_thread:
        assert library.get_num_threads() == 1
    with pytest.raises(ZeroDivisionError), threads.one_blas_thread:
        raise ZeroDivisionError
    assert library.get_num_threads() == before


def test_numpy_works_in_the_memory_of_torchs_tensors() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(3, 4)
    passes.native(tensor)[1:, 2] = 1.0
    assert tensor.sum() == 2
    half = torch.zeros(3, dtype=torch.bfloat16)
    assert passes.native(half) is half


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=25, deadline=None)
@given(
    K=st.integers(1, 12),
    P=st.integers(1, 3000),
    move=st.sampled_from([1.0, 1e-2, 1e-5]),
    seed=st.integers(0, 99),
)
def test_mean_and_angles_are_those_of_the_updates(
    backend: str, K: int, P: int, move: float, seed: int
) -> None:
    to_backend = BACKENDS[backend]
    w, W, _ = (a.astype(np.float32) for a in models(K, P, move, seed))
    s = np.random.default_rng(seed).dirichlet(np.ones(K))
    mean, (gram, along, square) = passes.mean_and_angles(to_backend(w), to_backend(W), s)
    updates = W.astype(np.float64) - w.astype(np.float64)
    lengths = np.linalg.norm(updates, axis=1)
    np.testing.assert_allclose(gram, updates @ updates.T, atol=1e-5 * lengths.max() ** 2)
    np.testing.assert_allclose(np.asarray(mean), s @ updates, atol=1e-5 * np.abs(updates).max())
    length = np.linalg.norm(w)
    np.testing.assert_allclose(along, updates @ w, atol=1e-5 * lengths.max() * length)
    assert square == pytest.approx(length**2, rel=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("move", [1.0, 1e-2, 1e-6])
def test_a_sample_of_a_large_model_tells_its_angles_and_the_mean_is_whole(
    backend: str, move: float
) -> None:
    """Ten models of half a million parameters: more than are looked at one by one."""
    to_backend, K, P = BACKENDS[backend], 10, 500_000
    random = np.random.default_rng(0)
    w = random.standard_normal(P).astype(np.float32)
    common = random.standard_normal(P) + 0.2 * w
    W = (w + move * (common + random.standard_normal((K, P)))).astype(np.float32)
    assert 0 < sum(block.stop - block.start for block in grams.sampled_columns(W)) < P
    s = random.dirichlet(np.ones(K))
    mean, (gram, along, square) = passes.mean_and_angles(to_backend(w), to_backend(W), s)
    updates = W.astype(np.float64) - w.astype(np.float64)
    whole = updates @ updates.T
    np.testing.assert_allclose(_cosines(gram), _cosines(whole), atol=0.01)
    lengths = np.sqrt(np.diag(whole))
    np.testing.assert_allclose(
        along / np.sqrt(np.diag(gram) * square),
        updates @ w / lengths / np.linalg.norm(w),
        atol=0.01,
    )
    expected = s @ updates
    error = np.linalg.norm(np.asarray(mean) - expected) / np.linalg.norm(expected)
    assert error < 2 * grams.DIGITS


def _cosines(gram: np.ndarray) -> np.ndarray:
    lengths = np.sqrt(np.diag(gram))
    return np.asarray(gram / np.outer(lengths, lengths))


def test_a_sample_reaches_from_the_first_parameter_to_the_last() -> None:
    for K, P in ((10, 11_173_962), (1000, 118_282), (3, 10**8)):
        blocks = grams.sampled_columns(np.broadcast_to(np.float32(0), (K, P)))
        assert (blocks[0].start, blocks[-1].stop) == (0, P)
        assert all(a.stop <= b.start for a, b in pairwise(blocks))
        assert len(blocks) >= grams.BLOCKS
    assert grams.sampled_columns(np.empty((10, 118_282), np.float32)) == []


def test_stride_is_momentum_and_scaling() -> None:
    random = np.random.default_rng(0)
    w, before, delta = random.standard_normal((3, 300))
    expected = 0.9 * before + delta
    velocity, model = passes.stride(w, before, delta, 0.9, 0.5, 1.1)
    np.testing.assert_allclose(velocity, expected)
    np.testing.assert_allclose(model, 1.1 * (w + 0.5 * expected))


@settings(max_examples=50, deadline=None)
@given(K=st.integers(1, 30), n=st.integers(1, 3000), skipped=st.integers(0, 3))
def test_products_by_pieces_are_those_of_whole_rows(K: int, n: int, skipped: int) -> None:
    """However many pieces there are, and whatever is left of a block that is a part of a matrix."""
    random = np.random.default_rng(n)
    rows, vector = random.standard_normal((K, n + skipped))[:, skipped:], random.standard_normal(n)
    np.testing.assert_allclose(unlocked.along(rows, vector), rows @ vector, atol=1e-10)
    np.testing.assert_allclose(unlocked.by_pairs(rows), rows @ rows.T, atol=1e-10)
    np.testing.assert_allclose(unlocked.squares(rows), np.square(rows).sum(axis=1), atol=1e-10)


def test_pieces_are_views_that_make_numpy_let_go_of_the_lock() -> None:
    """A copy would cost a pass through memory, a smaller result the other threads' time."""
    rows = np.zeros((10, 5001), np.float32)[:, 1:]
    pieces, rest = unlocked._cut(rows, len(rows))
    assert np.shares_memory(pieces, rows)
    assert (pieces @ np.zeros((pieces.shape[2], 1), np.float32)).size > 500
    assert pieces.shape[0] * pieces.shape[2] + rest.shape[1] == 5000
