"""The paper, reproduced: one file for each figure and table, one page with a verdict on each claim."""
