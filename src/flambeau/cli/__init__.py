"""The command line. Commands import what they need when they run, so that all of them start fast.

Only this package prints.
"""


def main() -> None:
    """The entry point of `flambeau`."""
    from flambeau.cli.app import app

    app(prog_name="flambeau")
