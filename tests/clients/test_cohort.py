"""The blocks of a ragged cohort."""

from hypothesis import given
from hypothesis import strategies as st

from fedhaw.clients.cohort import blocks


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(1, 12), st.booleans())
def test_every_client_visits_its_samples_once_in_batches_of_its_own(
    sizes: list[int], batch: int, join_lone: bool
) -> None:
    sizes = sorted(sizes, reverse=True)
    visits: list[list[tuple[int, int]]] = [[] for _ in sizes]
    for block in blocks(sizes, batch, join_lone=join_lone):
        for k in range(block.first, block.last):
            visits[k].append((block.start, block.stop))
    for size, visited in zip(sizes, visits, strict=True):
        expected = [(a, min(a + batch, size)) for a in range(0, size, batch)]
        if join_lone and batch > 1 and len(expected) > 1 and size % batch == 1:
            expected[-2:] = [(expected[-2][0], size)]
        assert visited == expected


def test_clients_with_a_full_batch_are_one_block() -> None:
    assert [(b.first, b.last, b.stop - b.start) for b in blocks([9, 8, 5, 5, 4], 4)] == [
        (0, 5, 4), (0, 2, 4), (2, 4, 1), (0, 1, 1),
    ]  # fmt: skip
