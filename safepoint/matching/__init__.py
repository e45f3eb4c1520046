"""Reads the notes of a run, and finds what belongs together: messages, collective calls, requests."""
