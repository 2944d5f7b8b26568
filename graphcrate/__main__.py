"""`python -m graphcrate`: the command line."""

from graphcrate.cli.start import main

if __name__ == "__main__":
    main()
