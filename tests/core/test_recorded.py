"""Decisions that are recorded: numbers that answer all questions alike lead to the same result."""

import math
import random

import pytest

from fusewright.core.recorded import (
    MAX_STEPS,
    Number,
    Recorder,
    RecordingError,
    asked,
    computed,
    followed,
    gcd,
    isqrt,
    log2,
    plain,
)


def recorded(function, *values):
    """What a function makes of numbers, and whether others lead to the same."""
    recorder = Recorder(values)
    return plain(function(*recorder.numbers)), recorder.compiled()


def width(size):
    return gcd(size, 8)


def steps(size, length):
    found = 1
    while found < 64 and size // found * length > 1000:
        found *= 2
    return found if length % 2 else -found


def cheapest(size, length):
    costs = {at: (size + at - 1) // at * at / max(1, size) + at / 64 for at in (1, 2, 4, 8)}
    best = min(costs, key=costs.__getitem__)
    return best, length.bit_length() if size > length else isqrt(100 // length), 2 if log2(size) > 3.5 else 3


def of_everything(size, length):
    found = abs(-size) + round(size / 3) + int(length * 1.5) + math.trunc(size / 7)
    found += (size << 1) + (7 >> (length % 3)) + 2 ** (size % 4)
    return bool(found & 4), 5 - length > 2 - size, not size % 5, size != 7, (1 if size else 0), 12 % length


@pytest.mark.parametrize("function", [steps, cheapest, of_everything], ids=lambda f: f.__name__)
def test_numbers_that_answer_alike_have_the_same_result(function):
    generator = random.Random(0)
    values = [(generator.randint(1, 200), generator.randint(1, 80)) for _ in range(400)]
    served = 0
    for first in values[:20]:
        expected = function(*first)
        recorder = Recorder(first)
        answer = function(*recorder.numbers)
        assert (tuple(map(plain, answer)) if isinstance(answer, tuple) else plain(answer)) == expected, (
            "numbers compute as those that they stand for"
        )
        holds = recorder.compiled()
        assert holds(first)
        for other in values:
            if holds(other):
                served += other != first
                assert function(*other) == expected, (first, other)
    assert function is of_everything or served > 100


def test_only_answers_count():
    _, holds = recorded(width, 24)
    assert [size for size in range(1, 65) if holds([size])] == list(range(8, 65, 8))


def test_constants_imply_others():
    recorder = Recorder([10])
    [number] = recorder.numbers
    assert number < 30 and number < 20 and not number < 5 and number > 3 and number != 25 and number != 12
    assert recorder._conditions() == {"5 <= a0 < 20": ("a0",), "a0 != 12": ("a0",)}


def test_numbers_that_are_asked_nothing_may_be_any():
    assert recorded(lambda a, b: 3, 1, 2)[1]([100, 0])
    assert recorded(lambda: 3)[1]([])


def test_results_are_computed():
    recorder = Recorder([12, 5])
    a, b = recorder.numbers
    result = (a + b, (a // 4, 7), computed(lambda *given: list(given), a * 1, (b - 1, 2)), "text", None)
    assert (a > b) is True
    made = recorder.compiled(result)
    assert made([12, 5]) == (17, (3, 7), [12, (4, 2)], "text", None)
    assert made([9, 3]) == (12, (2, 7), [9, (2, 2)], "text", None)
    assert made([3, 9]) is None
    assert computed(max, 3, 4) == 4


def test_what_is_computed_once_is_called_once():
    recorder, calls = Recorder([3]), []
    [a] = recorder.numbers

    def noted(n):
        calls.append(n)
        return n

    once = computed(noted, a)
    assert recorder.compiled((once, computed(lambda n: n + 1, once)))([5]) == (5, 6) and calls == [5]


def test_functions_that_do_not_take_recorded_numbers():
    def divided(a, pair):
        assert type(a) is int
        return a // pair[0], a % pair[0]

    assert followed(divided, 7, (2,)) == (3, 1) and asked(divided, 7, (2,)) == (3, 1)
    recorder = Recorder([17, 5])
    a, b = recorder.numbers
    quotient, rest = followed(divided, a, (b, 1))
    assert rest + quotient < 8
    assert asked(lambda n: n % 2 == 0, quotient) is False
    made = recorder.compiled((quotient, rest))
    assert made([17, 5]) == (3, 2) and made([10, 10]) == (1, 0)
    assert made([20, 10]) is None, "an even quotient"
    assert made([9, 3]) == (3, 0) and made([54, 6]) is None, "more than 8 in all"
    assert made([3, 0]) is None


def test_what_ranges_tell_is_no_question():
    recorder = Recorder([10, 3], {0: (8, 15)})
    a, b = recorder.numbers
    assert a.bit_length() == 4 and a > 1 and a != 0 and a < 16 and a >= 8 and b > 1
    assert recorder._conditions() == {"a1 > 1": ("a1",)}
    assert a > 9 and recorder._conditions() == {"a0 > 9": ("a0",), "a1 > 1": ("a1",)}


def test_steps_that_change_nothing_are_none():
    recorder = Recorder([10, 1])
    a, b = recorder.numbers
    assert a * 1 is a and 1 * a is a and a + 0 is a and 0 + a is a and a - 0 is a and a // 1 is a
    assert a * b is not a and 0 - a is not a and a * 1.0 is not a and a / 1 is not a
    assert type((a / 2 + 0).value) is float


def test_what_is_undefined_for_others_does_not_hold():
    _, holds = recorded(lambda a: 1 if 100 // a > 3 else 2, 10)
    assert holds([20]) and not holds([0])


@pytest.mark.parametrize(
    "use", [hash, range, math.gcd, lambda n: [0] * n, lambda n: {n: 1}, float, lambda n: "ab"[n]]
)
def test_what_cannot_be_recorded_is_an_error(use):
    with pytest.raises(TypeError):
        recorded(use, 4)


def test_truncation_is_a_step_where_int_is_a_question():
    assert recorded(lambda a: math.trunc(a / 4) < 9, 10)[1]([30])
    assert not recorded(lambda a: int(a / 4) < 9, 10)[1]([30])


def test_text_is_no_question():
    text, holds = recorded(lambda a: f"{a} elements, {a / 4:.1f}", 10)
    assert text == "10 elements, 2.5" and holds([999])


def test_recordings_are_short():
    def endless(size):
        for i in range(MAX_STEPS + 2):
            size = size + i
        return plain(size)

    with pytest.raises(RecordingError):
        recorded(endless, 1)


def test_numbers_beside_other_types():
    [number] = Recorder([3]).numbers
    assert isinstance(number, Number) and number != "3" and number != None  # noqa: E711
    with pytest.raises(TypeError):
        number + "a"
