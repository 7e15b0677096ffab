"""The paper, reproduced: `contents` lists it, `studies` and `parts` measure, `frame` runs and shows."""
