import pytest

from flambeau.config import CodeRef, Compute, FileData, JobSettings
from flambeau.errors import ConfigError

STEP = CodeRef(path="mine:step")


@pytest.mark.parametrize(
    "compute", [Compute(accumulate=2), Compute(precision="bf16"), Compute(compile=True)]
)
def test_what_is_about_the_built_in_step_is_refused_with_ones_own(compute: Compute) -> None:
    with pytest.raises(ConfigError, match="the whole step is yours"):
        JobSettings(
            model=CodeRef(path="mine:Net"), train=FileData(path="x"), step=STEP, compute=compute
        )
