"""`python -m fedvi` is the `fedvi` command."""

from fedvi.cli.main import main

if __name__ == "__main__":
    main()
