from pathlib import Path

import pytest

from flambeau.kernels.cpu_features import CpuFeatures, read_features


@pytest.mark.parametrize(
    ("machine", "text", "features"),
    [
        (
            "x86_64",
            "model name\t: Xeon\nflags\t\t: fpu avx2 avx512f avx512_bf16 amx_bf16 amx_tile\n",
            CpuFeatures("Xeon", ("AVX2", "AVX512", "bf16", "AMX"), ()),
        ),
        (
            "x86_64",
            "model name\t: Phi\nflags\t\t: avx2 avx512f\n\nmodel name\t: other\nflags\t: bf16\n",
            CpuFeatures("Phi", ("AVX2", "AVX512"), ("bf16", "AMX")),
        ),
        (
            "aarch64",
            "Features\t: fp asimd sve bf16\n",
            CpuFeatures("aarch64", ("NEON", "SVE", "bf16"), ()),
        ),
        (
            "x86_64",
            "model name\t: old\nflags\t: sse2\n",
            CpuFeatures("old", (), ("AVX2", "AVX512", "bf16", "AMX")),
        ),
    ],
)
def test_features_are_those_that_the_kernel_lists(
    tmp_path: Path, machine: str, text: str, features: CpuFeatures
) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    assert read_features(path, machine) == features


def test_other_systems_have_no_list(tmp_path: Path) -> None:
    assert read_features(tmp_path / "none") is None
