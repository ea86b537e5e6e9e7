"""Settings of a job file that select one of several kinds."""

from typing import Any, Self

from pydantic import model_validator

from flambeau.config.clusters import Attached, Local, Ray, Spark, Ssh
from flambeau.config.settings import Settings
from flambeau.config.strategies import AllReduce, Hybrid, ParameterServer


class Choice(Settings):
    """Choice of one of several kinds, by name alone or as `{name: {its settings}}`."""

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {value: {}}
        if isinstance(value, dict):
            return {name: {} if inner is None else inner for name, inner in value.items()}
        return value

    @model_validator(mode="after")
    def _just_one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError(f"name one of: {', '.join(type(self).model_fields)}")
        return self

    @property
    def chosen(self) -> Any:
        """Settings of the chosen kind."""
        (name,) = self.model_fields_set
        return getattr(self, name)


class StrategyChoice(Choice):
    """Choice of a strategy."""

    all_reduce: AllReduce = AllReduce()
    parameter_server: ParameterServer = ParameterServer()
    hybrid: Hybrid = Hybrid()


class ClusterChoice(Choice):
    """Choice of a cluster."""

    local: Local = Local()
    spark: Spark = Spark()
    ray: Ray = Ray()
    attached: Attached = Attached()
    ssh: Ssh = Ssh()

    @model_validator(mode="after")
    def _launcher_decides(self) -> Self:
        if "workers" in self.attached.model_fields_set:
            raise ValueError(
                "attached.workers: the launcher decides how many processes there are; give "
                "attached.workers_per_process for several workers in each"
            )
        return self


class InitFrom(Settings):
    """Run whose weights initialize this one: all, or those whose names match `patterns`."""

    run: str
    patterns: tuple[str, ...] | None = None

    @model_validator(mode="before")
    @classmethod
    def _whole_run(cls, value: Any) -> Any:
        return {"run": value} if isinstance(value, str) else value
