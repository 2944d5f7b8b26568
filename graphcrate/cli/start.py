"""Where the program begins: whatever goes wrong from here on, its own modules' loading too, ends in a sentence."""

from graphcrate.host import defects, streams


def main() -> None:
    """Run the command line."""
    streams.prepare()
    with defects.guard():
        from graphcrate.cli.main import main as run

        run()
