"""Start the program: any failure from here on, that of loading its own modules too, ends in a sentence."""

from graphcrate.host import defects, streams


def main() -> None:
    """Run the command line."""
    streams.prepare()
    with defects.guard():
        from graphcrate.cli.main import main as run

        run()
