"""Engines: ways to decode, behind one seam. Looking a name up imports one module."""
