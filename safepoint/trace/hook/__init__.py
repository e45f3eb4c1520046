"""What Python loads first in a program that is traced: this directory is the first on its `PYTHONPATH`."""
