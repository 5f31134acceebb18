"""Measuring: the child that measures, the parent that guards it, and one timed generation."""
