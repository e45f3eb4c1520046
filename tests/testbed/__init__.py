"""What the tests share: disks that fail, programs that are killed, and the bookkeeping of both. No test is in here."""
