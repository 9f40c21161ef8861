"""`python -m lilliput`."""

from lilliput.cli.main import main

if __name__ == "__main__":
    main()
