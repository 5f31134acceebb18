"""Child of the benchmark that runs in the environment of Apache Otava.

Reads one JSON object a line, {"series": [...], "p": 0.001}, and answers with the list of first
indices after each change. Its dependencies conflict with the package's, hence the process.
"""

import json
import sys

from otava.analysis import compute_change_points

for line in sys.stdin:
    asked = json.loads(line)
    points, _ = compute_change_points(asked["series"], max_pvalue=asked["p"])
    print(json.dumps([int(point.index) for point in points]), flush=True)
