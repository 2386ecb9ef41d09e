"""Options: parsing, hard errors on unknown names, and which switches enter cache keys."""

import pytest

from fusewright.core.errors import OptionError
from fusewright.core.options import DUMP_STAGES, Options, parse_requests


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


def test_code_key_holds_what_changes_code_and_nothing_else() -> None:
    plain = Options()
    assert plain.with_switches(enable=["fast_math"]).code_key() != plain.code_key()
    assert plain.with_switches(disable="fma").code_key() != plain.code_key()
    silent = Options(dump=(("cuda", ()),), cache_dir="/c").with_switches(
        enable=["id_model_extra_validation"], disable=["nvtx"]
    )
    assert silent.code_key() == plain.code_key()
    one_way = plain.with_switches(enable=["fast_math", "fuse_matmul"])
    assert one_way == plain.with_switches(enable="fuse_matmul,fast_math") and hash(one_way)


def test_asking_for_a_switch_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(OptionError):
        Options().enabled("fast_maths")
    with pytest.raises(OptionError):
        Options().disabled("fmad")
