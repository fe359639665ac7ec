"""`python -m etude`: the command line, where no `etude` was installed."""

from etude.cli import main

if __name__ == "__main__":
    main()
