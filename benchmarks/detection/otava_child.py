"""Child of the benchmark that runs in the environment of Apache Otava.

Reads one JSON object a line, {"series": [...], "p": 0.001}, and answers with the first index
after each change and the processor time so far. Its dependencies conflict with the package's,
hence the process.
"""

import json
import sys
import time

from otava.analysis import compute_change_points

for line in sys.stdin:
    asked = json.loads(line)
    points, _ = compute_change_points(asked["series"], max_pvalue=asked["p"])
    cuts = [int(point.index) for point in points]
    print(json.dumps({"cuts": cuts, "cpu_s": time.process_time()}), flush=True)
