"""Commands for graphs of tasks: run one, and look at what is kept of it."""
