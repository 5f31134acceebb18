"""Readers of measurements made elsewhere; every one returns ordinary records."""
