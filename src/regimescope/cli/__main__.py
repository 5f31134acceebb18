"""``python -m regimescope.cli``."""

from regimescope.cli.application import main

main()
