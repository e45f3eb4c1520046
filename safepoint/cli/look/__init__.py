"""Commands that only look: they change nothing and take no lock, so they may be used beside a run, or on a copy."""
