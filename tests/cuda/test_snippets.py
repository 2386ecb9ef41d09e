"""The device snippets: their registry, and their results where the host can run them."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from fusewright.core.dtype import DataType
from fusewright.core.errors import InternalError
from fusewright.core.op import converted
from fusewright.cuda import snippets
from fusewright.cuda.nvrtc import NvrtcOptions, compile_cubin
from fusewright.ops.pairs import PACK, elements_of_pairs
from tests.cuda.host import build, needs_compiler, run
from tests.kernel import builders

# Binary16 by the host's own conversion, in place of the snippet, which is PTX.
HOST_HALF = """
namespace fw {
struct half {
  unsigned short bits;
  operator float() const { return float(host::bit_cast<_Float16>(bits)); }
};
}
"""


def test_closure_puts_requirements_first_and_depends_on_the_set_only() -> None:
    order = snippets.closure(["vec", "grid_reduce", "fp8"])
    assert order == snippets.closure(["fp8", "vec", "grid_reduce", "vec"])
    for name in order:
        assert all(order.index(other) < order.index(name) for other in snippets.requires(name))
    assert {"warp_reduce", "block_reduce", "half"} <= set(order)
    assert len(order) == len(set(order))


def test_unknown_snippet() -> None:
    with pytest.raises(InternalError, match=r"no device snippet 'nothing'; there are .*vec"):
        snippets.closure(["nothing"])


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100"])
def test_all_snippets_compile_together(arch: str) -> None:
    text = "".join(map(snippets.text, snippets.closure(snippets.names())))
    assert "#include" not in text
    compile_cubin(text + 'extern "C" __global__ void nothing() {}', NvrtcOptions(arch))


@pytest.mark.parametrize("name", snippets.names())
def test_snippet_states_all_it_requires(name: str) -> None:
    text = "".join(map(snippets.text, snippets.closure([name])))
    compile_cubin(text + 'extern "C" __global__ void nothing() {}', NvrtcOptions("sm_80"))


def test_lanes_of_a_warp_leave_loops_that_wait_together() -> None:
    """Lanes that skip a loop which waits may otherwise run ahead of the others, up to a shuffle of all."""
    loops = [
        (name, body, condition)
        for name in snippets.names()
        for body, condition in re.findall(r"\bdo \{(.*?)\} while \((.*?)\);", snippets.text(name), re.S)
    ]
    assert {name for name, _, _ in loops} >= {"grid_barrier", "grid_reduce"}
    for name, body, condition in loops:
        if re.search(r"\bhear\(|\bld\.(relaxed|acquire|volatile)", body):
            assert condition.startswith("!__all_sync(0xffffffffu, "), name


# ---- division ------------------------------------------------------------------------------------

# Divisors, and the most that is divided: multiples and their neighbours are where a quotient could be off.
DIVISORS, MOST = (3, 7, 63, 641, 65537, 2**30 - 1, 2**31 - 1), (0, 100, 2**20, 2**31 - 1)
DIVISIONS = [(divisor, most) for divisor in DIVISORS for most in MOST]


@needs_compiler
def test_quotients_by_constants(tmp_path: Path) -> None:
    table = ", ".join(f"fw::constant_quotient<{d}, {m}>, fw::constant_rest<{d}, {m}>" for d, m in DIVISIONS)
    library = build(
        f"""{snippets.text("constant_quotient")}
        int (*const table[])(int) = {{{table}}};
        extern "C" int value(int which, int x) {{ return table[which](x); }}""",
        tmp_path,
    )
    for which, (divisor, most) in enumerate(DIVISIONS):
        starts = {0, 1, most // divisor // 2, most // divisor - 1, most // divisor}
        near = {start * divisor + step for start in starts for step in (-1, 0, 1)} | {most - 1, most}
        for x in (x for x in near if 0 <= x <= most):
            found = library.value(2 * which, x), library.value(2 * which + 1, x)
            assert found == divmod(x, divisor), (x, divisor, most)


@needs_compiler
def test_remainders_of_floats_are_exact(tmp_path: Path) -> None:
    library = build(
        f"""{snippets.text("float_remainder")}
        extern "C" void fmods(const float* a, const float* b, float* to, long long count) {{
          for (long long i = 0; i < count; ++i) to[i] = fw::float_fmod(a[i], b[i]);
        }}""",
        tmp_path,
    )
    generator = torch.Generator().manual_seed(1)
    b = torch.randn(200_000, generator=generator) * torch.logspace(-40, 38, 200_000)
    times = (2 ** (40 * torch.rand(200_000, generator=generator) - 10)).round()
    # Multiples, their neighbours, and what lies between.
    a = torch.cat([b * times, torch.nextafter(b * times, torch.zeros(())), b * times * 1.37, times, -times])
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1.0, -3.0])
    a = torch.cat([a, special.repeat(7)])
    b = torch.cat([b.repeat(5), special.repeat_interleave(7)])
    result = torch.empty_like(a)
    pointers = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, result))
    library.fmods(*pointers, ctypes.c_longlong(len(a)))
    exact = torch.from_numpy(np.fmod(a.double().numpy(), b.double().numpy())).float()
    torch.testing.assert_close(result, exact, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(result.signbit()[~exact.isnan()], exact.signbit()[~exact.isnan()])


@needs_compiler
def test_approximate_functions_keep_signs_of_zeros_and_what_is_not_finite(tmp_path: Path) -> None:
    names = ("cos", "expm1", "log", "log1p", "sin", "sqrt", "tanh")
    each = "".join(
        f"""void {name}_of(const float* x, float* to, long long count) {{
          for (long long i = 0; i < count; ++i) to[i] = fw::approximate_{name}(x[i]);
        }}
        """
        for name in names
    )
    text = "".join(map(snippets.text, snippets.closure(["approximate", "approximate_trig"])))
    library = build(f'{text}\nextern "C" {{ {each} }}', tmp_path)
    special = torch.tensor([0.0, 1e-45, 1e-40, 1.0, 1 - 2**-24, 1 + 2**-23, 105615.0, 3e38, torch.inf])
    x = torch.cat([special, torch.logspace(-8, 5, 10_000), torch.arange(1, 99) * (torch.pi / 2)])
    x = torch.cat([x, -x, torch.tensor([torch.nan])])
    for name in names:
        result, exact = torch.empty_like(x), getattr(torch, name)(x.double()).float()
        pointers = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, result))
        getattr(library, f"{name}_of")(*pointers, ctypes.c_longlong(len(x)))
        torch.testing.assert_close(result, exact, rtol=2**-17, atol=0, equal_nan=True, msg=name)
        assert torch.equal(result.signbit()[~exact.isnan()], exact.signbit()[~exact.isnan()]), name


# ---- conversions ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def conversions(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    text = HOST_HALF + snippets.text("fp8") + snippets.text("e8m0") + snippets.text("e2m1")
    text += """
        extern "C" void to_e2m1(const float* from, unsigned char* to, long long count) {
          for (long long i = 0; i < count; ++i) to[i] = fw::e2m1(from[i]).wide.bits;
        }
        extern "C" void repack_e2m1(float* low, float* high, unsigned char* again) {
          for (int i = 0; i < 256; ++i) {
            fw::e2m1_x2 pair(i);
            low[i] = fw::low_e2m1(pair), high[i] = fw::high_e2m1(pair);
            again[i] = fw::pack_e2m1(low[i], high[i]).bits;
          }
        }"""
    for name in ("e4m3", "e5m2", "e8m0"):
        text += f"""
        extern "C" void to_{name}(const float* from, unsigned char* to, long long count) {{
          for (long long i = 0; i < count; ++i) to[i] = fw::{name}(from[i]).bits;
        }}
        extern "C" void from_{name}(float* to) {{
          for (int i = 0; i < 256; ++i) {{ fw::{name} x; x.bits = i; to[i] = x; }}
        }}"""
    return build(text, tmp_path_factory.mktemp("conversions"))


TYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "e8m0": torch.float8_e8m0fnu}


def _floats() -> torch.Tensor:
    """Every float with a lower half of 0, and its neighbours: all ties between eight-bit floats are there."""
    upper = torch.arange(2**16, dtype=torch.int64) << 16
    bits = torch.cat([upper, upper + 1, (upper - 1) % 2**32])
    return bits.to(torch.int32).view(torch.float32)


@needs_compiler
@pytest.mark.parametrize("name", TYPES)
def test_conversion_to_eight_bits_is_torchs(conversions: ctypes.CDLL, name: str) -> None:
    values = _floats()
    result = torch.empty(len(values), dtype=torch.uint8)
    convert = getattr(conversions, f"to_{name}")
    convert(
        ctypes.c_void_p(values.data_ptr()), ctypes.c_void_p(result.data_ptr()), ctypes.c_longlong(len(values))
    )
    expected = values.to(TYPES[name])
    if name == "e4m3":  # torch before 2.13 gives NaN for what is out of range
        expected = values.clamp(-448, 448).to(TYPES[name])
    # Any NaN is as good as another.
    same = (result == expected.view(torch.uint8)) | (
        result.view(TYPES[name]).float().isnan() & expected.float().isnan()
    )
    wrong = values[~same]
    assert not len(wrong), f"{len(wrong)} differ, such as {wrong[0].item().hex()}"


@needs_compiler
def test_conversion_to_four_bits_is_the_evaluators(conversions: ctypes.CDLL) -> None:
    values = _floats()
    result = torch.empty(len(values), dtype=torch.uint8)
    count = ctypes.c_longlong(len(values))
    conversions.to_e2m1(ctypes.c_void_p(values.data_ptr()), ctypes.c_void_p(result.data_ptr()), count)
    expected = converted(values, DataType.Float4_e2m1fn).view(torch.uint8)
    wrong = values[result != expected]
    assert not len(wrong), f"{len(wrong)} differ, such as {wrong[0].item().hex()}"


@needs_compiler
def test_pairs_are_unpacked_and_packed_as_the_evaluator_does(conversions: ctypes.CDLL) -> None:
    low, high, again = torch.empty(256), torch.empty(256), torch.empty(256, dtype=torch.uint8)
    conversions.repack_e2m1(*(ctypes.c_void_p(t.data_ptr()) for t in (low, high, again)))
    every = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(torch.stack([low, high], 1).flatten(), elements_of_pairs(every))
    assert torch.equal(again, every) and torch.equal(PACK.spelling(DataType.Float).torch(low, high), every)


@needs_compiler
@pytest.mark.parametrize("name", TYPES)
def test_conversion_from_eight_bits_is_torchs(conversions: ctypes.CDLL, name: str) -> None:
    result = torch.empty(256)
    getattr(conversions, f"from_{name}")(ctypes.c_void_p(result.data_ptr()))
    expected = torch.arange(256, dtype=torch.uint8).view(TYPES[name]).float()
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


# ---- collectives ---------------------------------------------------------------------------------

_CHECK_BLOCK_REDUCE = """
struct Sum {
  long long total;
  static constexpr bool symmetric = %s;
  static Sum identity() { return {0}; }
  static Sum combine(Sum a, Sum b) { return {a.total + b.total}; }
  Sum shuffle_xor(int mask) const { return {fw::shuffle_xor(total, mask)}; }
  Sum shuffle(int lane) const { return {fw::shuffle(total, lane)}; }
  struct Memory {
    long long* totals;
    Sum load(long long i) const { return {totals[i]}; }
    void store(long long i, Sum value) const { totals[i] = value.total; }
  };
};

template <int AXES, int WIDTH, class Shape> int wrong(dim3 block) {
  int errors = 0;
  host::launch({1, 1, 1}, block, [&] {
    auto input = [](int x, int y, int z, int k) { return 1ll + x * 3 + y * 1000 + z * 1000000 + k * 17; };
    const int i = threadIdx.x, j = threadIdx.y, l = threadIdx.z;
    Sum value[WIDTH];
    for (int k = 0; k < WIDTH; ++k) value[k] = {input(i, j, l, k)};
    // Twice: the second must not see what the first left in the workspace.
    for (int repeat = 0; repeat < 2; ++repeat) {
      Sum result[WIDTH];
      for (int k = 0; k < WIDTH; ++k) result[k] = value[k];
      fw::block_reduce<Sum, AXES, Shape>(result, {reinterpret_cast<long long*>(fw_smem)});
      for (int k = 0; k < WIDTH; ++k) {
        long long expected = 0;
        for (int x = 0; x < int(block.x); ++x)
          for (int y = 0; y < int(block.y); ++y)
            for (int z = 0; z < int(block.z); ++z)
              if ((AXES & 1 || x == i) && (AXES & 2 || y == j) && (AXES & 4 || z == l))
                expected += input(x, y, z, k);
        errors += result[k].total != expected;
      }
    }
  });
  return errors;
}

template <int AXES> int wrong_at(dim3 block) {
  return wrong<AXES, 1, fw::block_shape<0, 0, 0>>(block) + wrong<AXES, 3, fw::block_shape<0, 0, 0>>(block);
}

extern "C" int wrong_results(int axes, unsigned x, unsigned y, unsigned z) {
  using Function = int (*)(dim3);
  const Function functions[] = {
      wrong_at<1>, wrong_at<2>, wrong_at<3>, wrong_at<4>, wrong_at<5>, wrong_at<6>, wrong_at<7>};
  return functions[axes - 1]({x, y, z});
}

extern "C" int wrong_results_of_constant_shape() {
  return wrong<1, 2, fw::block_shape<96, 2, 1>>({96, 2, 1}) +
         wrong<2, 2, fw::block_shape<32, 9, 1>>({32, 9, 1}) +
         wrong<2, 8, fw::block_shape<4, 24, 2>>({4, 24, 2}) +
         wrong<2, 2, fw::block_shape<2, 16, 1>>({2, 16, 1}) +
         wrong<2, 3, fw::block_shape<8, 12, 1>>({8, 12, 1}) +
         wrong<3, 2, fw::block_shape<32, 4, 3>>({32, 4, 3}) +
         wrong<4, 3, fw::block_shape<8, 1, 12>>({8, 1, 12}) +
         wrong<4, 16, fw::block_shape<32, 1, 9>>({32, 1, 9}) +
         wrong<7, 2, fw::block_shape<8, 4, 2>>({8, 4, 2});
}
"""

# Whole warps, parts of a warp that are powers of two and that are not, one thread, blocks with a broken last
# warp, extents of 1 that make the reduced threads neighbours after all.
SHAPES = [
    (64, 1, 1),
    (96, 2, 1),
    (16, 3, 2),
    (24, 2, 1),
    (1, 1, 1),
    (1, 32, 3),
    (33, 1, 2),
    (1, 1, 17),
    (8, 4, 2),
]


@needs_compiler
@pytest.mark.parametrize("symmetric", ["true", "false"])
def test_block_reduce_over_every_set_of_axes(tmp_path: Path, symmetric: str) -> None:
    text = "".join(map(snippets.text, snippets.closure(["block_reduce"])))
    library = build(text + _CHECK_BLOCK_REDUCE % symmetric, tmp_path)
    for axes in range(1, 8):
        for shape in SHAPES:
            assert library.wrong_results(axes, *shape) == 0, (axes, shape)
    assert library.wrong_results_of_constant_shape() == 0


# The first block of a cluster whose others bring what it does: what it sends itself arrives with what they
# send. Warps but the first are late to read the workspace.
_CLUSTER = """
namespace host { inline int arrived, from_block, blocks, errors; }
namespace fw {
int cluster_rank() { return 0; }
void begin_turn(int, int) {}
void wait_for_turn(int turn) {
  for (int i = 0; i < 10000 && host::arrived < (turn + 1) * host::from_block; ++i) host::wait_at(host::READY);
}
"""
_CHECK_CLUSTER_REDUCE = """
long long input(int x, int y, int z, int k, int turn) {
  return (1ll + x * 3 + y * 1000 + z * 1000000 + k * 17) * (turn + 1);
}

template <int X, int ROWS, int GROUPS, int WIDTH> struct Sum {
  long long total;
  static constexpr int SENT_BYTES = 8;
  static constexpr bool symmetric = true;
  static Sum identity() { return {0}; }
  static Sum combine(Sum a, Sum b) { return {a.total + b.total}; }
  Sum shuffle_xor(int mask) const { return {fw::shuffle_xor(total, mask)}; }
  Sum shuffle(int lane) const { return {fw::shuffle(total, lane)}; }
  static long long expected(int x, int z, int k, int turn) {
    long long total = 0;
    for (int y = 0; y < ROWS; ++y) total += input(x, y, z, k, turn);
    return total;
  }
  struct Memory {
    long long* totals;
    Sum load(long long i) const {
      const bool late = threadIdx.x + X * (threadIdx.y + ROWS * threadIdx.z) >= 32;
      for (int k = 0; late && k < 5; ++k) host::wait_at(host::READY);
      return {totals[i]};
    }
    void store(long long i, Sum value) const { totals[i] = value.total; }
    Sum received(long long i) const { return {totals[i]}; }
    void send(int i, Sum value, int block, int turn) const {
      const int column = i % (host::blocks * host::from_block), inner = column % (X * WIDTH);
      host::errors += value.total != expected(inner / WIDTH, column / (X * WIDTH), inner % WIDTH, turn);
      if (block != 0) return;
      for (int from = 0; from < host::blocks; ++from) totals[i + from * host::from_block] = value.total;
      ++host::arrived;
    }
  };
};

template <int BLOCKS, int X, int ROWS, int GROUPS, int WIDTH> int wrong() {
  using State = Sum<X, ROWS, GROUPS, WIDTH>;
  static long long workspace[1 << 14], exchange[1 << 14];
  host::arrived = host::errors = 0;
  host::from_block = X * GROUPS * WIDTH;
  host::blocks = BLOCKS;
  host::launch({1, 1, 1}, {X, ROWS, GROUPS}, [&] {
    const int x = threadIdx.x, y = threadIdx.y, z = threadIdx.z;
    int turn = 0;
    for (int repeat = 0; repeat < 3; ++repeat) {
      State value[WIDTH];
      for (int k = 0; k < WIDTH; ++k) value[k] = {input(x, y, z, k, repeat)};
      using Shape = fw::block_shape<X, ROWS, GROUPS>;
      fw::cluster_reduce<State, 2, Shape, BLOCKS>(value, {workspace}, {exchange}, turn);
      for (int k = 0; k < WIDTH; ++k) {
        host::errors += value[k].total != BLOCKS * State::expected(x, z, k, repeat);
      }
    }
  });
  return host::errors;
}

extern "C" int wrong_with_one_sender() { return wrong<3, 4, 16, 1, 16>() + wrong<4, 8, 12, 2, 16>(); }
extern "C" int wrong_with_several() { return wrong<3, 4, 64, 1, 8>() + wrong<8, 2, 32, 2, 4>(); }
extern "C" int wrong_of_two_blocks() { return wrong<2, 4, 64, 1, 8>(); }
"""


@needs_compiler
def test_cluster_reduce_down_columns_with_late_warps(tmp_path: Path) -> None:
    """A block has what all sent it while its warps that send to others have yet to read what they send."""
    sends, takes_part = snippets.text("cluster_reduce").split("// What all blocks sent of a value", 1)
    assert "wait_for_turn" in sends
    needed = "".join(map(snippets.text, snippets.closure(["block_reduce"])))
    library = build(f"{needed}{_CLUSTER}//{takes_part}{_CHECK_CLUSTER_REDUCE}", tmp_path)
    assert library.wrong_with_one_sender() == 0
    assert library.wrong_with_several() == 0
    assert library.wrong_of_two_blocks() == 0


_CHECK_WINDOW = """
template <class T, int N> int wrong() {
  int errors = 0;
  for (int offset = 0; offset < N; ++offset) {
    alignas(32) T from[2 * N], to[N];
    for (int i = 0; i < 2 * N; ++i) from[i] = T(i + 1);
    fw::window<N>(to, from, offset);
    for (int i = 0; i < N; ++i) errors += to[i] != T(offset + i + 1);
  }
  return errors;
}
extern "C" int wrong_windows() {
  return wrong<char, 2>() + wrong<char, 4>() + wrong<char, 16>() + wrong<short, 2>() + wrong<short, 8>() +
         wrong<int, 2>() + wrong<int, 4>() + wrong<long long, 2>();
}
"""


@needs_compiler
def test_window_from_every_place(tmp_path: Path) -> None:
    text = "".join(map(snippets.text, snippets.closure(["window"])))
    assert build(text + _CHECK_WINDOW, tmp_path).wrong_windows() == 0


_CHECK_BLOCK_SCAN = """
// Combines in one order only: two strings of digits, one after the other.
struct Text {
  long long digits, scale;
  static Text identity() { return {0, 1}; }
  static Text combine(Text a, Text b) {
    return {(a.digits * b.scale + b.digits) % 1000000007, a.scale * b.scale % 1000000007};
  }
  Text shuffle(int lane) const { return {fw::shuffle(digits, lane), fw::shuffle(scale, lane)}; }
  struct Memory {
    Text* texts;
    Text load(long long i) const { return texts[i]; }
    void store(long long i, Text value) const { texts[i] = value; }
  };
};

template <class Shape> int wrong_scans(int axis, unsigned x, unsigned y, unsigned z) {
  constexpr int WIDTH = 2;
  int errors = 0;
  host::launch({1, 1, 1}, {x, y, z}, [&] {
    const int at[3] = {int(threadIdx.x), int(threadIdx.y), int(threadIdx.z)};
    auto input = [](int i, int j, int l, int k) { return Text{1 + i % 7 + j % 5 * 3 + l * 2 + k, 1000}; };
    Text carry[WIDTH], expected[WIDTH];
    for (int k = 0; k < WIDTH; ++k) carry[k] = expected[k] = {7 + k, 10};
    for (int repeat = 0; repeat < 2; ++repeat) {
      Text value[WIDTH];
      for (int k = 0; k < WIDTH; ++k) value[k] = input(at[0], at[1], at[2], k);
      const Text::Memory memory{reinterpret_cast<Text*>(fw_smem)};
      if (axis == 0) fw::block_scan<Text, 1, Shape>(value, carry, memory);
      if (axis == 1) fw::block_scan<Text, 2, Shape>(value, carry, memory);
      if (axis == 2) fw::block_scan<Text, 4, Shape>(value, carry, memory);
      const int extent[3] = {int(x), int(y), int(z)};
      for (int k = 0; k < WIDTH; ++k) {
        for (int i = 0; i < extent[axis]; ++i) {
          int other[3] = {at[0], at[1], at[2]};
          other[axis] = i;
          if (i == at[axis]) errors += value[k].digits != expected[k].digits;
          expected[k] = Text::combine(expected[k], input(other[0], other[1], other[2], k));
        }
        errors += carry[k].digits != expected[k].digits;
      }
    }
  });
  return errors;
}

extern "C" int wrong_scans(int axis, unsigned x, unsigned y, unsigned z) {
  return wrong_scans<fw::block_shape<0, 0, 0>>(axis, x, y, z);
}

template <int X, int Y, int Z> int wrong_of() {
  using Shape = fw::block_shape<X, Y, Z>;
  return wrong_scans<Shape>(1, X, Y, Z) + wrong_scans<Shape>(2, X, Y, Z);
}

extern "C" int wrong_scans_of_known_shapes() {
  return wrong_of<16, 32, 1>() + wrong_of<8, 16, 3>() + wrong_of<2, 32, 1>() + wrong_of<32, 4, 2>() +
         wrong_of<16, 1, 8>() + wrong_of<4, 24, 1>();
}
"""


@needs_compiler
def test_block_scan_along_each_axis_keeps_the_order(tmp_path: Path) -> None:
    text = "".join(map(snippets.text, snippets.closure(["block_scan"])))
    library = build(text + _CHECK_BLOCK_SCAN, tmp_path)
    for axis in range(3):
        for shape in SHAPES:
            assert library.wrong_scans(axis, *shape) == 0, (axis, shape)
    assert library.wrong_scans_of_known_shapes() == 0


@needs_compiler
@pytest.mark.parametrize("shape", [(32, 8), (4, 8), (16, 3)])
def test_column_sum_on_the_host(tmp_path: Path, shape: tuple[int, int]) -> None:
    x = torch.randint(-50, 50, (29, 72)).float()
    y = torch.full((72,), float("nan"))
    run(builders.column_sum(*shape, width=4), [x, y, *x.shape], tmp_path)
    torch.testing.assert_close(y, x.sum(0), rtol=0, atol=0)


@needs_compiler
def test_grid_sum_on_the_host_is_ready_for_the_next_launch(tmp_path: Path) -> None:
    x = torch.randint(-50, 50, (3001,)).float()
    y, exchange = torch.full((1,), float("nan")), torch.zeros(15, dtype=torch.int64)
    for launch in (1, 2):
        run(builders.grid_sum(threads=48, blocks=5), [x, y, exchange, len(x)], tmp_path)
        assert y.item() == x.sum().item()
        assert exchange[:10].tolist() == [launch] * 5 + [0] * 5  # rounds; nobody has started
        x = x * 2


@needs_compiler
@pytest.mark.parametrize("threads, at_once", [(96, 1), (40, 1), (40, 4)])
def test_welford_on_the_host(tmp_path: Path, threads: int, at_once: int) -> None:
    x = torch.randn(3, 516) * 3 + 100
    mean, m2 = torch.empty(3), torch.empty(3)
    run(builders.row_welford(threads, at_once), [x, mean, m2, *x.shape], tmp_path)
    torch.testing.assert_close(mean, x.double().mean(1).float())
    torch.testing.assert_close(m2, (x.double().var(1) * 515).float(), rtol=1e-5, atol=0)


@needs_compiler
def test_shared_memory_on_the_host(tmp_path: Path) -> None:
    x = torch.arange(512.0)
    y = torch.empty(512)
    run(builders.block_reverse(), [x, y, 512], tmp_path)
    torch.testing.assert_close(y, x.view(2, 64, 4).flip(1).reshape(-1), rtol=0, atol=0)


@needs_compiler
def test_complex_on_the_host(tmp_path: Path) -> None:
    a, b = torch.randn(70, dtype=torch.complex64), torch.randn(70, dtype=torch.complex64)
    result = torch.empty_like(a)
    run(builders.complex_product(DataType.ComplexFloat), [a, b, result, 70], tmp_path)
    torch.testing.assert_close(result, a * b + (0.5 - 2j))
