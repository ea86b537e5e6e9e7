"""The settings of a model's tables, from the one argument that has them all."""

from collections.abc import Mapping
from typing import Any

from flambeau.config.shorthands import table_optimizer_form
from flambeau.config.tables import Initializer
from flambeau.errors import ModelError

EMBEDDINGS, LINEAR = "embeddings", "linear"

#: `table=` of the models: settings of a `TableSpec` by name, for all tables of the model. Settings
#: under the name of a table, `{"linear": {...}}`, apply to that table only.
TableSettings = Mapping[str, Any]


def settings_of(name: str, table: TableSettings | None) -> dict[str, Any]:
    """Return the settings of table `name`. "linear" starts with zeros by default."""
    _check(table or {})
    given = dict(table or {})
    own = {each: given.pop(each, {}) for each in (EMBEDDINGS, LINEAR)}[name]
    _check(own)
    if name == LINEAR:
        given["initializer"] = Initializer(kind="constant")
    values = {**given, **own}
    if isinstance(values.get("optimizer"), str | dict):
        values["optimizer"] = table_optimizer_form(values["optimizer"])
    return values


def _check(settings: Any) -> None:
    if not isinstance(settings, Mapping):
        raise ModelError(f"table={settings!r}: give settings of tables by name, as a dict")
    fixed = settings.keys() & {"name", "dim"}
    if fixed:
        raise ModelError(
            f"table= has {', '.join(map(repr, sorted(fixed)))}: the model names its tables itself, "
            "and embedding_dim is their width"
        )
