"""Run the command line: `python -m graphcrate.cli`."""

from graphcrate.cli.main import main

if __name__ == "__main__":
    main()
