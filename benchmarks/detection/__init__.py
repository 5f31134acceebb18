"""Side-by-side benchmark of detectors on synthetic and replayed sweeps with known truth."""
