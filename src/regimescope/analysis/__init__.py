"""Conclusions drawn from records; needs no engine and not the machine that measured."""
