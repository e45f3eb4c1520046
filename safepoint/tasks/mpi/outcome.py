"""How a run ended, for all ranks: what was found, or an error that each of them raises."""

from __future__ import annotations

from typing import Any

from safepoint.errors import SafepointError
