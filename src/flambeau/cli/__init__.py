"""The command line. Commands import what they need when they run, so that all of them start fast.

Only this package prints.
"""


def main() -> None:
    """The entry point of `flambeau`."""
    import warnings

    from flambeau.cli.app import app

    # A warning is for the person at the keyboard: no file, line number or source.
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    app(prog_name="flambeau")
