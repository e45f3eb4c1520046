"""When to save, and when to stop: what `due` and `should_stop` answer.

No crash needs it, and recovery reads nothing of it.
`ask` agrees between ranks; `decision` and `stopping` answer on one.
"""
