"""`python -m optbook`: the same as the command `optbook`."""

from optbook.cli import main

if __name__ == "__main__":
    main(prog_name="optbook")
