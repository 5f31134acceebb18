"""Statistics of latency curves: arrays in, numbers out.

Layer: the lowest but for ``units`` and ``errors``. The modules know budgets only as an ascending
axis of steps and latencies only as natural logarithms of seconds; they import numpy and scipy,
no other part of the package, and take every seed as an argument. Input that cannot be a
measurement (not finite, empty, wrong shape) raises ``ValueError``; input that is merely too
small yields a result which says so with a reason code.
"""
