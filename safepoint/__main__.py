"""`python -m safepoint` is the command line, as `safepoint` is."""

from safepoint.cli import main

if __name__ == "__main__":
    main()
