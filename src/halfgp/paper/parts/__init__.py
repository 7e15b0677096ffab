"""Figures and tables of the paper that have a measurement of their own, by subject."""
