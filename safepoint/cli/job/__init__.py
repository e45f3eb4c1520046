"""Commands of a job script: they begin, make and end save points, or ask a run to end."""
