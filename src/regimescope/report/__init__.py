"""What a person reads: terminal summary, live progress, self-contained page. Layer: report.

Input is a stored run and the conclusion drawn from it; nothing here measures or concludes.
"""
