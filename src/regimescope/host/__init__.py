"""The machine: facts that hold for a run."""
