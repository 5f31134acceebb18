"""One thread for numerical libraries: on a shared machine spinning threads make tests crawl."""

from __future__ import annotations

import os

# Set before torch or numpy is imported; inherited by the measured children.
os.environ.setdefault("OMP_NUM_THREADS", "1")
