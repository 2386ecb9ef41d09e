"""Options: parsing, hard errors on unknown names, and which switches enter cache keys."""

import pytest

from fusewright.core.errors import OptionError
from fusewright.core.options import DISABLE_OPTIONS, DUMP_STAGES, ENABLE_OPTIONS, Options, parse_requests


def test_lists_with_arguments_parse() -> None:
    assert parse_requests(" cuda, kernel( index ,predicate),time", "X") == (
        ("cuda", ()),
        ("kernel", ("index", "predicate")),
        ("time", ()),
    )
    assert parse_requests("", "X") == () == parse_requests(" , ", "X")


@pytest.mark.parametrize("text", ["kernel(index", "kernel(a)b", "kernel)", "a),b(c)"])
def test_mismatched_parentheses_are_errors(text: str) -> None:
    with pytest.raises(OptionError, match="unclosed or misplaced parenthesis"):
        parse_requests(text, "FUSEWRIGHT_DUMP")


def test_environment() -> None:
    options = Options.from_environment(
        {
            "FUSEWRIGHT_DUMP": "time,cuda",
            "FUSEWRIGHT_ENABLE": "fast_math",
            "FUSEWRIGHT_DISABLE": "fma",
            "FUSEWRIGHT_CACHE_DIR": "/c",
            "FUSEWRIGHT_SIM_DEVICE": "l4",
        }
    )
    assert options.dump == (("cuda", ()), ("time", ()))
    assert options.enabled("fast_math") and options.disabled("fma") and not options.enabled("fuse_matmul")
    assert (options.cache_dir, options.sim_device) == ("/c", "l4")
    assert Options.from_environment({}) == Options()


@pytest.mark.parametrize(
    ("variable", "message"),
    [("DUMP", "Unrecognized dump stage: 'nope'"), ("ENABLE", "enable_option"), ("DISABLE", "disable_option")],
)
def test_unknown_names_are_errors_that_list_the_valid_ones(variable: str, message: str) -> None:
    with pytest.raises(OptionError, match=f"(?s){message}.*Valid names: ") as caught:
        Options.from_environment({f"FUSEWRIGHT_{variable}": "nope"})
    if variable == "DUMP":
        assert all(stage in str(caught.value) for stage in DUMP_STAGES)


EFFECTIVE = {
    "enable": {"fast_math", "kernel_debug", "kernel_lineinfo"},
    "disable": {
        "constant_sizes",
        "fma",
        "horizontal_fusion",
        "matmul_expr_eval",
        "nvrtc_caching",
        "parallel_compile",
    },
}


@pytest.mark.parametrize(
    "kind, name",
    [("enable", name) for name in ENABLE_OPTIONS] + [("disable", name) for name in DISABLE_OPTIONS],
)
def test_key_holds_the_switches_with_an_effect_and_no_others(kind: str, name: str) -> None:
    # What each of them changes is in tests/runtime/test_switches.py, and where that says.
    effects = ENABLE_OPTIONS if kind == "enable" else DISABLE_OPTIONS
    assert bool(effects[name]) == (name in EFFECTIVE[kind])
    switched = Options().with_switches(**{kind: [name]})
    assert (switched.key() != Options().key()) == bool(effects[name])
    assert Options().with_switches(**{kind: f"{name}(argument)"}).key() == switched.key()


def test_key_holds_places_and_no_dumps() -> None:
    plain = Options()
    assert Options(dump=(("cuda", ()),)).key() == plain.key()
    assert Options(cache_dir="/c").key() != plain.key() != Options(sim_device="l4").key()


def test_equal_switches_make_equal_options_and_the_same_ones_one_object() -> None:
    plain = Options()
    one_way = plain.with_switches(enable=["fast_math", "fuse_matmul"])
    assert one_way == plain.with_switches(enable="fuse_matmul,fast_math") and hash(one_way)
    assert plain.with_switches(enable=["fast_math", "fuse_matmul"]) is one_way
    assert plain.with_switches() is plain


def test_unknown_switch_names_those_with_an_effect() -> None:
    with pytest.raises(OptionError, match=r"hint: with an effect: .*fma \(.*not contracted\)"):
        Options().with_switches(disable="fmad")


def test_asking_for_a_switch_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(OptionError):
        Options().enabled("fast_maths")
    with pytest.raises(OptionError):
        Options().disabled("fmad")


@pytest.mark.parametrize("given", [3, ["FUSEWRIGHT_DUMP"], {"FUSEWRIGHT_DUMP": 3}, {3: "cuda"}], ids=str)
def test_an_environment_maps_texts(given: object) -> None:
    with pytest.raises(OptionError, match=r"(?s)no environment.*expected: a mapping of str to str"):
        Options.from_environment(given)  # type: ignore[arg-type]
