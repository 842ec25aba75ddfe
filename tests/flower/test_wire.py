"""Arrays as bytes, and how they lie in one vector."""

import contextlib
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedhaw.flower import WireLayout
from fedhaw.flower.wire import Unreadable, decoded, decoded_flat, npy_header, pack

DTYPES = st.sampled_from([np.float16, np.float32, np.float64, np.int64, np.uint8, np.bool_])
ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.arrays(
        dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
    )
)


@given(ARRAYS, st.booleans())
def test_looking_gives_what_flower_gives(values: Any, fortran: bool) -> None:
    array = Array(np.asfortranarray(values) if fortran and values.ndim else values)
    np.testing.assert_array_equal(decoded(array), array.numpy())
    assert decoded(array).dtype == values.dtype
    assert not decoded(array).flags.writeable or not values.size


@given(ARRAYS)
def test_packing_writes_the_bytes_that_flower_writes(values: Any) -> None:
    assert pack(values, values.shape, values.dtype).data == Array(values).data


@given(ARRAYS)
def test_the_quick_look_sees_the_same_or_declines(values: Any) -> None:
    if values.size:
        header = npy_header(values.shape, values.dtype.str)
        quick = decoded_flat(Array(values), header, values.size, values.dtype)
        np.testing.assert_array_equal(quick, values.reshape(-1))
        assert decoded_flat(Array(values), header, values.size + 1, values.dtype) is None
    other = npy_header((*values.shape, 2), values.dtype.str)
    assert decoded_flat(Array(values), other, values.size, values.dtype) is None


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_read_or_refused_never_worse(data: bytes, magic: bool) -> None:
    content = (b"\x93NUMPY\x01\x00" if magic else b"") + data
    array = Array(dtype="float32", shape=(3,), stype="numpy.ndarray", data=content)
    with contextlib.suppress(Unreadable):
        decoded(array)


def test_other_serialisations_are_refused() -> None:
    whole = Array(np.zeros(3))
    array = Array(dtype="float64", shape=(3,), stype="pickle", data=whole.data)
    with pytest.raises(Unreadable, match="pickle"):
        decoded(array)


def named(**shapes: tuple[int, ...]) -> ArrayRecord:
    record = ArrayRecord()
    for name, shape in shapes.items():
        record[name.replace("__", ".")] = Array(np.zeros(shape, np.float32))
    return record


def test_layers_follow_the_names() -> None:
    record = named(
        a__weight=(2, 3), a__bias=(2,), a__running_mean=(2,), a__running_var=(2,), b__0__weight=(4,)
    )
    layout = WireLayout.of(record)
    assert layout.layers == (slice(0, 8), slice(8, 12))
    assert (layout.learnt, layout.size) == (12, 16)


def test_statistics_lie_behind_what_is_learnt_and_go_back_in_order() -> None:
    record = ArrayRecord()
    for value, name in enumerate(("a.running_var", "a.weight", "a.ema", "b.weight")):
        record[name] = Array(np.full(2, value, np.float32))
    layout = WireLayout.of(record, statistics=("running_var", ".ema"))
    learnt, averaged = layout.vectors(record)
    assert learnt.tolist() == [1, 1, 3, 3]
    assert averaged.tolist() == [0, 0, 2, 2]
    again = layout.record(learnt, averaged, {})
    assert list(again) == list(record)
    assert all(again[name].data == record[name].data for name in record)


def test_layers_of_unnamed_arrays_begin_with_each_matrix() -> None:
    record = ArrayRecord([np.zeros(s, np.float32) for s in ((2, 3), (2,), (3, 2), (3,), (5,))])
    assert WireLayout.of(record).layers == (slice(0, 8), slice(8, 22))


def test_layers_by_a_function_of_ones_own() -> None:
    record = named(x=(2,), y=(3,), z=(4,))
    layout = WireLayout.of(record, lambda name: "first" if name in "xy" else "second")
    assert layout.layers == (slice(0, 5), slice(5, 9))


def test_a_large_model_goes_through_threads_unchanged() -> None:
    random = np.random.default_rng(0)
    record = ArrayRecord()
    for index, size in enumerate((700_000, 3, 600_000, 1, 200_000)):
        # The third lies column by column, as a client may send it.
        values = random.random((size // 2, 2) if index == 2 else size, dtype=np.float32)
        record[f"layer{index}.weight"] = Array(np.asfortranarray(values))
    layout = WireLayout.of(record)
    vector, averaged = layout.vectors(record)
    again = layout.record(vector, averaged, {})
    assert list(again) == list(record)
    for name in record:
        np.testing.assert_array_equal(again[name].numpy(), record[name].numpy())
    wrong = ArrayRecord({**record, "layer4.weight": Array(np.zeros(5, np.float32))})
    with pytest.raises(Unreadable, match=r"layer4\.weight"):
        layout.read(wrong, vector)
