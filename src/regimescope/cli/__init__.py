"""The command line: arguments in, exit status out, no logic; a module per command.

Exit status: 0 done, 1 a failure while measuring or inside the tool, 2 unusable input or arguments,
3 `check`: policy broken, 4 `check`: inconclusive, 130 interrupted.
"""

from regimescope.cli.application import app as app
from regimescope.cli.application import main as main
