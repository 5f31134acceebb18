"""Where to measure next: the phases P0 to P6 of the adaptive plan. Layer: above ``records``.

Pure: from the trials so far to the next visits, so that a search that was interrupted goes on with
the plan it would have had. It knows no engine and measures nothing. Source: method, section 11.
"""
