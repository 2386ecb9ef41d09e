"""The check that every kernel of a test compiles: for which architectures, once, and with the test's name."""

from __future__ import annotations

import pytest

from fusewright.core.errors import CompileError
from fusewright.cuda.nvrtc import NvrtcOptions
from fusewright.cuda.printer import CudaSource, print_kernel
from tests import compilation
from tests.compilation import ARCHITECTURES, CompileCheck, SyntaxOnly, Unoptimized, check_text
from tests.kernel import builders


def _source(body: str, snippets: tuple[str, ...] = ()) -> CudaSource:
    kernel = f'extern "C" __global__ void k(float* x) {{ {body} }}'
    return CudaSource("k", kernel, snippets, kernel)


def _compiled(sources: list[CudaSource], monkeypatch: pytest.MonkeyPatch) -> list[set[NvrtcOptions]]:
    """What each of these kernels is compiled with."""
    found: dict[str, set[NvrtcOptions]] = {source.kernel: set() for source in sources}

    def compiles(batch: list[compilation.Printed], options: NvrtcOptions) -> bool:
        for printed in batch:
            found[printed.source.kernel].add(options)
        return True

    monkeypatch.setattr(compilation, "_compiles", compiles)
    check = CompileCheck()
    for source in sources:
        check.add(source)
    check.compile()
    return list(found.values())


def test_architectures_and_stages_share_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = _compiled([_source(f"x[{i}] = 1.0f;") for i in range(500)], monkeypatch)
    assert all(len(options) == 1 for options in compiled)
    kinds = (Unoptimized, SyntaxOnly)
    assert set().union(*compiled) == {kind(arch) for kind in kinds for arch in ARCHITECTURES}


def test_text_of_an_architecture_is_compiled_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [
        _source('asm("membar.gl;");'),
        _source("#if __CUDA_ARCH__ >= 900\n x[0] = 1.0f;\n#endif\n"),
        _source("x[0] = 1.0f;", ("fp8",)),
        _source("x[1] = 1.0f;", ("fp8",)),
    ]
    compiled = _compiled(sources, monkeypatch)
    assert list(map(len, compiled)) == [3, 3, 3, 1]
    assert all(type(options) is Unoptimized for kernel in compiled[:3] for options in kernel)


def test_a_kernel_that_does_not_compile_is_named() -> None:
    check = CompileCheck()
    check.add(print_kernel(builders.row_softmax()))
    check.test = "some test"
    check.add(_source("x[0] = nothing;"))
    with pytest.raises(AssertionError, match=r'some test, sm_.*(.|\n)*"nothing" is undefined'):
        check.compile()


def test_a_kernel_of_another_worker_is_not_compiled_again() -> None:
    check = CompileCheck(claim=lambda name: False)
    check.add(_source("x[0] = nothing;"))
    check.compile()


def test_kernels_of_a_batch_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name; one that the text lacks is missed."""
    monkeypatch.setattr(CompileCheck, "_options", lambda *_: [Unoptimized(arch) for arch in ARCHITECTURES])
    check = CompileCheck()
    check.add(print_kernel(builders.row_softmax()))
    check.compile()
    text = _source("x[0] = 1.0f;")
    check.add(CudaSource("other", text.kernel, (), text.text))
    with pytest.raises(AssertionError, match="not together"):
        check.compile()


@pytest.mark.parametrize(
    "body, message",
    [
        ("x[0] = nothing;", '"nothing" is undefined'),
        ("x[0] = x.y;", "must have class type"),
        ("twice<3>();", "static assertion failed"),
        ("extern void host(); host();", "considered a host function"),
        ('double y; asm("mov.u32 %0, 1;" : "=r"(y)); x[0] = y;', "does not match type"),
    ],
)
def test_errors_of_the_language_are_found_without_making_code(body: str, message: str) -> None:
    text = "template <int N> __device__ void twice() { static_assert(N % 2 == 0); }\n" + _source(body).text
    with pytest.raises(CompileError, match=message):
        check_text(text, SyntaxOnly("sm_90a"))
