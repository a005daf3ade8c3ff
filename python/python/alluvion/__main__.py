"""`python -m alluvion` is the program `alluvion`."""

from alluvion._program import main

if __name__ == "__main__":
    main()
