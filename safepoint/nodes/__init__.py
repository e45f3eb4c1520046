"""Sets on the disks of nodes: what a node holds for others, how they speak, and how a run comes back without one.

Where a program's files are (`home`), who is told what (`session`), what goes over the wire (`transfer`, `asking`,
`giving`), what lies on the disk of another node (`held`, `parity`), and where a restart finds it (`gathering`).
"""
