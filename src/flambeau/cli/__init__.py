"""The command line. Commands import libraries when they run, so that every command starts fast.

Only this package prints.
"""


def main() -> None:
    """Run the command line of `flambeau`."""
    import warnings

    from flambeau.cli.app import app

    # Warnings are for users, who need no file, line number or source.
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    app(prog_name="flambeau")
